package seat

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// machine returns a topology with two CPUs in each core, and eight CPUs in each
// L3 cache.
func machine(cpus int) node.Topology {
	var t node.Topology
	for c := range cpus {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 8)})
	}
	return t
}

// input returns an Input with one workload for each limit. Each may use all
// CPUs.
func input(cpus int, limits ...unit.MilliCPU) Input {
	in := Input{Config: Config{Enable: true}, May: map[node.WorkloadID]unit.CPUSet{}, Snap: node.Snapshot{At: time.Unix(1000, 0), Topology: machine(cpus)}}
	for i, m := range limits {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprintf("w%03d", i)), Class: node.BE, CPULimit: node.Some(m)}
		w.Cgroup = node.CgroupPath(w.ID)
		in.Snap.Workloads = append(in.Snap.Workloads, w)
		in.May[w.ID] = in.Snap.Topology.All()
	}
	return in
}

func TestSeatsOfOneWorkloadShareACache(t *testing.T) {
	_, grants := State{}.Decide(input(32, 4000))
	g := grants["w000"]
	caches, cores := map[int]bool{}, map[int]bool{}
	for c := range g.CPUs.All() {
		caches[int(c)/8], cores[int(c)/2] = true, true
	}
	if g.CPUs.Len() != 4 || len(caches) != 1 || len(cores) != 4 || !g.Full {
		t.Errorf("%+v: want 4 cores of one L3 cache", g)
	}
}

func TestALimitThatIsNotWholeKeepsItsQuota(t *testing.T) {
	_, grants := State{}.Decide(input(8, 1500, 500))
	if g := grants["w000"]; g.CPUs.Len() != 2 || g.Full {
		t.Errorf("1500m has %+v, want 2 seats and the quota", g)
	}
	if g := grants["w001"]; g.CPUs.Len() != 1 || g.Full {
		t.Errorf("500m has %+v, want 1 seat and the quota", g)
	}
}

// TestTheLargestLimitIsALimit checks work whose limit is so large that it means no
// limit. It demands all CPUs that it may use, beside work with a small limit.
func TestTheLargestLimitIsALimit(t *testing.T) {
	for limit, want := range map[unit.MilliCPU]bool{7000: false, 8000: true, 1e15: true, math.MaxInt64: true} {
		st, grants := State{}.Decide(input(8, limit, 1000))
		if st.Sharing != want {
			t.Errorf("limits of %v and 1000m on 8 CPUs: all share the CPUs is %v, want %v: %s", limit, st.Sharing, want, grants["w000"].How)
		}
	}
	if _, grants := (State{}).Decide(input(8, math.MaxInt64)); grants["w000"].CPUs.Len() != 8 || !grants["w000"].Full {
		t.Errorf("alone it has %+v, want all 8 CPUs", grants["w000"])
	}
}

func TestOnlyBatchWorkWithALimitHasSeats(t *testing.T) {
	in := input(8, 1000, 1000, 1000)
	in.Snap.Workloads[0].Class = node.LS
	in.Snap.Workloads[1].CPULimit = node.Maybe[unit.MilliCPU]{}
	_, grants := State{}.Decide(in)
	if len(grants) != 1 || grants["w002"].CPUs.Len() != 1 {
		t.Errorf("%+v", grants)
	}
	in.Enable = false
	if st, grants := (State{Sharing: true}).Decide(in); grants != nil || st.Sharing {
		t.Errorf("off: %+v %+v", st, grants)
	}
}

func TestThePoolEndsOnlyAfterAWhileWithRoom(t *testing.T) {
	st, _ := State{}.Decide(input(20, 12000, 12000))
	if !st.Sharing {
		t.Fatal("24 CPUs of 20 share no CPUs")
	}
	full := input(20, 12000, 8000) // the workloads fit, but less than a tenth is left
	for i := range 60 {
		full.Snap.At = time.Unix(int64(2000+i), 0)
		if st, _ = st.Decide(full); !st.Sharing {
			t.Fatal("the sharing ended without room")
		}
	}
	some := input(20, 12000, 6000)
	for i := range 11 {
		some.Snap.At = time.Unix(int64(3000+i), 0)
		if st, _ = st.Decide(some); st.Sharing != (i < 10) {
			t.Errorf("after %d s sharing: %v", i, st.Sharing)
		}
	}
}

// putInSlices puts the workloads of an input into slices, in turn.
func putInSlices(in Input, all ...worker.Slice) Input {
	for i := range in.Snap.Workloads {
		w := &in.Snap.Workloads[i]
		w.Rule, w.CPULimit = all[i%len(all)].Name, node.Maybe[unit.MilliCPU]{}
	}
	for _, s := range all {
		s.Rules = []string{s.Name}
		in.Slices = append(in.Slices, s)
	}
	in.Enable = false
	return in
}

// TestAWorkerKeepsItsCPUsWhenItsSizeChanges checks a worker that becomes
// smaller and larger. It must lose some of its CPUs, or get others in addition.
func TestAWorkerKeepsItsCPUsWhenItsSizeChanges(t *testing.T) {
	sized := func(n int) Input { return putInSlices(input(32, 1, 1), worker.Slice{Name: "enc", CPUs: n, Count: 1}) }
	st, grants := State{}.Decide(sized(4))
	first := grants["w000"].CPUs
	if first.Len() != 4 || grants["w001"].CPUs != first || grants["w000"].Full {
		t.Fatalf("%+v: want 4 CPUs for both, without a say about quotas", grants)
	}
	for _, n := range []int{2, 7, 1, 4, 16} {
		before := grants["w000"].CPUs
		st, grants = st.Decide(sized(n))
		now := grants["w000"].CPUs
		if now.Len() != n || !now.Contains(before) && !before.Contains(now) {
			t.Errorf("from %v to %d CPUs: %v", before, n, now)
		}
	}
	st, grants = st.Decide(sized(33))
	if grants["w000"].CPUs.Len() != 32 {
		t.Errorf("more CPUs than there are: %+v, want all", grants["w000"])
	}
	if got := st.Slices(sized(33).Config); len(got) != 1 || len(got[0].Workers[0].Work) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestWorkersThatDoNotFitShare(t *testing.T) {
	in := putInSlices(input(8, 1, 1, 1), worker.Slice{Name: "enc", CPUs: 3, Count: 3})
	st, grants := State{}.Decide(in)
	if !st.Sharing || !grants["w000"].CPUs.Empty() || !strings.Contains(grants["w000"].How, "work in slices demands 9 CPUs and may use 8 CPUs: all share them") {
		t.Errorf("%+v, %+v", st, grants)
	}
	if got := st.Slices(in.Config); len(got[0].Workers[2].Work) != 1 || !got[0].Workers[2].CPUs.Empty() {
		t.Errorf("%+v: the work stays in its workers, which have no CPUs", got)
	}
}

// BenchmarkDecideSlices is a tick of a node with 256 CPUs and 100 workloads in
// fifty workers.
func BenchmarkDecideSlices(b *testing.B) {
	limits := make([]unit.MilliCPU, 100)
	in := putInSlices(input(256, limits...), worker.Slice{Name: "a", CPUs: 4, Count: 25}, worker.Slice{Name: "b", CPUs: 5, Count: 25})
	st, _ := State{}.Decide(in)
	if st.Sharing || len(st.Workers) != 50 {
		b.Fatalf("%d workers have CPUs, want 50", len(st.Workers))
	}
	b.ReportAllocs()
	for b.Loop() {
		st, _ = st.Decide(in)
	}
}

// TestSlicesAllocateNoMoreInEachTick checks that the memory that a tick
// allocates does not grow with the number of ticks before it.
func TestSlicesAllocateNoMoreInEachTick(t *testing.T) {
	limits := make([]unit.MilliCPU, 100)
	in := putInSlices(input(256, limits...), worker.Slice{Name: "a", CPUs: 4, Count: 25}, worker.Slice{Name: "b", CPUs: 5, Count: 25})
	st, _ := State{}.Decide(in)
	count := func() float64 { return testing.AllocsPerRun(20, func() { st, _ = st.Decide(in) }) }
	first := count()
	for range 500 {
		st, _ = st.Decide(in)
	}
	if last := count(); last > first {
		t.Errorf("%g allocations in a tick after 500 ticks, %g at first", last, first)
	}
}

// BenchmarkDecide measures a tick of a node with 256 CPUs and 100 workloads
// with seats.
func BenchmarkDecide(b *testing.B) {
	var limits []unit.MilliCPU
	for i := range 100 {
		limits = append(limits, unit.CPUs(1+i%3))
	}
	in := input(256, limits...)
	st, _ := State{}.Decide(in)
	b.ReportAllocs()
	for b.Loop() {
		st, _ = st.Decide(in)
	}
}
