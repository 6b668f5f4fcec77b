package place

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// machine returns a topology of nodes × caches × cores × threads.
func machine(nodes, caches, cores, threads int) node.Topology {
	var t node.Topology
	for c := range nodes * caches * cores * threads {
		l3 := c / threads / cores
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(c / threads), L3: node.CacheID(l3), NUMA: node.NUMANode(l3 / caches), Socket: node.SocketID(l3 / caches),
		})
	}
	return t
}

func own(n int) cpus.PodRequest {
	return cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: n}}
}

func TestAReservationKeepsItsCPUs(t *testing.T) {
	l := New()
	if _, why := l.Assume(Pod{"a", own(2)}, "n"); why != cpus.NoReport {
		t.Errorf("without a report: %q", why)
	}
	l.Learn("n", Report{Topology: machine(1, 2, 2, 2), Keep: 1})
	a, why := l.Assume(Pod{"a", own(4)}, "n")
	if why != cpus.Fits || a.CPUs.Len() != 4 {
		t.Fatalf("%v: %q", a, why)
	}
	if _, why := l.Assume(Pod{"b", own(4)}, "n"); why == cpus.Fits {
		t.Error("no CPU is left open")
	}
	if node, is := l.Doubt("a"); !is || node != "n" {
		t.Errorf("the bind is in doubt: %v on %q", is, node)
	}
	if b, why := l.Assume(Pod{"b", own(2)}, "n"); why != cpus.Fits || !b.CPUs.Intersect(a.CPUs).Empty() {
		t.Errorf("beside a doubtful pod: %v: %q", b.CPUs, why)
	}
	l.Forget("a")
	if !l.View("n").Has("a") {
		t.Error("a doubt ends with a release")
	}
	if !l.ForgetDoubt("a", "n") || l.ForgetDoubt("b", "n") || l.ForgetDoubt("a", "n") {
		t.Error("only a was in doubt, and once")
	}
	if v := l.View("n"); v.Has("a") || !v.Has("b") {
		t.Errorf("after the doubt: %v", v.Holds())
	}
	l.Forget("b")
	l.Confirm(Pod{"a", own(4)}, "n", a.Choice)
	l.Forget("a")
	if !l.View("n").Has("a") {
		t.Error("a bound pod was released")
	}
	l.RemovePod("a")
	if got := l.View("n").Open().Len(); got != 8 {
		t.Errorf("%d CPUs are open on the empty node", got)
	}
}

// TestARetryDoesNotEndADoubt schedules a pod whose bind may have happened again,
// on the same node and on another one.
func TestARetryDoesNotEndADoubt(t *testing.T) {
	for name, x := range map[string]struct {
		retry string
		end   func(l *Ledger, first, second Contract)
		want  string
	}{
		"the retry on the same node is not bound": {"n", func(l *Ledger, _, _ Contract) { l.Forget("a") }, "n [a] m []"},
		"its bind is in doubt, too":               {"n", func(l *Ledger, _, _ Contract) { l.Doubt("a") }, "n [a] m []"},
		"it was the first bind that happened":     {"n", func(l *Ledger, first, _ Contract) { l.Confirm(Pod{"a", own(2)}, "n", first.Choice) }, "n [a] m []"},
		"the doubt ends during the retry":         {"n", func(l *Ledger, _, _ Contract) { l.ForgetDoubt("a", "n"); l.Forget("a") }, "n [] m []"},
		"the retry elsewhere is not bound":        {"m", func(l *Ledger, _, _ Contract) { l.Forget("a") }, "n [a] m []"},
		"the bind elsewhere is in doubt, too":     {"m", func(l *Ledger, _, _ Contract) { l.Doubt("a") }, "n [a] m [a]"},
		"the first bind happened":                 {"m", func(l *Ledger, first, _ Contract) { l.Confirm(Pod{"a", own(2)}, "n", first.Choice) }, "n [a] m []"},
		"the second bind happened":                {"m", func(l *Ledger, _, second Contract) { l.Confirm(Pod{"a", own(2)}, "m", second.Choice) }, "n [] m [a]"},
		"the pod is gone":                         {"m", func(l *Ledger, _, _ Contract) { l.RemovePod("a") }, "n [] m []"},
		"one node is gone":                        {"m", func(l *Ledger, _, _ Contract) { l.RemoveNode("n"); l.Learn("n", Report{Topology: machine(1, 1, 2, 2)}) }, "n [] m [a]"},
	} {
		l := New()
		for _, node := range []string{"n", "m"} {
			l.Learn(node, Report{Topology: machine(1, 1, 2, 2)})
		}
		l.Assume(Pod{"there", own(2)}, "n")
		first, _ := l.Assume(Pod{"a", own(2)}, "n")
		l.Doubt("a")
		second, why := l.Assume(Pod{"a", own(2)}, x.retry)
		if why != cpus.Fits || x.retry == "n" && !first.Equal(&second.Choice) {
			t.Fatalf("%s: %v after %v: %q", name, second, first, why)
		}
		l.RemovePod("there")
		x.end(l, first, second)
		if got := fmt.Sprintf("n %v m %v", uids(l.View("n")), uids(l.View("m"))); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
		likeNew(t, l, "n")
		likeNew(t, l, "m")
	}
}

// TestARetryForOtherCPUsReplacesTheDoubt changes the demand of a pod whose bind
// is in doubt, and then the hardware of the node.
func TestARetryForOtherCPUsReplacesTheDoubt(t *testing.T) {
	l := New()
	l.Learn("n", Report{Topology: machine(1, 1, 2, 2)})
	l.Assume(Pod{"a", own(2)}, "n")
	l.Doubt("a")
	if c, why := l.Assume(Pod{"a", own(3)}, "n"); why != cpus.Fits || c.CPUs.Len() != 3 || len(l.Doubts("a")) > 0 {
		t.Errorf("for another demand: %v %q; doubts on %v", c.CPUs, why, l.Doubts("a"))
	}
	l.Doubt("a")
	l.Learn("n", Report{Topology: machine(1, 1, 4, 1)})
	if c, why := l.Assume(Pod{"a", own(3)}, "n"); why != cpus.Fits || c.Topology != l.View("n").Map().Hash() {
		t.Errorf("on other hardware: %v %q", c, why)
	}
	l.Doubt("a")
	l.CloseNode("n", cpus.Stale)
	if _, why := l.Assume(Pod{"a", own(3)}, "n"); why != cpus.Stale || fmt.Sprint(l.Doubts("a")) != "[n]" {
		t.Errorf("with an old report: %q; doubts on %v", why, l.Doubts("a"))
	}
}

func uids(v *View) []UID {
	return append([]UID{}, slices.Sorted(maps.Keys(v.Holds()))...)
}

// TestTheReportCountsBeforeTheContract uses a node that did not follow a
// contract.
func TestTheReportCountsBeforeTheContract(t *testing.T) {
	l := New()
	topo := machine(1, 2, 2, 2)
	l.Learn("n", Report{Topology: topo})
	a, _ := l.Assume(Pod{"a", own(2)}, "n")
	l.Confirm(Pod{"a", own(2)}, "n", a.Choice)
	other := l.View("n").Open().Minus(unit.CPUSetOf(0, 2, 3, 4, 5))
	l.Learn("n", Report{Topology: topo, Pods: map[UID]cpus.Allocation{"a": {Policy: cpus.Exclusive, CPUs: other}}})
	if open := l.View("n").Open(); open != topo.All().Minus(other) {
		t.Errorf("open: %v; the node says that %v are not", open, other)
	}
	l.RemovePod("a")
	if open := l.View("n").Open(); open != topo.All() {
		t.Errorf("the report is older than the end of the pod, and %v are open", open)
	}
	l.Learn("n", Report{Topology: topo, Manager: "static"})
	if _, why := l.Assume(Pod{"b", own(1)}, "n"); why != cpus.OtherManager {
		t.Errorf("beside the kubelet's static policy: %q", why)
	}
}

// TestAReportedPodMakesNoViewAnew releases a reservation on a node with a pod
// that has no contract. After the node has reported the pod, other pods do not
// depend on the node's choice, so the ledger must return to the earlier view.
func TestAReportedPodMakesNoViewAnew(t *testing.T) {
	l, r := New(), Report{Topology: machine(1, 2, 4, 2)}
	l.Learn("n", r)
	l.Confirm(Pod{"bound", own(2)}, "n", cpus.Choice{})
	same := func() bool {
		before := l.View("n")
		if _, why := l.Assume(Pod{"new", own(4)}, "n"); why != cpus.Fits {
			t.Fatal(why)
		}
		l.Forget("new")
		likeNew(t, l, "n")
		return l.View("n") == before
	}
	if same() {
		t.Error("the choice of the node depends on the other pods")
	}
	r.Pods = map[UID]cpus.Allocation{"bound": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(6, 7)}}
	l.Learn("n", r)
	if !same() {
		t.Error("the node has chosen, and the view was made anew")
	}
	l.Learn("n", Report{Topology: r.Topology})
	if same() {
		t.Error("the node reports the pod no more")
	}
	l.RemovePod("bound")
	if !same() {
		t.Error("the pod is gone")
	}
}

// TestPreemptionSeesFreedCPUs removes one of two pods from a copy of a full
// node, as preemption does. In the copy, the CPUs of the pod must be free. In
// the ledger, they must stay taken.
func TestPreemptionSeesFreedCPUs(t *testing.T) {
	l := New()
	l.Learn("n", Report{Topology: machine(1, 1, 4, 2)})
	for i := range 2 {
		p := Pod{UID(fmt.Sprint(i)), own(4)}
		c, why := l.Assume(p, "n")
		if why != cpus.Fits {
			t.Fatal(why)
		}
		l.Confirm(p, "n", c.Choice)
	}
	d := own(3)
	v := l.View("n")
	if v.Room(&d) == cpus.Fits || v.Without("0").Room(&d) != cpus.Fits || v.Without("0").With(Pod{"0", own(4)}, cpus.Choice{}).Room(&d) == cpus.Fits {
		t.Error("the view without a victim does not show its CPUs")
	}
}

// TestAContractForOtherHardwareIsNotFollowed starts a node again with half of its
// CPUs. The agent does not follow the contracts for the other hardware, and its
// first report lacks pods that have not started again. The ledger must keep CPUs for
// them, until the report says which.
func TestAContractForOtherHardwareIsNotFollowed(t *testing.T) {
	l := New()
	l.Learn("n", Report{Topology: machine(1, 2, 2, 2), Keep: 1})
	pod := Pod{"a", own(2)}
	a, _ := l.Assume(pod, "n")
	l.Confirm(pod, "n", a.Choice)
	half := Report{Topology: machine(1, 1, 2, 2), Keep: 1}
	l.Learn("n", half)
	if has := l.View("n").Holds()["a"].CPUs; has.Len() != 2 || !half.Topology.All().Contains(has) {
		t.Errorf("on the other hardware a has %v", has)
	}
	if b, why := l.Assume(Pod{"b", own(2)}, "n"); why != cpus.LastOpen {
		t.Errorf("beside a: %v, %v", b.CPUs, why)
	}
	half.Pods = map[UID]cpus.Allocation{"a": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0, 1)}}
	l.Learn("n", half)
	if b, why := l.Assume(Pod{"b", own(1)}, "n"); why != cpus.Fits || !unit.CPUSetOf(2, 3).Contains(b.CPUs) {
		t.Errorf("beside the reported pod: %v, %v", b.CPUs, why)
	}
	l.RemovePod("a")
	l.RemovePod("b")
	if open := l.View("n").Open(); open != half.Topology.All() {
		t.Errorf("without pods %v are open", open)
	}
}

// TestAContractHasTheSetsOfContainers checks how a contract divides the CPUs of
// a pod among its containers.
func TestAContractHasTheSetsOfContainers(t *testing.T) {
	l := New()
	l.Learn("n", Report{Topology: machine(2, 2, 2, 2)})
	d := own(6)
	d.Containers, d.Memory = []cpus.ContainerRequest{{Name: "a", CPUs: 4}, {Name: "b", CPUs: 2}}, 600
	c, why := l.Assume(Pod{"p", d}, "n")
	if why != cpus.Fits {
		t.Fatal(why)
	}
	a, b := c.Containers["a"], c.Containers["b"]
	if a.Len() != 4 || b.Len() != 2 || a.Union(b) != c.CPUs {
		t.Errorf("a has %v and b has %v of %v", a, b, c.CPUs)
	}
	if len(c.Nodes) != 1 || c.Nodes[0].CPU != unit.CPUs(6) || c.Nodes[0].Memory != 600 {
		t.Errorf("shares: %+v", c.Nodes)
	}
}

// TestALedgerRebuiltIsTheSame compares two ledgers. One has a random history,
// and the other learns only the final pods and reports. The reports of the
// history give each pod the CPUs of its contract, refuse it, or omit it as a new
// one.
func TestALedgerRebuiltIsTheSame(t *testing.T) {
	rnd, refused := rand.New(rand.NewPCG(51, 52)), 0
	for try := range 60 {
		topo := machine(1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(2))
		l, r := New(), Report{Topology: topo, Keep: 1}
		l.Learn("n", r)
		alive, slots := map[UID]Pod{}, [12]UID{}
		for i := range 40 {
			slot := rnd.IntN(len(slots))
			uid := slots[slot]
			if rnd.IntN(5) == 0 {
				var omitted bool
				r, omitted = anyReport(rnd, l, topo, alive)
				l.Learn("n", r)
				if !omitted {
					checkOwners(t, l.View("n"))
				}
				refused += refusals(r)
			}
			switch _, there := alive[uid]; {
			case there && rnd.IntN(2) == 0:
				l.RemovePod(uid)
				delete(alive, uid)
			case !there:
				uid = UID(fmt.Sprint("p", i)) // no pod has the UID of an earlier one
				slots[slot] = uid
				d := own(1 + rnd.IntN(4))
				d.Policy, d.Exclusive = cpus.Policy(1+rnd.IntN(3)), cpus.ExclusivePolicy(rnd.IntN(3))
				if d.Policy != cpus.Exclusive {
					d.CPU = unit.MilliCPU(rnd.IntN(3000))
				}
				p := Pod{uid, d}
				if c, why := l.Assume(p, "n"); why == cpus.Fits {
					if i%3 == 0 {
						l.Forget(uid)
						continue
					}
					l.Confirm(p, "n", c.Choice)
					alive[uid] = p
				}
			}
			likeNew(t, l, "n")
		}
		for name, order := range map[string][]bool{"pods first": {true, false}, "report first": {false, true}} {
			again := New()
			for _, pods := range order {
				if !pods {
					again.Learn("n", r)
					continue
				}
				for uid, p := range alive {
					c, _, _ := l.Contract(uid)
					again.Confirm(p, "n", c.Choice)
				}
			}
			for uid, h := range r.Pods {
				if _, there := alive[uid]; !there && !h.CPUs.Empty() {
					again.RemovePod(uid)
					again.nodes["n"].gone[uid], again.nodes["n"].view = true, nil // a new process counts it until the next report
				}
			}
			if a, b := fmt.Sprint(l.View("n").Holds()), fmt.Sprint(again.View("n").Holds()); a != b {
				t.Fatalf("try %d: %s\nrebuilt, %s: %s", try, a, name, b)
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d pods were refused", refused)
	}
}

// refusals counts the pods to which a node gave no CPUs.
func refusals(r Report) (n int) {
	for _, a := range r.Pods {
		if a.CPUs.Empty() {
			n++
		}
	}
	return n
}

// anyReport returns a report about bound pods. The node gives CPUs to no two
// pods, and refuses some pods for another reason. The result is true if the
// report omits a pod.
func anyReport(rnd *rand.Rand, l *Ledger, topo node.Topology, pods map[UID]Pod) (Report, bool) {
	r, omitted, taken := Report{Topology: topo, Keep: 1, Pods: map[UID]cpus.Allocation{}}, false, unit.CPUSet{}
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		c, _, _ := l.Contract(uid)
		h := c.Allocation(pods[uid].Request.Request)
		switch at := rnd.IntN(4); {
		case at == 0:
			omitted = true
		case at == 1 || h.Policy == cpus.Exclusive && !h.CPUs.Intersect(taken).Empty():
			r.Pods[uid] = cpus.Allocation{}
		default:
			if h.Policy == cpus.Exclusive {
				taken = taken.Union(h.CPUs)
			}
			r.Pods[uid] = h
		}
	}
	return r, omitted
}

// likeNew checks the present view. The ledger derived it from an earlier one,
// and it must equal a view that is made from all pods.
func likeNew(t *testing.T, l *Ledger, node string) {
	t.Helper()
	made, anew := l.View(node), l.nodes[node].look()
	if !reflect.DeepEqual(made, anew) {
		t.Fatalf("the view is %+v\nmade anew: %+v", made, anew)
	}
}

// TestAViewIsTheSameHoweverItWasMade calls the methods of a ledger in random
// order. The calls include reports that have, refuse or omit pods, contracts that do not
// match their demand, doubts, and the ends of pods that a report still
// contains.
func TestAViewIsTheSameHoweverItWasMade(t *testing.T) {
	rnd := rand.New(rand.NewPCG(61, 62))
	for range 150 {
		anyTopology := func() node.Topology { return machine(1+rnd.IntN(2), 1+rnd.IntN(3), 2+rnd.IntN(3), 1+rnd.IntN(2)) }
		topo := anyTopology()
		l := New()
		for _, at := range []string{"n", "m"} {
			l.Learn(at, Report{Topology: topo, Keep: 1})
		}
		for range 60 {
			if rnd.IntN(30) == 0 { // a node that reports next has other hardware
				topo = anyTopology()
			}
			at := []string{"n", "m"}[rnd.IntN(2)]
			uid := UID(fmt.Sprint(rnd.IntN(8)))
			d := own(1 + rnd.IntN(3))
			if d.Policy = cpus.Policy(1 + rnd.IntN(3)); d.Policy != cpus.Exclusive {
				d.CPU = unit.MilliCPU(rnd.IntN(1500))
			}
			d.Exclusive = cpus.ExclusivePolicy(rnd.IntN(3))
			p := Pod{uid, d}
			switch rnd.IntN(11) {
			case 0, 1:
				l.Assume(p, at)
			case 2:
				l.Forget(uid)
			case 3:
				l.Doubt(uid)
			case 4:
				l.RemovePod(uid)
			case 5:
				if e := l.pods[uid]; e != nil {
					l.Confirm(e.pod, e.node, e.contract.Choice)
				}
			case 6:
				l.Confirm(p, at, cpus.Choice{})
			case 7:
				r := Report{Topology: topo, Keep: 1, Pods: map[UID]cpus.Allocation{}}
				for uid, h := range l.View(at).Holds() {
					switch rnd.IntN(3) {
					case 0:
						r.Pods[uid] = h
					case 1:
						r.Pods[uid] = cpus.Allocation{}
					}
				}
				for uid, e := range l.pods {
					if e.node == at && rnd.IntN(4) == 0 { // it may hold nothing now
						r.Pods[uid] = cpus.Allocation{}
					}
				}
				l.Learn(at, r)
			case 8:
				l.ForgetDoubt(uid, at)
			case 10:
				l.Forgo(uid)
			case 9:
				if e := l.findDoubt(uid, at); e != nil {
					if rnd.IntN(2) == 0 {
						l.Assume(e.pod, at)
					} else {
						l.Confirm(e.pod, at, e.contract.Choice)
					}
				}
			}
			likeNew(t, l, "n")
			likeNew(t, l, "m")
		}
	}
}

// BenchmarkReserve reserves CPUs on a node of 256 CPUs, about half of which are
// taken. The pods can be anywhere, or keep to cores of their own.
func BenchmarkReserve(b *testing.B) {
	for name, apart := range map[string]cpus.ExclusivePolicy{"anywhere": cpus.NotExclusive, "apart": cpus.PCPULevel} {
		l := New()
		l.Learn("n", Report{Topology: machine(2, 8, 8, 2), Keep: 1})
		pod := func(uid UID, cpus int) Pod {
			p := Pod{uid, own(cpus)}
			p.Request.Exclusive = apart
			return p
		}
		for i := range 32 {
			l.Assume(pod(UID(fmt.Sprint("p", i)), 1+i%8), "n")
		}
		p := pod("x", 4)
		bind := func() {
			c, _, _ := l.Contract("x")
			l.Confirm(p, "n", c.Choice)
			l.RemovePod("x")
		}
		for end, after := range map[string]func(){
			"and release":    func() { l.Forget("x") },
			"bound and gone": bind,
		} {
			b.Run(name+" "+end, func(b *testing.B) {
				b.ReportAllocs()
				defer reportCPU(b)()
				for b.Loop() {
					if _, why := l.Assume(p, "n"); why != cpus.Fits {
						b.Fatal(why)
					}
					after()
					l.View("n")
				}
			})
		}
	}
}

// reportCPU adds the CPU time per operation to the results of a benchmark,
// because on a busy machine the elapsed time says little. The caller calls the
// returned function at the end.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}
