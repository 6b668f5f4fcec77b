package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/model/unit"
)

// A known reader returns what it knows of a file, by name.
type knownReader struct {
	file string // of this machine
	// example is the text if this machine does not have the file.
	example string
	known   func(text string) map[string]string
	// of returns the names of what a line says.
	of func(line string) []string
}

func values[T any](m map[string]string, name string, v T) { m[name] = fmt.Sprint(v) }

func firstWord(line string) []string { return strings.Fields(line)[:1] }

var knownReaders = []knownReader{
	{"meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 500 kB\nSwapFree: 0 kB\n", func(text string) map[string]string {
		m := parseMemInfoOf("", text)
		all := map[string]string{}
		for name, v := range map[string]any{
			"MemTotal": m.Total, "MemFree": m.Free, "MemAvailable": m.Available, "Buffers": m.Buffers, "Cached": m.Cached,
			"Inactive(file)": m.InactiveFile, "SwapTotal": m.SwapTotal, "SwapFree": m.SwapFree,
		} {
			if !m.Unread.Lack(name) {
				values(all, name, v)
			}
		}
		return all
	}, func(line string) []string { name, _, _ := strings.Cut(line, ":"); return []string{name} }},
	{"stat", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 8 9 10\nbtime 1700000000\n", func(text string) map[string]string {
		s, _ := parseStat(text)
		all := map[string]string{}
		if !s.Unread.Lack("cpu") {
			values(all, "cpu", s.All)
		}
		for id, t := range s.PerCPU {
			values(all, fmt.Sprintf("cpu%d", id), t)
		}
		if !s.Unread.Lack("btime") && !s.BootTime.IsZero() {
			values(all, "btime", s.BootTime)
		}
		return all
	}, firstWord},
	{"vmstat", "pgfault 9\nworkingset_refault_anon 3\nworkingset_refault_file 4\n", func(text string) map[string]string {
		v, _ := parseVMStat(text)
		all := map[string]string{}
		for name, n := range v {
			values(all, name, n)
		}
		if n, err := v.Refaults(); err == nil {
			values(all, "refaults", n)
		}
		return all
	}, func(line string) []string {
		name := firstWord(line)[0]
		if strings.HasPrefix(name, "workingset_refault") {
			return []string{name, "refaults"}
		}
		return []string{name}
	}},
	{"partitions", "major minor  #blocks  name\n\n 254 0 268435456 vda\n 254 1 2684356 vda1\n", func(text string) map[string]string {
		all := map[string]string{}
		parts, _ := parsePartitions(text)
		for _, p := range parts {
			values(all, p.Name, p)
		}
		return all
	}, func(line string) []string { f := strings.Fields(line); return f[len(f)-1:] }},
	{"self/cgroup", "3:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n", func(text string) map[string]string {
		all := map[string]string{}
		entries, _ := parseCgroup(text)
		for _, e := range entries {
			values(all, fmt.Sprint(e.Hierarchy), e)
		}
		return all
	}, func(line string) []string { n, _, _ := strings.Cut(line, ":"); return []string{n} }},
}

// damages are ways to damage a line. None leaves a valid line with another value.
func damages(line string) []string {
	word := strings.Fields(line)[0]
	return []string{
		word + " 18446744073709551488 kB", word + " -128 kB", word, "\x00\x00", word + " many", "", "\xff" + line[1:], strings.ReplaceAll(line, " ", ""),
	}
}

// TestOneDamagedLineLosesOnlyWhatItSays damages each line of each file in turn,
// in several ways. The reader must know everything else as before, and must not
// know another value of the damaged line.
func TestOneDamagedLineLosesOnlyWhatItSays(t *testing.T) {
	for _, r := range knownReaders {
		texts := []string{r.example}
		if text, err := os.ReadFile(filepath.Join("/proc", r.file)); err == nil {
			texts = append(texts, string(text))
		}
		for _, text := range texts {
			whole := r.known(text)
			lines := slices.Collect(strings.Lines(text))
			for i, line := range lines {
				line = strings.TrimSuffix(line, "\n")
				if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "major") {
					continue
				}
				says := r.of(line)
				for _, bad := range damages(line) {
					if r.file == "self/cgroup" && strings.HasPrefix(bad, line) {
						continue // a path may end with anything
					}
					damaged := slices.Clone(lines)
					damaged[i] = bad + "\n"
					got := r.known(strings.Join(damaged, ""))
					for name, v := range whole {
						if at, known := got[name]; at != v && (known || !slices.Contains(says, name)) {
							t.Errorf("%s with %.60q in place of %.60q: %s is %q (%v), not %q", r.file, bad, line, name, at, known, v)
						}
					}
				}
			}
		}
	}
}

func fileWith(t *testing.T, name, text string) FS {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return FS{Proc: dir, Sys: dir}
}

// TestASwapBelowZeroCostsOnlyTheSwap reads what a container has shown.
func TestASwapBelowZeroCostsOnlyTheSwap(t *testing.T) {
	m, err := fileWith(t, "meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 1500 kB\nSwapTotal: 0 kB\nSwapFree: 18446744073709551488 kB\n").MemInfo()
	if err != nil || m.Total != 1000<<10 || m.Available != m.Total || !m.Unread.Lack("SwapFree") || m.Unread.Lack("SwapTotal", "MemAvailable") {
		t.Errorf("%+v, %v", m, err)
	}
	if text := m.Unread.Err("meminfo"); text == nil || !strings.Contains(text.Error(), "18446744073709551488") {
		t.Errorf("%v does not name the line", text)
	}
	if _, err := fileWith(t, "meminfo", "MemTotal: -1 kB\nMemFree: 100 kB\n").MemInfo(); err == nil || !strings.Contains(err.Error(), "MemTotal") {
		t.Errorf("%v", err)
	}
}

// TestAStealBelowZeroCostsOnlyTheSteal reads the counters of a guest whose
// hypervisor has let the steal fall below zero.
func TestAStealBelowZeroCostsOnlyTheSteal(t *testing.T) {
	s, err := fileWith(t, "stat", "cpu  1 2 3 4 5 6 7 18446744073709551600 0 0\ncpu0 1 2 3 4 5 6 7 18446744073709551600 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\n").Stat()
	if err != nil || !s.Unread.Lack("cpu steal") || s.All.Busy() != 19*10*time.Millisecond || !s.Unread.Lack("cpu0 steal") || s.Unread.Lack("cpu1 steal", "cpu") || s.PerCPU[1].Steal != 80*time.Millisecond {
		t.Errorf("%+v, %v", s, err)
	}
	if err := s.Unread.Err("/proc/stat"); err == nil || !strings.Contains(err.Error(), "steal") {
		t.Errorf("%v", err)
	}
}

func TestOnlyTheLineOfTheCPUControllerIsNeededForItsPath(t *testing.T) {
	for text, want := range map[string]string{
		"3:cpu:/a\nbad\n0::/c\n": "/a",
		"bad\n0::/c\n":           "", // the bad line may be the one of cpu
		"0::/c\n":                "/c",
	} {
		path, err := FindCPUPath(fileWith(t, "cgroup", text).selfCgroupAt("cgroup"))
		if path != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", text, path, err)
		}
	}
}

func (fs FS) selfCgroupAt(name string) ([]CgroupEntry, error) { return procFile(fs, name, parseCgroup) }

func TestDamagedFilesOfTheTopologyCostOnlyThemselves(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs := FS{Proc: dir, Sys: dir}
	put("devices/system/cpu/isolated", "2-3\n")
	put("devices/system/cpu/nohz_full", "\x00\n") // CentOS 7, Linux 3.10
	if set, err := fs.IsolatedCPUs(); err != nil || set.String() != "2-3" {
		t.Errorf("%v, %v", set, err)
	}
	put("devices/system/cpu/nohz_full", "x\n")
	if set, err := fs.IsolatedCPUs(); err == nil || set.String() != "2-3" {
		t.Errorf("%v, %v", set, err)
	}
	put("devices/system/node/node0/meminfo", "Node 0 MemTotal: odd kB\nNode 0 MemFree: 5 kB\n")
	put("devices/system/node/node1/meminfo", "Node 1 MemTotal: 8 kB\nNode 1 MemFree: odd kB\n")
	if sizes, err := fs.NUMAMemory(); err == nil || len(sizes) != 1 || sizes[1] != 8<<10 {
		t.Errorf("%v, %v", sizes, err)
	}
}

func TestFieldsNameWhatIsLost(t *testing.T) {
	var f partial.Fields
	if f.Lack("a") || f.Err("x") != nil {
		t.Error("the zero Fields lacks something")
	}
	f.Lose("a", os.ErrInvalid)
	if !f.Lack("b", "a") || f.Lack("b") || !errors.Is(f.Err("x"), os.ErrInvalid) {
		t.Errorf("%v", f)
	}
}

// FuzzDamage damages a line with any text.
func FuzzDamage(f *testing.F) {
	f.Add(0, 1, "MemAvailable: 18446744073709551488 kB")
	f.Add(1, 2, "cpu1 1 2 3")
	f.Fuzz(func(t *testing.T, reader, at int, bad string) {
		if strings.Contains(bad, "\n") {
			t.Skip()
		}
		r := knownReaders[uint(reader)%uint(len(knownReaders))]
		lines := slices.Collect(strings.Lines(r.example))
		i := int(uint(at) % uint(len(lines)))
		line := strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "major") || len(strings.Fields(bad)) == 0 {
			t.Skip()
		}
		whole := r.known(r.example)
		says := append(r.of(line), r.of(bad)...)
		lines[i] = bad + "\n"
		got := r.known(strings.Join(lines, ""))
		for name, v := range whole {
			if got[name] != v && !slices.Contains(says, name) {
				t.Errorf("%s with %q in place of %q: %s is %q, not %q", r.file, bad, line, name, got[name], v)
			}
		}
	})
}

// TestCoresWithoutAnL3AreNotInThatOfOthers has a package of two cores with a cache
// and two without, as the low-power cores of some processors.
func TestCoresWithoutAnL3AreNotInThatOfOthers(t *testing.T) {
	cpus := []CPU{{ID: 0, L3: 0}, {ID: 1, L3: 0}, {ID: 2, L3: 0}, {ID: 3, L3: 0}, {ID: 4, Socket: 1, L3: 4}, {ID: 5, Socket: 1, L3: 4}}
	setApartNoL3(cpus, unit.CPUSetOf(2, 3, 4, 5))
	for i, want := range []int{0, 0, 2, 2, 4, 4} {
		if cpus[i].L3 != want {
			t.Errorf("CPU %d has cache %d, want %d", i, cpus[i].L3, want)
		}
	}
}
