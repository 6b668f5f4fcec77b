package usage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A sleepersBench is a node with three workloads. Two are below the cgroup be,
// and one is elsewhere.
type sleepersBench struct {
	*countedNode
	write func(group, file, text string)
	list  []node.Workload
	at    time.Time
}

func newSleepersBench(t *testing.T) *sleepersBench {
	t.Helper()
	b := &sleepersBench{at: time.Unix(0, 0)}
	b.countedNode, b.write, _ = newCountedNode(t, "be/a", "be/b", "ls/web")
	b.write("be", "cpu.stat", "usage_usec 2000000")
	for _, id := range []node.WorkloadID{"be/a", "be/b", "ls/web"} {
		b.list = append(b.list, b.workloads[id])
	}
	return b
}

// memory takes a snapshot after some time (after). It returns how much memory
// the workloads have in the snapshot.
func (b *sleepersBench) memory(after time.Duration, scarce bool) (found [4]unit.Bytes, gone int) {
	b.at = b.at.Add(after)
	i := 0
	b.Workloads(b.at, b.list, scarce, func(_ *node.Workload, u *node.Usage, isGone bool) {
		if isGone {
			gone++
		}
		found[i] = u.Memory.Or(-1)
		i++
	})
	return found, gone
}

// TestMemoryOfSleepersIsReadWithinItsTime changes the memory of three
// workloads. If a workload sleeps, only reclaim changes its memory. So the
// change may be noticed late, but must be noticed within the time slowWithin.
func TestMemoryOfSleepersIsReadWithinItsTime(t *testing.T) {
	b := newSleepersBench(t)
	want := func(when string, after time.Duration, scarce bool, want [4]unit.Bytes) {
		t.Helper()
		if got, _ := b.memory(after, scarce); got != want {
			t.Errorf("%s the memory is %v, want %v", when, got, want)
		}
	}
	reclaim := func(to string) {
		for _, p := range []string{"be/a", "be/b", "ls/web"} {
			b.write(p, "memory.current", to)
		}
	}
	want("at first", 0, false, [4]unit.Bytes{5000, 5000, 5000})
	reclaim("4000")
	want("after all slept", time.Second, false, [4]unit.Bytes{5000, 5000, 5000})
	b.write("be", "cpu.stat", "usage_usec 2000001")
	b.write("be/b", "cpu.stat", "usage_usec 1000001")
	want("after b ran", time.Second, false, [4]unit.Bytes{5000, 4000, 5000})
	b.write("ls/web", "cpu.stat", "usage_usec 1000001")
	want("after web ran", time.Second, false, [4]unit.Bytes{5000, 4000, 4000})
	for range int(slowWithin/time.Second) - 2 {
		b.memory(time.Second, false)
	}
	want("within the time of slow counters", time.Second, false, [4]unit.Bytes{4000, 4000, 4000})
	reclaim("3000")
	want("while memory is scarce", time.Millisecond, true, [4]unit.Bytes{3000, 3000, 3000})
}

// TestOneCounterTellsOfAllThatSleep changes the files of a and b, but not the counter
// of their parent be. (The real kernel would change this counter, too.) If the
// snapshot has a new value, Tenon has read their files although the parent slept.
func TestOneCounterTellsOfAllThatSleep(t *testing.T) {
	b := newSleepersBench(t)
	b.memory(0, false)
	for _, p := range []string{"be/a", "be/b"} {
		b.write(p, "cpu.stat", "usage_usec 1000001")
		b.write(p, "memory.current", "4000")
	}
	if got, _ := b.memory(time.Second, false); got != [4]unit.Bytes{5000, 5000, 5000} {
		t.Errorf("the files of workloads that slept were read: %v", got)
	}
	// If the counter of the parent is missing, the counter of each workload
	// decides.
	if err := os.Remove(b.file("be/cpu.stat")); err != nil {
		t.Fatal(err)
	}
	b.tree.Close("be")
	if got, _ := b.memory(time.Second, false); got != [4]unit.Bytes{4000, 4000, 5000} {
		t.Errorf("without the counter of the parent: %v", got)
	}
}

// TestACounterThatCouldNotBeReadIsReadAgain checks a sleeping workload whose
// counter could not be read once. It must be read again, so that the workload
// has a CPU time.
func TestACounterThatCouldNotBeReadIsReadAgain(t *testing.T) {
	b := newSleepersBench(t)
	if err := os.Remove(b.file("be/a/cpu.stat")); err != nil {
		t.Fatal(err)
	}
	used := func() (known bool) {
		b.at = b.at.Add(time.Second)
		b.Workloads(b.at, b.list, false, func(w *node.Workload, u *node.Usage, _ bool) { known = known || w.ID == "be/a" && u.CPU.Known() })
		return known
	}
	if used() {
		t.Fatal("the CPU time is known without its file")
	}
	b.write("be/a", "cpu.stat", "usage_usec 1000000")
	if !used() {
		t.Error("the CPU time of a workload that sleeps is unknown, although its file can be read again")
	}
}

// TestAnotherListIsReadWhole adds and removes cgroups. After each change the
// counters of all services must be read.
func TestAnotherListIsReadWhole(t *testing.T) {
	b := newSleepersBench(t)
	b.memory(0, false)
	b.write("be/a", "memory.current", "4000")
	if err := os.RemoveAll(b.file("be/b")); err != nil {
		t.Fatal(err)
	}
	b.list = append([]node.Workload(nil), b.list...)
	b.tree.Close("be/b")
	if got, gone := b.memory(time.Second, false); got != [4]unit.Bytes{4000, -1, 5000} || gone != 1 {
		t.Errorf("%v, %d are gone, want one", got, gone)
	}
}

// TestWorkThatStaysIsNotReadAgain adds a workload while two best-effort
// workloads sleep. Of these, only the counters of the new one must be read. A
// service is always read. The sleepers are read after they have run, or when it
// is their turn.
func TestWorkThatStaysIsNotReadAgain(t *testing.T) {
	b := newSleepersBench(t)
	b.list[0].Class, b.list[1].Class = node.BE, node.BE
	b.memory(0, false)
	for _, p := range []string{"be/a", "be/b", "ls/web"} {
		b.write(p, "memory.current", "4000")
	}
	b.write("be/c", "cpu.stat", "usage_usec 1000000")
	b.write("be/c", "memory.current", "7000")
	b.list = append(b.list[:len(b.list):len(b.list)], node.Workload{ID: "be/c", Class: node.BE, Cgroup: "be/c"})
	want := func(when string, after time.Duration, want [4]unit.Bytes) {
		t.Helper()
		if got, _ := b.memory(after, false); got != want {
			t.Errorf("%s the memory is %v, want %v", when, got, want)
		}
	}
	want("after one came", time.Second, [4]unit.Bytes{5000, 5000, 4000, 7000})
	b.write("be", "cpu.stat", "usage_usec 2000001")
	b.write("be/b", "cpu.stat", "usage_usec 1000001")
	want("after b ran", time.Second, [4]unit.Bytes{5000, 4000, 4000, 7000})
	want("within the time of slow counters", slowWithin, [4]unit.Bytes{4000, 4000, 4000, 7000})
	if err := os.RemoveAll(b.file("be/a")); err != nil {
		t.Fatal(err)
	}
	b.tree.Close("be/a")
	if got, gone := b.memory(slowWithin, false); gone != 1 || got[0] != -1 {
		t.Errorf("the memory is %v, and %d groups are gone, want one", got, gone)
	}
}

// file returns the path of a file of a cgroup.
func (b *sleepersBench) file(name string) string {
	return filepath.Join(filepath.Dir(b.fs.Proc), "v2", name)
}
