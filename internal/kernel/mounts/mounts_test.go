package mounts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add("32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n")
	f.Add("27 25 0:24 /.. /a\\040b\\ rw - cgroup2 none rw\n")
	f.Add("1 2 3 4 5 6 - cgroup2 a b")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse(text)
		lines := strings.Count(text, "\n")
		if !strings.HasSuffix(text, "\n") && text != "" {
			lines++
		}
		if len(all) > lines || err == nil && len(all) != lines {
			t.Errorf("%d mounts in %d lines, %v", len(all), lines, err)
		}
	})
}

// TestOneBadLineHidesOneMount damages each line of the mounts of this process in
// turn. All other mounts must still be there.
func TestOneBadLineHidesOneMount(t *testing.T) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(text)))
	for i, line := range lines {
		for _, bad := range []string{"\x00\n", line[:len(line)/3] + "\n", "\n"} {
			damaged := slices.Clone(lines)
			damaged[i] = bad
			all, err := parse(strings.Join(damaged, ""))
			if want := slices.Delete(slices.Clone(whole), i, i+1); err == nil || !slices.EqualFunc(all, want, func(a, b Mount) bool { return a.Point == b.Point }) {
				t.Fatalf("without line %d: %d mounts, want %d; %v", i, len(all), len(want), err)
			}
		}
	}
}

func TestReadSelectsTypes(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "self"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "24 1 0:22 / / rw - ext4 /dev/root rw\n31 24 0:28 / /a\\040b rw - cgroup2 cgroup2 rw,nsdelegate\n"
	if err := os.WriteFile(filepath.Join(dir, "self/mountinfo"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Read(dir, "cgroup", "cgroup2")
	if err != nil || len(all) != 1 || all[0].Point != "/a b" || !slices.Contains(all[0].Options, "nsdelegate") {
		t.Errorf("%+v, %v", all, err)
	}
}
