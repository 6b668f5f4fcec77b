package cgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestOneDamagedLineLosesOnlyWhatItSays damages each line of the files of a group
// in turn, in several ways. Everything else must be known as before.
func TestOneDamagedLineLosesOnlyWhatItSays(t *testing.T) {
	set := func(all map[string]string, name string, v any, known bool) {
		if known {
			all[name] = fmt.Sprint(v)
		}
	}
	use := func(tree *Tree) map[string]string {
		all := map[string]string{}
		u, err := tree.CPUUse("a")
		set(all, "usage", u.Usage, err == nil)
		set(all, "quota", [...]any{u.Periods, u.ThrottledPeriods, u.Throttled}, u.QuotaErr == nil)
		s, err := tree.CPUStat("a")
		set(all, "stat", s, err == nil)
		return all
	}
	memoryUse := func(tree *Tree) map[string]string {
		all := map[string]string{}
		u, err := tree.MemoryUse("a")
		set(all, "inactive", u.InactiveFile, err == nil)
		set(all, "refaults", u.Refaults, u.RefaultsErr == nil)
		s, err := tree.MemoryStat("a")
		set(all, "stat", s, err == nil)
		return all
	}
	ioUse := func(tree *Tree) map[string]string {
		all := map[string]string{}
		u, _ := tree.IOUse("a")
		set(all, "read", u.Read, !u.NoRead)
		set(all, "written", u.Written, !u.NoWritten)
		return all
	}
	pressure := func(tree *Tree) map[string]string {
		all := map[string]string{}
		p, _ := tree.Pressure("a", "cpu")
		set(all, "some", p.Some, p.Some.Known)
		set(all, "full", p.Full, p.Full.Known)
		return all
	}
	for _, c := range []struct {
		fixture, file, text string
		read                func(*Tree) map[string]string
		lost                map[string][]string // by the first word of a line; all other lines say nothing
	}{
		{onlyV2, "v2/a/cpu.stat", "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnice_usec 0\nnr_periods 3\nnr_throttled 2\nthrottled_usec 7\nnr_bursts 0\nburst_usec 0\n", use,
			map[string][]string{"usage_usec": {"usage", "stat"}, "user_usec": {"stat"}, "system_usec": {"stat"}, "nr_periods": {"quota", "stat"}, "nr_throttled": {"quota", "stat"},
				"throttled_usec": {"quota", "stat"}, "nr_bursts": {"stat"}, "burst_usec": {"stat"}}},
		{onlyV1 + "-- cpuacct/a/cpuacct.usage --\n77\n", "cpu/a/cpu.stat", "nr_periods 3\nnr_throttled 2\nthrottled_time 7\nwait_sum 5\n", use,
			map[string][]string{"nr_periods": {"quota", "stat"}, "nr_throttled": {"quota", "stat"}, "throttled_time": {"quota", "stat"}}},
		{onlyV2, "v2/a/memory.stat", "anon 10\nfile 20\nkernel 1\ninactive_file 5\nactive_file 6\npgfault 1\npgmajfault 2\nworkingset_refault_anon 3\nworkingset_refault_file 4\nthp_fault_alloc 0\n", memoryUse,
			map[string][]string{"anon": {"stat"}, "file": {"stat"}, "inactive_file": {"inactive", "stat"}, "active_file": {"stat"}, "pgfault": {"stat"}, "pgmajfault": {"stat"},
				"workingset_refault_anon": {"refaults", "stat"}, "workingset_refault_file": {"refaults", "stat"}}},
		{onlyV2, "v2/a/io.stat", "8:16 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n8:0 rbytes=10 wbytes=20 rios=1 wios=1\n", ioUse,
			map[string][]string{"8:16": {"read", "written"}, "8:0": {"read", "written"}}},
		{onlyV2, "v2/a/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=8\n", pressure,
			map[string][]string{"some": {"some"}, "full": {"full"}}},
	} {
		read := func(text string) map[string]string {
			return c.read(fixture(t, c.fixture+"-- "+c.file+" --\n"+text))
		}
		whole := read(c.text)
		lines := slices.Collect(strings.Lines(c.text))
		for i, line := range lines {
			word := strings.Fields(line)[0]
			for _, bad := range []string{word + " 18446744073709551616", word + " -1", word + " x=y rbytes=-1 wbytes=-1 total=x", "\x00\x00\x00"} {
				if bad[0] == 0 && strings.Contains(c.file, "io.stat") {
					continue // as the line of a device without I/O: it says nothing
				}
				damaged := slices.Clone(lines)
				damaged[i] = bad + "\n"
				got := read(strings.Join(damaged, ""))
				for name, v := range whole {
					if at, known := got[name]; !slices.Contains(c.lost[word], name) && at != v {
						t.Errorf("%s with %q in place of %q: %s is %q (%v), not %q", c.file, bad, line, name, at, known, v)
					}
				}
				for _, name := range c.lost[word] {
					if at, known := got[name]; known && bad[0] != 0 && !strings.HasSuffix(bad, "616") && name != "stat" {
						t.Errorf("%s with %q in place of %q: %s is still known: %q", c.file, bad, line, name, at)
					}
				}
			}
		}
	}
}
