package cgroup

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

var compareSets = cmp.Comparer(func(a, b unit.CPUSet) bool { return a == b })

// group holds every value that can be read from a group.
type group struct {
	Weight    CPUWeight
	Max       CPUMax
	CPUs      unit.CPUSet
	Effective unit.CPUSet
	Mems      unit.CPUSet
	Memory    Memory
	PIDs      Maximum
	CPU       CPUStat
	Used      MemoryStat
	Events    MemoryEvents
	Current   unit.Bytes
	Tasks     int64
}

func readGroup(t *testing.T, tree *Tree, path string) group {
	t.Helper()
	var g group
	var errs [12]error
	g.Weight, errs[0] = tree.ReadCPUWeight(path)
	g.Max, errs[1] = tree.ReadCPUMax(path)
	g.CPUs, errs[2] = tree.ReadCPUs(path)
	g.Effective, errs[3] = tree.EffectiveCPUs(path)
	g.Mems, errs[4] = tree.ReadMems(path)
	g.Memory, errs[5] = tree.ReadMemory(path)
	g.PIDs, errs[6] = tree.ReadLimit(path, "pids.max")
	g.CPU, errs[7] = tree.CPUStat(path)
	g.Used, errs[8] = tree.MemoryStat(path)
	g.Events, errs[9] = tree.MemoryEvents(path)
	g.Current, errs[10] = tree.MemoryCurrent(path)
	g.Tasks, errs[11] = tree.PIDsCurrent(path)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return g
}

const groupV2 = onlyV2 + `-- v2/a/cpu.weight --
39
-- v2/a/cpu.idle --
0
-- v2/a/cpu.max --
150000 100000
-- v2/a/cpu.max.burst --
50000
-- v2/a/cpu.stat --
usage_usec 3000
user_usec 2000
system_usec 1000
nr_periods 7
nr_throttled 5
throttled_usec 400
nr_bursts 3
burst_usec 200
-- v2/a/cpu.pressure --
some avg10=0.00 avg60=0.00 avg300=0.00 total=9
full avg10=0.00 avg60=0.00 avg300=0.00 total=8
-- v2/a/cpuset.cpus --
0-1,5
-- v2/a/cpuset.cpus.effective --
0-1
-- v2/a/cpuset.cpus.partition --
isolated invalid (Cpu list in cpuset.cpus not exclusive)
-- v2/a/cpuset.mems --

-- v2/a/memory.min --
4096
-- v2/a/memory.low --
8192
-- v2/a/memory.high --
max
-- v2/a/memory.max --
1073741824
-- v2/a/memory.current --
12288
-- v2/a/memory.stat --
anon 100
file 200
pgfault 6
pgmajfault 5
inactive_file 120
active_file 80
-- v2/a/memory.events --
low 1
high 2
max 3
oom 4
oom_kill 5
oom_group_kill 0
-- v2/a/pids.max --
max
-- v2/a/pids.current --
11
-- v2/a/cgroup.procs --
30
4
0
30
`

const groupV1 = onlyV1 + `-- cpu/a/cpu.shares --
333
-- cpu/a/cpu.idle --
0
-- cpu/a/cpu.cfs_quota_us --
150000
-- cpu/a/cpu.cfs_period_us --
100000
-- cpu/a/cpu.cfs_burst_us --
50000
-- cpu/a/cpu.stat --
nr_periods 7
nr_throttled 5
throttled_time 400000
nr_bursts 3
burst_time 200000
-- cpu/a/cgroup.procs --
4
-- cpuacct/a/cpuacct.usage --
3000000
-- cpuacct/a/cpuacct.usage_user --
2000000
-- cpuacct/a/cpuacct.usage_sys --
1000000
-- cpuset/a/cpuset.cpus --
0-1,5
-- cpuset/a/cpuset.effective_cpus --
0-1
-- cpuset/a/cpuset.mems --

-- memory/a/memory.limit_in_bytes --
1073741824
-- memory/a/memory.usage_in_bytes --
12288
-- memory/a/memory.failcnt --
3
-- memory/a/memory.oom_control --
oom_kill_disable 0
under_oom 0
oom_kill 5
-- memory/a/memory.stat --
cache 1
rss 1
hierarchical_memory_limit 9223372036854771712
total_cache 200
total_rss 100
total_pgfault 6
total_pgmajfault 5
total_inactive_file 120
total_active_file 80
-- pids/a/pids.max --
max
-- pids/a/pids.current --
11
`

func TestBothVersionsReadAsTheSameGroup(t *testing.T) {
	want := group{
		Weight: CPUWeight{Weight: unit.WeightOf(39)},
		Max:    CPUMax{Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond, Burst: 50 * time.Millisecond},
		CPUs:   unit.CPUSetOf(0, 1, 5), Effective: unit.CPUSetOf(0, 1),
		Memory: Memory{Min: 4096, Low: 8192, High: unit.MaxBytes, Max: 1 << 30},
		PIDs:   Maximum{NoMaximum},
		CPU: CPUStat{
			Usage: 3 * time.Millisecond, User: 2 * time.Millisecond, System: time.Millisecond,
			Periods: 7, NrThrottled: 5, Throttled: 400 * time.Microsecond, NrBursts: 3, Bursts: 200 * time.Microsecond,
		},
		Used:    MemoryStat{Anon: 100, File: 200, ActiveFile: 80, InactiveFile: 120, PageFaults: 6, MajorFaults: 5},
		Events:  MemoryEvents{Low: 1, High: 2, Max: 3, OOM: 4, OOMKill: 5},
		Current: 12288, Tasks: 11,
	}
	if diff := cmp.Diff(want, readGroup(t, fixture(t, groupV2), "a"), compareSets); diff != "" {
		t.Errorf("v2: %s", diff)
	}
	// v1 lacks some of these values, and has others with more precision.
	want.Weight.Weight = unit.WeightOfShares(333)
	want.Memory.Min, want.Memory.Low = 0, 0
	want.Events = MemoryEvents{Max: 3, OOMKill: 5}
	if diff := cmp.Diff(want, readGroup(t, fixture(t, groupV1), "a"), compareSets); diff != "" {
		t.Errorf("v1: %s", diff)
	}
}

func TestOtherFilesOfV2(t *testing.T) {
	tree := fixture(t, groupV2)
	if p, err := tree.Partition("a"); err != nil || p != "isolated invalid (Cpu list in cpuset.cpus not exclusive)" {
		t.Errorf("partition %q, %v", p, err)
	}
	if p, err := tree.Pressure("a", "cpu"); err != nil || p.Some.Total != 9*time.Microsecond || p.Full.Total != 8*time.Microsecond {
		t.Errorf("pressure %+v, %v", p, err)
	}
	if ids, err := tree.Procs("a"); err != nil || cmp.Diff([]int{4, 30}, ids) != "" {
		t.Errorf("processes %v, %v, want unique ids, ascending, without 0", ids, err)
	}
}

func TestNoLimitReadsAsMaxOnV1(t *testing.T) {
	page := int64(os.Getpagesize())
	largest := unit.MaxBytes / unit.Bytes(page) * unit.Bytes(page)
	tree := fixture(t, onlyV1+"-- memory/a/memory.limit_in_bytes --\n"+largest.String()+`
-- memory/b/memory.limit_in_bytes --
9223372036854706176
-- cpu/a/cpu.cfs_quota_us --
-1
-- cpu/a/cpu.cfs_period_us --
100000
`)
	if m, err := tree.ReadMemory("a"); err != nil || m != noMemoryLimit {
		t.Errorf("got %+v, %v, want no limit", m, err)
	}
	if m, err := tree.ReadMemory("b"); err != nil || (page == 4096 && m.Max == unit.MaxBytes) {
		t.Errorf("got %+v, %v, want the unusual limit", m, err)
	}
	// This kernel does not support bursts.
	if v, err := tree.ReadCPUMax("a"); err != nil || v != (CPUMax{Quota: NoQuota, Period: 100 * time.Millisecond}) {
		t.Errorf("got %+v, %v, want no limit", v, err)
	}
}

func TestIdleHidesTheWeight(t *testing.T) {
	for name, archive := range map[string]string{
		"v2 shows weight 0": onlyV2 + "-- v2/a/cpu.idle --\n1\n-- v2/a/cpu.weight --\n0\n",
		"v1 shows shares 3": onlyV1 + "-- cpu/a/cpu.idle --\n1\n-- cpu/a/cpu.shares --\n3\n",
	} {
		t.Run(name, func(t *testing.T) {
			tree := fixture(t, archive)
			if v, err := tree.ReadCPUWeight("a"); err != nil || v != (CPUWeight{Idle: true}) {
				t.Errorf("got %+v, %v, want idle without weight", v, err)
			}
		})
	}
}

func TestWritesUseTheWordsOfTheVersion(t *testing.T) {
	set := unit.CPUSetOf
	limit := CPUMax{Quota: 250 * time.Millisecond, Period: 50 * time.Millisecond, Burst: 10 * time.Millisecond}
	writes := map[string]func(*Tree) error{
		"weight":   func(t *Tree) error { return t.WriteCPUWeight("a", CPUWeight{Weight: unit.WeightOf(100)}) },
		"idle":     func(t *Tree) error { return t.WriteCPUWeight("a", CPUWeight{Idle: true}) },
		"limit":    func(t *Tree) error { return t.WriteCPUMax("a", limit) },
		"no limit": func(t *Tree) error { return t.WriteCPUMax("a", CPUMax{Quota: NoQuota, Period: 100 * time.Millisecond}) },
		"cpus":     func(t *Tree) error { return t.WriteCPUs("a", set(0, 2, 3)) },
		"mems":     func(t *Tree) error { return t.WriteMems("a", set(1)) },
		"memory":   func(t *Tree) error { return t.WriteMemory("a", Memory{High: unit.MaxBytes, Max: 1 << 20}) },
		"no max":   func(t *Tree) error { return t.WriteMemory("a", noMemoryLimit) },
		"pids":     func(t *Tree) error { return t.WriteLimit("a", "pids.max", Maximum{7}) },
		"no pids":  func(t *Tree) error { return t.WriteLimit("a", "pids.max", Maximum{NoMaximum}) },
	}
	tests := map[string]struct{ write, controller, v2File, v2, v1File, v1 string }{
		"weight":         {"weight", cpu, "cpu.weight", "100", "cpu.shares", "1024"},
		"idle":           {"idle", cpu, "cpu.idle", "1", "cpu.idle", "1"},
		"quota":          {"limit", cpu, "cpu.max", "250000 50000", "cpu.cfs_quota_us", "250000"},
		"period":         {"limit", cpu, "cpu.max", "250000 50000", "cpu.cfs_period_us", "50000"},
		"burst":          {"limit", cpu, "cpu.max.burst", "10000", "cpu.cfs_burst_us", "10000"},
		"no quota":       {"no limit", cpu, "cpu.max", "max 100000", "cpu.cfs_quota_us", "-1"},
		"no burst":       {"no limit", cpu, "cpu.max.burst", "0", "cpu.cfs_burst_us", "0"},
		"cpus":           {"cpus", cpuset, "cpuset.cpus", "0,2-3", "cpuset.cpus", "0,2-3"},
		"mems":           {"mems", cpuset, "cpuset.mems", "1", "cpuset.mems", "1"},
		"memory max":     {"memory", memory, "memory.max", "1048576", "memory.limit_in_bytes", "1048576"},
		"memory no max":  {"no max", memory, "memory.max", "max", "memory.limit_in_bytes", "-1"},
		"pids max":       {"pids", pids, "pids.max", "7", "pids.max", "7"},
		"pids unlimited": {"no pids", pids, "pids.max", "max", "pids.max", "max"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v2, v1 := fixture(t, groupV2), fixture(t, groupV1)
			if err := errors.Join(writes[tc.write](v2), writes[tc.write](v1)); err != nil {
				t.Fatal(err)
			}
			if got := content(t, v2, tc.controller, "a", tc.v2File); got != tc.v2 {
				t.Errorf("v2 %s: %q, want %q", tc.v2File, got, tc.v2)
			}
			if got := content(t, v1, tc.controller, "a", tc.v1File); got != tc.v1 {
				t.Errorf("v1 %s: %q, want %q", tc.v1File, got, tc.v1)
			}
		})
	}
}

func TestMemoryProtectionIsWrittenOnV2(t *testing.T) {
	tree := fixture(t, groupV2)
	want := Memory{Min: 0, Low: 4096, High: 1 << 29, Max: 1 << 31}
	if err := tree.WriteMemory("a", want); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.ReadMemory("a"); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestV1LimitIsNeverWiderOnTheWay(t *testing.T) {
	const ms = time.Millisecond
	ratio := func(v CPUMax) float64 {
		if v.Quota == NoQuota {
			return math.Inf(1)
		}
		return float64(v.Quota) / float64(v.Period)
	}
	var limits []CPUMax
	for _, q := range []time.Duration{ms, 7 * ms, 100 * ms, 900 * ms, NoQuota} {
		for _, p := range []time.Duration{ms, 10 * ms, 100 * ms, 1000 * ms} {
			limits = append(limits, CPUMax{Quota: q, Period: p})
		}
	}
	for _, from := range limits {
		for _, to := range limits {
			between := CPUMax{Quota: to.Quota, Period: from.Period}
			if v1PeriodFirst(from, to) {
				between = CPUMax{Quota: from.Quota, Period: to.Period}
			}
			if ratio(between) > max(ratio(from), ratio(to)) {
				t.Errorf("from %+v to %+v over %+v", from, to, between)
			}
		}
	}
}

func TestIdleIsNotWrittenAgain(t *testing.T) {
	// The file contains 01. If Tenon wrote the same value, the file would
	// contain 1.
	tree := fixture(t, onlyV2+"-- v2/a/cpu.idle --\n01\n")
	if err := tree.WriteCPUWeight("a", CPUWeight{Idle: true}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, tree, cpu, "a", "cpu.idle"); got != "01" {
		t.Errorf("idle was written again: %q", got)
	}
}
