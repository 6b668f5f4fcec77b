package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestUsagePerCPUIsNanosecondsInOrder(t *testing.T) {
	got, err := parseUsagePerCPU("1000000000 2500000000 \n")
	if err != nil || len(got) != 2 || got[0] != time.Second || got[1] != 2500*time.Millisecond {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "-1", "x 1"} {
		if got, err := parseUsagePerCPU(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

func TestCPUUseIsThatOfCPUStat(t *testing.T) {
	v2 := fixture(t, onlyV2+`
-- v2/web/cpu.stat --
usage_usec 2500000
user_usec 2000000
system_usec 500000
nr_periods 10
nr_throttled 4
throttled_usec 1500
`)
	want := CPUUse{Usage: 2500 * time.Millisecond, Throttled: 1500 * time.Microsecond}
	if got, err := v2.CPUUse("web"); err != nil || got != want {
		t.Errorf("v2: %+v, %v, want %+v", got, err, want)
	}
	if _, err := v2.UsagePerCPU("web"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("v2 counts by CPU: %v", err)
	}
	if _, err := v2.CPUUse("gone"); !errors.Is(err, ErrGone) {
		t.Errorf("a group that is not there: %v", err)
	}
}

func TestKeptFilesShowTheNewGroupOfTheSameName(t *testing.T) {
	tree := fixture(t, onlyV2+`
-- v2/web/cpu.stat --
usage_usec 1000000
`)
	kept := tree.KeepOpen()
	dir, err := kept.Dir("cpu", "web")
	if err != nil {
		t.Fatal(err)
	}
	read := func() time.Duration {
		t.Helper()
		u, err := kept.CPUUse("web")
		if err != nil {
			t.Fatal(err)
		}
		return u.Usage
	}
	if got := read(); got != time.Second {
		t.Fatalf("usage %v, want 1s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte("usage_usec 2000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != 2*time.Second {
		t.Errorf("usage %v after the counter moved, want 2s", got)
	}
	kept.Close("web")
	if n := len(kept.all[0].open.files); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	if len(tree.all) != len(kept.all) || tree.all[0].open != nil {
		t.Error("KeepOpen changed the tree that it was made from")
	}
}
