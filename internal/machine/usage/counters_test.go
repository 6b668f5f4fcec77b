package usage

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A countedNode has the counters of a resident host, on plain files that look
// like cgroup v2. The cgroup of each workload has the name of the workload.
type countedNode struct {
	*Counters
	workloads map[node.WorkloadID]node.Workload
}

// newCountedNode returns a counted node and two functions. The first one writes
// a file of a cgroup, and the second one writes a file of /proc.
func newCountedNode(t *testing.T, names ...string) (*countedNode, func(group, file, text string), func(file, text string)) {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/mountinfo", "31 24 0:28 / "+root+"/v2 rw - cgroup2 cgroup2 rw")
	write("v2/cgroup.controllers", "cpu cpuset memory pids")
	fs := proc.FS{Proc: filepath.Join(root, "proc")}
	h := &countedNode{workloads: map[node.WorkloadID]node.Workload{}}
	for _, g := range names {
		write("v2/"+g+"/pids.max", "max")
		write("v2/"+g+"/cpu.stat", "usage_usec 1000000")
		write("v2/"+g+"/memory.current", "5000")
		write("v2/"+g+"/memory.stat", "inactive_file 1000\nworkingset_refault_anon 0\nworkingset_refault_file 1")
		h.manage(node.Workload{ID: node.WorkloadID(g), Class: node.LS, Cgroup: node.CgroupPath(g)})
	}
	tree, err := cgroup.Detect(fs.Proc)
	if err != nil {
		t.Fatal(err)
	}
	h.Counters = New(fs, tree.KeepOpen(512), true)
	return h, func(group, file, text string) { write("v2/"+group+"/"+file, text) }, func(file, text string) { write("proc/"+file, text) }
}

func (h *countedNode) manage(w node.Workload) { h.workloads[w.ID] = w }

// counters takes a snapshot at the given time and returns its counters of all
// workloads.
func (h *countedNode) counters(at time.Time, scarce bool) map[node.WorkloadID]node.Usage {
	s := node.Snapshot{At: at}
	for _, id := range slices.Sorted(maps.Keys(h.workloads)) {
		w := h.workloads[id]
		reclaim := w.Usage.Reclaim
		w.Usage, _ = h.Workload(w)
		w.Usage.Reclaim = reclaim
		s.Workloads = append(s.Workloads, w)
	}
	h.FillSlow(&s, scarce)
	h.FillWaits(&s)
	all := map[node.WorkloadID]node.Usage{}
	for _, w := range s.Workloads {
		all[w.ID] = w.Usage
	}
	return all
}

func TestSlowCountersComeWithinTheirTime(t *testing.T) {
	for within, scarce := range map[time.Duration]bool{slowWithin: false, scarceWithin: true} {
		names := []string{"a", "b", "c"}
		h, write, _ := newCountedNode(t, names...)
		at := time.Unix(0, 0)
		for id, u := range h.counters(at, scarce) {
			if u.WorkingSet != node.Some(unit.Bytes(4000)) || u.Refaults != node.Some[int64](1) {
				t.Errorf("at first %s has %+v", id, u)
			}
		}
		for _, g := range names {
			write(g, "memory.stat", "inactive_file 2000\nworkingset_refault_anon 0\nworkingset_refault_file 9")
			write(g, "memory.current", "6000")
		}
		fresh := 0
		for range 10 {
			at = at.Add(within / 10)
			fresh = 0
			for id, u := range h.counters(at, scarce) {
				if u.Memory != node.Some(unit.Bytes(6000)) {
					t.Errorf("memory of %s is old: %v", id, u.Memory)
				}
				if u.Refaults == node.Some[int64](9) {
					fresh++
				}
			}
			if at.Sub(time.Unix(0, 0)) == within/10 && fresh > 1 {
				t.Errorf("%d of %d were read again after a tenth of %v", fresh, len(names), within)
			}
		}
		if fresh != len(names) {
			t.Errorf("after %v %d of %d were read again", within, fresh, len(names))
		}
	}
}

// TestStallsOfServedRequestsAreFresh changes the pressure of two services, of which one
// has an objective for its requests. Its stalls must be those of the last second.
func TestStallsOfServedRequestsAreFresh(t *testing.T) {
	h, write, _ := newCountedNode(t, "calm", "served", "third")
	served := h.workloads["served"]
	served.Objective.Requests.Within[4] = 5 * time.Millisecond
	h.manage(served)
	at := time.Unix(0, 0)
	fresh := map[node.WorkloadID]int{}
	for second := range 5 {
		text := fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0", second*1000)
		for id := range h.workloads {
			write(string(id), "memory.pressure", text)
		}
		for id, u := range h.counters(at, false) {
			if u.Pressure.Memory.Some == node.Some(time.Duration(second)*time.Millisecond) {
				fresh[id]++
			}
		}
		at = at.Add(time.Second)
	}
	if fresh["served"] != 5 || fresh["calm"] == 5 || fresh["third"] == 5 {
		t.Errorf("of 5 readings, so many were fresh: %v", fresh)
	}
}

// TestTheEffectOfAReclaimIsReadOnce lets a reclaim end. Its effect must be read once it
// shows, and not again until the next one ends. The workload is asleep.
func TestTheEffectOfAReclaimIsReadOnce(t *testing.T) {
	h, write, _ := newCountedNode(t, "calm", "reclaimed")
	start := time.Unix(0, 0)
	var read []int64
	for second := range 9 {
		at := start.Add(time.Duration(second) * time.Second)
		for id, w := range h.workloads {
			write(string(id), "memory.stat", fmt.Sprintf("inactive_file 1000\nworkingset_refault_anon 0\nworkingset_refault_file %d", second))
			write(string(id), "memory.pressure", fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0", second*1000))
			if w.Usage.Reclaim = (node.Reclaim{}); id == "reclaimed" && second > 0 {
				w.Usage.Reclaim = node.Reclaim{Asked: 1 << 20, Running: second < 2, Ended: start.Add(1500 * time.Millisecond)}
			}
			h.manage(w)
		}
		all := h.counters(at, false)
		if all["calm"].Refaults.Or(0) > 6 {
			t.Errorf("second %d: other work was read again", second)
		}
		u := all["reclaimed"]
		read = append(read, u.Refaults.Or(-1))
		if stalled := time.Duration(u.Refaults.Or(-1)) * time.Millisecond; u.Pressure.Memory.Some != node.Some(stalled) {
			t.Errorf("second %d: pressure %v beside %v refaults", second, u.Pressure.Memory.Some, u.Refaults)
		}
		if want := start.Add(time.Duration(u.Refaults.Or(-1)) * time.Second); !u.SlowAt.Equal(want) {
			t.Errorf("second %d: the counters are said to be of %v, want %v", second, u.SlowAt, want)
		}
	}
	if want := []int64{0, 0, 0, 0, 0, 0, 0, 7, 7}; !slices.Equal(read, want) {
		t.Errorf("read %v, want %v: the reclaim ended at 1.5 s and settles in 5 s", read, want)
	}
}

// TestManySleepersAreReadRarely changes memory.stat of a thousand workloads that
// sleep. A cycle over all of them takes fifteen seconds. So each memory.stat must
// be read again after a minute and a half, and not after a minute.
func TestManySleepersAreReadRarely(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("job-%03d", i))
	}
	h, write, _ := newCountedNode(t, names...)
	at := time.Unix(0, 0)
	for range len(names)/maxFirst + 1 {
		h.counters(at, false)
	}
	for _, name := range names {
		write(name, "memory.stat", "inactive_file 2000\nworkingset_refault_anon 0\nworkingset_refault_file 2")
	}
	count := func(until time.Duration) (fresh int) {
		for ; at.Before(time.Unix(0, 0).Add(until)); at = at.Add(5 * time.Second) {
			fresh = 0
			for _, u := range h.counters(at, false) {
				if u.Refaults == node.Some[int64](2) {
					fresh++
				}
			}
		}
		return fresh
	}
	if fresh := count(85 * time.Second); fresh > 0 {
		t.Errorf("%d were read again within 85 s", fresh)
	}
	if fresh := count(115 * time.Second); fresh != len(names) {
		t.Errorf("%d of %d were read again after 110 s", fresh, len(names))
	}
}

func TestAGroupMadeAnewHasCountersOfItsOwn(t *testing.T) {
	h, write, _ := newCountedNode(t, "a")
	at := time.Unix(0, 0)
	h.counters(at, false)
	write("a", "memory.stat", "inactive_file 0\nworkingset_refault_anon 0\nworkingset_refault_file 0")
	write("a", "cpu.stat", "usage_usec 7")
	if u := h.counters(at.Add(time.Millisecond), false)["a"]; u.Refaults != node.Some[int64](0) {
		t.Errorf("its refaults are %v, those of the group before", u.Refaults)
	}
}

func TestASwarmOfWorkloadsIsReadInPortions(t *testing.T) {
	var names []string
	for i := range 3 * maxFirst {
		names = append(names, fmt.Sprintf("job-%03d", i))
	}
	h, _, _ := newCountedNode(t, names...)
	at := time.Unix(0, 0)
	for turn := 1; turn <= 3; turn++ {
		known := 0
		for _, u := range h.counters(at, false) {
			if u.WorkingSet.Known() {
				known++
			}
		}
		if known != turn*maxFirst {
			t.Errorf("after %d snapshots %d workloads have a working set, want %d", turn, known, turn*maxFirst)
		}
	}
	clear(h.workloads)
	h.manage(node.Workload{ID: "job-001", Cgroup: "job-001"})
	h.counters(at, false)
	if n := len(h.slow.known); n != 1 {
		t.Errorf("%d workloads are remembered, and one is there", n)
	}
}

func TestWithoutTracingThreadsAreAskedHowLongTheyWaited(t *testing.T) {
	h, write, procfs := newCountedNode(t, "web", "db")
	web := h.workloads["web"]
	web.Objective.RunQueueDelay = node.Some(time.Millisecond)
	h.manage(web)
	write("web", "cgroup.procs", "10")
	write("db", "cgroup.procs", "20")
	for _, tid := range []int{10, 11} {
		procfs(fmt.Sprintf("10/task/%d/schedstat", tid), "1000 500 3")
	}
	at := time.Unix(0, 0)
	if d := h.counters(at, false)["web"].Delay; d.Sum != node.Some(time.Duration(0)) || d.Timeslices != node.Some[int64](0) {
		t.Errorf("before anything is known web has waited %+v", d)
	}
	procfs("10/task/10/schedstat", "1000 700 5")
	procfs("10/task/11/schedstat", "1000 600 4")
	all := h.counters(at.Add(time.Second), false)
	if d := all["web"].Delay; d.Sum != node.Some(time.Duration(300)) || d.Timeslices != node.Some[int64](3) || d.Counts != nil {
		t.Errorf("web has waited %+v, want 300 ns in 3 turns", d)
	}
	if d := all["db"].Delay; d.Sum.Known() {
		t.Errorf("db, of which nothing is wanted, has waited %+v", d)
	}
	// If a thread has the id of one that has ended, it is another thread. Its
	// waits count from now on.
	procfs("10/task/11/schedstat", "1 5 1")
	if d := h.counters(at.Add(2*time.Second), false)["web"].Delay; d.Sum != node.Some(time.Duration(300)) {
		t.Errorf("web has waited %+v after a thread began anew", d)
	}
}

// TestWaitsThatTheKernelDoesNotCountAreUnknown checks a kernel whose schedstat
// counts nothing. A sum of 0 would say that the service does not wait.
func TestWaitsThatTheKernelDoesNotCountAreUnknown(t *testing.T) {
	h, write, procfs := newCountedNode(t, "web")
	write("web", "cgroup.procs", "10")
	procfs("10/task/10/schedstat", "0 0 0")
	web := node.Workload{ID: "web", Class: node.LS, Cgroup: "web"}
	web.Objective.RunQueueDelay = node.Some(time.Millisecond)
	for verdict, want := range map[node.Verdict]bool{node.Yes: true, node.No: false, node.Unknown: true} {
		s := node.Snapshot{At: time.Unix(0, 0), Workloads: []node.Workload{web}, Capabilities: node.Capabilities{node.FeatureSchedStat: {Verdict: verdict}}}
		h.FillWaits(&s)
		if got := s.Workloads[0].Usage.Delay.Sum.Known(); got != want {
			t.Errorf("verdict %v: the waits are known: %v", verdict, got)
		}
	}
}

func TestOnlySoManyThreadsAreAsked(t *testing.T) {
	h, write, procfs := newCountedNode(t, "web")
	web := h.workloads["web"]
	web.Objective.RunQueueDelay = node.Some(time.Millisecond)
	h.manage(web)
	write("web", "cgroup.procs", "10")
	for tid := range 2 * threadsAtOnce {
		procfs(fmt.Sprintf("10/task/%d/schedstat", 10+tid), "1 0 0")
	}
	at := time.Unix(0, 0)
	for range 2 {
		h.counters(at, false)
	}
	for tid := range 2 * threadsAtOnce {
		procfs(fmt.Sprintf("10/task/%d/schedstat", 10+tid), "1 10 1")
	}
	for turn := 1; turn <= 3; turn++ {
		d := h.counters(at, false)["web"].Delay
		if want := int64(min(turn, 2) * threadsAtOnce); d.Timeslices != node.Some(want) {
			t.Errorf("after %d snapshots the turns are %v, want %d", turn, d.Timeslices, want)
		}
	}
}

// TestPageCacheThatStreamsIsNoGrowth checks a job that reads many files. Its
// charged memory grows, but not the memory that it uses.
func TestPageCacheThatStreamsIsNoGrowth(t *testing.T) {
	h, write, _ := newCountedNode(t, "job")
	const total = 400_000
	look := func(at time.Time) node.Maybe[unit.Bytes] {
		s := node.Snapshot{At: at, MemoryTotal: node.Some(unit.Bytes(total))}
		w := h.workloads["job"]
		w.Usage, _ = h.Workload(w)
		s.Workloads = append(s.Workloads, w)
		h.FillSlow(&s, true)
		return s.Workloads[0].Usage.WorkingSet
	}
	at := time.Unix(0, 0)
	if got := look(at); got != node.Some(unit.Bytes(4000)) {
		t.Fatalf("at first the working set is %v", got)
	}
	for i := 1; i <= 10; i++ {
		write("job", "memory.current", fmt.Sprint(5000+5000*i))
		write("job", "memory.stat", fmt.Sprintf("inactive_file %d\nworkingset_refault_anon 0\nworkingset_refault_file 1", 1000+5000*i))
		if got := look(at.Add(time.Duration(i) * time.Millisecond)); got != node.Some(unit.Bytes(4000)) {
			t.Errorf("with %d bytes of page cache the working set is %v, want 4000", 1000+5000*i, got)
		}
	}
	// This change is so small that the long file is not read again.
	write("job", "memory.current", fmt.Sprint(55_000+total/moveDivisor))
	write("job", "memory.stat", "inactive_file 0")
	if got := look(at.Add(20 * time.Millisecond)); got != node.Some(unit.Bytes(4000+total/moveDivisor)) {
		t.Errorf("memory.stat was read again for a %dth of the memory: %v", moveDivisor, got)
	}
}

// TestMemoryOfASleepingWorkloadIsNotReadAgain changes only memory.stat, the
// most expensive file. It must not be read again before the workload has run.
func TestMemoryOfASleepingWorkloadIsNotReadAgain(t *testing.T) {
	h, write, _ := newCountedNode(t, "a")
	at := time.Unix(0, 0)
	h.counters(at, false)
	write("a", "memory.stat", "inactive_file 2000\nworkingset_refault_anon 0\nworkingset_refault_file 9")
	next := func(scarce bool) node.Maybe[int64] {
		at = at.Add(slowWithin)
		h.counters(at, scarce)
		return h.counters(at.Add(time.Millisecond), scarce)["a"].Refaults
	}
	if got := next(false); got != node.Some[int64](1) {
		t.Errorf("asleep it has %v refaults: its memory.stat was read", got)
	}
	for range sleepsRounds - 2 {
		if got := next(false); got != node.Some[int64](1) {
			t.Errorf("asleep it has %v refaults", got)
		}
	}
	if got := next(false); got != node.Some[int64](9) {
		t.Errorf("after %v of sleep it has %v refaults: its memory.stat was not read", sleepsRounds*slowWithin, got)
	}
	write("a", "memory.stat", "inactive_file 2000\nworkingset_refault_anon 0\nworkingset_refault_file 10")
	if got := next(true); got != node.Some[int64](10) {
		t.Errorf("while memory is scarce it has %v refaults: its memory.stat was not read", got)
	}
	write("a", "memory.stat", "inactive_file 2000\nworkingset_refault_anon 0\nworkingset_refault_file 12")
	write("a", "cpu.stat", "usage_usec 1000001")
	if got := next(false); got != node.Some[int64](12) {
		t.Errorf("after it ran it has %v refaults", got)
	}
}

// TestHugePagesAreNoMemoryOfTheNode reads a node with 64 GiB, of which 48 GiB are
// free huge pages and 10 GiB are free. Neither its memory nor its use has the
// huge pages: no eviction could make this use less.
func TestHugePagesAreNoMemoryOfTheNode(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		text                string
		total, used, active unit.Bytes
		scarce              bool
	}{
		"free huge pages":      {"HugePages_Total: 24576\nHugePages_Free: 24576\nHugepagesize: 2048 kB\nHugetlb: 50331648 kB", 16 * gib, 4 * gib, 4 * gib, false},
		"used huge pages":      {"HugePages_Total: 24576\nHugePages_Free: 0\nHugepagesize: 2048 kB\nHugetlb: 50331648 kB", 16 * gib, 4 * gib, 4 * gib, false},
		"an older kernel":      {"HugePages_Total: 24576\nHugepagesize: 2048 kB", 16 * gib, 4 * gib, 4 * gib, false},
		"none":                 {"HugePages_Total: 0\nHugetlb: 0 kB", 64 * gib, 52 * gib, 52 * gib, true},
		"more than is in use":  {"Hugetlb: 58720256 kB", 8 * gib, 0, 0, false},
		"more than the memory": {"Hugetlb: 68719476736 kB", 0, 0, 0, false},
	} {
		h, _, write := newCountedNode(t)
		write("meminfo", "MemTotal: 67108864 kB\nMemFree: 10485760 kB\nMemAvailable: 12582912 kB\nInactive(file): 2097152 kB\n"+c.text)
		var s node.Snapshot
		scarce := h.Node(&s)
		if s.MemoryTotal != node.Some(c.total) || s.Usage.Memory != node.Some(c.used) || s.Usage.WorkingSet != node.Some(c.active) || scarce != c.scarce {
			t.Errorf("%s: %v of %v in use, working set %v, scarce %v", name, s.Usage.Memory, s.MemoryTotal, s.Usage.WorkingSet, scarce)
		}
	}
}
