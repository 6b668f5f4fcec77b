package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const gib = unit.Bytes(1 << 30)

func amount(milli unit.MilliCPU, memory unit.Bytes) share.Amount {
	return share.Amount{CPU: milli, Memory: memory}
}

// caseOf returns a case with nodes that have this room, all in one place.
func caseOf(free ...share.Amount) Case {
	c := Case{Places: [][]int{nil}}
	for i, f := range free {
		c.Nodes = append(c.Nodes, Node{Name: fmt.Sprint("n", i), Free: f})
		c.Places[0] = append(c.Places[0], i)
		c.Room = c.Room.Plus(f)
	}
	return c
}

func podOf(name string, asks share.Amount) Pod {
	return Pod{UID: name, Namespace: "batch", Name: name, Asks: asks, Created: noon}
}

// fails reports whether a scheduler can choose nodes for the pods, in any order, so
// that one of them has none in the end.
func fails(c Case, free []share.Amount, pods []Pod) bool {
	for i, p := range pods {
		rest := slices.Delete(slices.Clone(pods), i, i+1)
		found := false
		for _, n := range c.Places[p.Place] {
			if !p.Asks.FitsIn(free[n]) {
				continue
			}
			found = true
			next := slices.Clone(free)
			next[n] = next[n].Minus(p.Asks)
			if fails(c, next, rest) {
				return true
			}
		}
		if !found {
			return true
		}
	}
	return false
}

// TestNoChoiceOfTheSchedulerLeavesAPodWithoutANode tries all that a scheduler can do
// with the pods that a decision lets through, in small random clusters. It also counts
// that decisions let several pods through at once.
func TestNoChoiceOfTheSchedulerLeavesAPodWithoutANode(t *testing.T) {
	rnd := rand.New(rand.NewPCG(47, 2))
	several := 0
	for round := range 2000 {
		var free []share.Amount
		for range 1 + rnd.IntN(3) {
			free = append(free, amount(unit.MilliCPU(rnd.IntN(12)), unit.Bytes(rnd.IntN(12))))
		}
		c := caseOf(free...)
		c.Places = append(c.Places, nil)
		for i := range free {
			if rnd.IntN(2) == 0 {
				c.Places[1] = append(c.Places[1], i)
			}
		}
		for i := range 5 {
			p := podOf(fmt.Sprint(i), amount(unit.MilliCPU(rnd.IntN(6)), unit.Bytes(rnd.IntN(6))))
			p.Place = rnd.IntN(2)
			c.Waiting = append(c.Waiting, p)
		}
		a := Decide(c)
		var open []Pod
		for _, i := range a.Open {
			open = append(open, c.Waiting[i])
		}
		if len(open) > 1 {
			several++
		}
		if fails(c, free, open) {
			t.Fatalf("round %d: nodes %+v, places %v: one of %+v can be left without a node", round, free, c.Places, open)
		}
	}
	if several < 500 {
		t.Errorf("only %d decisions let several pods through", several)
	}
}

// TestNothingWaitsWhileItFits checks a pod that nothing has been let through before: it
// waits only if no node has room.
func TestNothingWaitsWhileItFits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(47, 3))
	for range 2000 {
		var free []share.Amount
		for range rnd.IntN(4) {
			free = append(free, amount(unit.MilliCPU(rnd.IntN(12)), unit.Bytes(rnd.IntN(12))))
		}
		c := caseOf(free...)
		c.Waiting = []Pod{podOf("p", amount(unit.MilliCPU(rnd.IntN(12)), unit.Bytes(rnd.IntN(12))))}
		fits := slices.ContainsFunc(free, c.Waiting[0].Asks.FitsIn)
		a := Decide(c)
		want := map[bool]Code{true: NoRoom}[!fits]
		if len(free) == 0 {
			want = NoNode
		}
		if a.Waits[0].Code != want || (len(a.Open) == 1) != fits {
			t.Fatalf("%+v in %+v: %q, want %q", c.Waiting[0].Asks, free, a.Waits[0].Code, want)
		}
	}
}

// TestTwoPodsDoNotGetOneHole checks the room that is held for a pod without a node.
func TestTwoPodsDoNotGetOneHole(t *testing.T) {
	c := caseOf(amount(4000, 8*gib))
	c.Waiting = []Pod{podOf("a", amount(3000, gib)), podOf("b", amount(3000, gib))}
	a := Decide(c)
	if !slices.Equal(a.Open, []int{0}) || a.Waits[1].Code != Assumed || a.Waits[1].Pods != 1 || a.Waits[1].Held != amount(3000, gib) {
		t.Errorf("%v is opened, the other waits for %+v", a.Open, a.Waits[1])
	}
	// In the next decision, the first pod has no node yet.
	c.Assumed, c.Waiting = c.Waiting[:1], c.Waiting[1:]
	if a := Decide(c); len(a.Open) > 0 || a.Waits[0].Code != Assumed {
		t.Errorf("%v is opened, it waits for %+v", a.Open, a.Waits[0])
	}
	// It is bound to another node, or gone.
	c.Assumed = nil
	if a := Decide(c); len(a.Open) != 1 {
		t.Errorf("the room is free, and it waits for %+v", a.Waits[0])
	}
}

// TestAPodThatFitsNowhereHoldsNothing begins with a pod whose gate is open and for which
// no node has room any more.
func TestAPodThatFitsNowhereHoldsNothing(t *testing.T) {
	c := caseOf(amount(4000, 8*gib))
	c.Assumed, c.Waiting = []Pod{podOf("large", amount(9000, gib))}, []Pod{podOf("b", amount(3000, gib))}
	if a := Decide(c); len(a.Open) != 1 {
		t.Errorf("it waits for %+v", a.Waits[0])
	}
}

// TestAPodThatIsLateHoldsItsRoomOnly has a pod that fits on one node only, and that no
// scheduler binds. Another one that might take the room of it waits at first. When the
// first pod is late, the other one goes, unless it fits on that node only.
func TestAPodThatIsLateHoldsItsRoomOnly(t *testing.T) {
	c := Case{Places: [][]int{{0}, {0, 1, 2, 3}}}
	for i := range 4 {
		free := share.Amount{CPU: 16_000, Memory: 1 << 36}
		if i == 0 {
			free.CPU = 3000
		}
		c.Nodes, c.Room = append(c.Nodes, Node{Name: fmt.Sprint("n", i), Free: free}), c.Room.Plus(free)
	}
	pinned := Pod{UID: "p", Namespace: "team", Name: "pinned", Asks: share.Amount{CPU: 2900, Memory: 1}, Place: 0}
	c.Assumed = []Pod{pinned}
	c.Waiting = []Pod{
		{UID: "a", Namespace: "shop", Name: "anywhere", Asks: share.Amount{CPU: 1000, Memory: 1}, Place: 1},
		{UID: "b", Namespace: "shop", Name: "there", Asks: share.Amount{CPU: 1000, Memory: 1}, Place: 0},
	}
	if a := Decide(c); len(a.Open) > 0 || a.Waits[0].Code != Assumed {
		t.Errorf("beside a pod that its scheduler may bind at any time: %+v", a)
	}
	c.Assumed[0].Late = true
	if a := Decide(c); !slices.Equal(a.Open, []int{0}) || a.Waits[1].Code != Assumed {
		t.Errorf("beside a pod that is late: %+v", a)
	}
}

// TestOnePodKeepsAnotherOffOneNodeOnly has a pod that no scheduler binds, and many nodes.
// A pod that needs all that a node has free gets through, until as many pods have no node
// as there are nodes.
func TestOnePodKeepsAnotherOffOneNodeOnly(t *testing.T) {
	c := caseOf(slices.Repeat([]share.Amount{amount(4000, 8*gib)}, 300)...)
	c.Assumed = []Pod{podOf("small", amount(1000, gib))}
	for i := range 301 {
		c.Waiting = append(c.Waiting, podOf(fmt.Sprintf("p%03d", i), amount(4000, gib)))
	}
	a := Decide(c)
	if len(a.Open) != 299 || a.Waits[299].Code != Assumed || a.Waits[299].Pods != 300 {
		t.Errorf("%d gates are opened, the next waits for %+v", len(a.Open), a.Waits[299])
	}
}

// TestThousandsOfRequestsAreDecidedInSeconds has 5,000 pods without a node and 5,000 that
// wait, all of which ask for something else, in one place and in many. Some are let
// through, and some are left for the next decision.
func TestThousandsOfRequestsAreDecidedInSeconds(t *testing.T) {
	for name, places := range map[string]int{"one place": 1, "places of their own": 5000} {
		rnd := rand.New(rand.NewPCG(47, 5))
		var free []share.Amount
		for range 300 {
			free = append(free, amount(unit.MilliCPU(4000+rnd.IntN(4000)), gib*unit.Bytes(8+rnd.IntN(8))))
		}
		c := caseOf(free...)
		for len(c.Places) < places {
			c.Places = append(c.Places, slices.DeleteFunc(slices.Clone(c.Places[0]), func(int) bool { return rnd.IntN(2) == 0 }))
		}
		for i := range 10_000 {
			p := podOf(fmt.Sprint(i), amount(unit.MilliCPU(1+i/2), gib/4+unit.Bytes(rnd.IntN(1<<28))))
			p.Place = i / 2 % places
			if i%2 == 0 {
				p.Asks = amount(p.Asks.CPU/50+1, p.Asks.Memory/8)
				c.Assumed = append(c.Assumed, p)
			} else {
				c.Waiting = append(c.Waiting, p)
			}
		}
		answer := make(chan Answer, 1)
		begun := time.Now()
		go func() { answer <- Decide(c) }()
		select {
		case a := <-answer:
			codes := map[Code]int{}
			for _, w := range a.Waits {
				codes[w.Code]++
			}
			if codes[""] < 50 || codes[Later] == 0 {
				t.Errorf("%s: %v", name, codes)
			}
			t.Logf("%s: %v, %v", name, time.Since(begun).Round(time.Millisecond), codes)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: no decision after 30 seconds", name)
		}
	}
}

// TestPoolsDoNotWaitForEachOther holds room in one place. A pod of another place does
// not wait for it.
func TestPoolsDoNotWaitForEachOther(t *testing.T) {
	c := caseOf(amount(4000, 8*gib), amount(4000, 8*gib))
	c.Places = [][]int{{0}, {1}}
	c.Assumed = []Pod{podOf("a", amount(3000, gib))}
	b := podOf("b", amount(3000, gib))
	b.Place = 1
	c.Waiting = []Pod{b, podOf("c", amount(3000, gib))}
	if a := Decide(c); !slices.Equal(a.Open, []int{0}) || a.Waits[1].Code != Assumed {
		t.Errorf("%v is opened, waits %+v", a.Open, a.Waits)
	}
}

// TestTheOrderIsPriorityThenAge has room for one pod.
func TestTheOrderIsPriorityThenAge(t *testing.T) {
	pod := func(name string, priority int32, age time.Duration) Pod {
		p := podOf(name, amount(1000, gib))
		p.Priority, p.Created = priority, noon.Add(-age)
		return p
	}
	for name, x := range map[string]struct {
		pods []Pod
		want int
	}{
		"the older":                {[]Pod{pod("a", 0, time.Second), pod("b", 0, time.Minute)}, 1},
		"the higher priority":      {[]Pod{pod("a", 0, time.Hour), pod("b", 5500, 0)}, 1},
		"the first name, if equal": {[]Pod{pod("b", 0, 0), pod("a", 0, 0)}, 1},
	} {
		c := caseOf(amount(1000, gib))
		c.Waiting = x.pods
		if a := Decide(c); !slices.Equal(a.Open, []int{x.want}) {
			t.Errorf("%s: %v is opened, want %d", name, a.Open, x.want)
		}
	}
}

// TestANamespaceKeepsToItsTerms checks caps, weights, and terms that have a fault.
func TestANamespaceKeepsToItsTerms(t *testing.T) {
	c := caseOf(amount(10_000, 100*gib))
	for i := range 20 {
		p := podOf(fmt.Sprint("p", i), amount(1000, gib))
		p.Namespace = []string{"a", "b", "c", "d"}[i%4]
		c.Waiting = append(c.Waiting, p)
	}
	late := podOf("late", amount(1000, gib))
	late.Namespace = "a"
	c.Assumed = []Pod{late}
	c.Namespaces = []Namespace{
		{Name: "a", Terms: share.Terms{Weight: 1, CPU: node.Some[unit.MilliCPU](2000)}},
		{Name: "b", Terms: share.Terms{Weight: 2}, Bound: amount(1000, gib)},
		{Name: "d", Terms: share.Terms{Weight: 1}, Unread: true},
	}
	a := Decide(c)
	got := map[string]int{}
	for _, i := range a.Open {
		got[c.Waiting[i].Namespace]++
	}
	// One of 10 CPUs is assumed. a may have one more. b and c share the rest by 2 to 1, and
	// b had one before: 5 more of b and 3 of c make 6 and 3.
	if got["a"] != 1 || got["b"] != 5 || got["c"] != 3 || got["d"] != 0 {
		t.Errorf("opened by namespace: %v", got)
	}
	for i, w := range a.Waits {
		switch p := c.Waiting[i]; {
		case p.Namespace == "d" && w.Code != Unread:
			t.Errorf("%s of d waits for %q", p.Name, w.Code)
		case p.Namespace == "a" && w.Code != "" && (w.Code != Cap || w.Used != amount(2000, 2*gib)):
			t.Errorf("%s of a waits for %+v", p.Name, w)
		}
	}
}

// TestOneDecisionOpensOnlySomeGates checks Most.
func TestOneDecisionOpensOnlySomeGates(t *testing.T) {
	c := caseOf(amount(10_000, 100*gib))
	c.Most = 3
	for i := range 5 {
		c.Waiting = append(c.Waiting, podOf(fmt.Sprint(i), amount(1000, gib)))
	}
	if a := Decide(c); len(a.Open) != 3 || a.Waits[4].Code != Later {
		t.Errorf("%v is opened, waits %+v", a.Open, a.Waits)
	}
}

// A world is a cluster with a scheduler and an autoscaler that stand for real ones. The
// scheduler tries pods in random order and puts each on any node that has room, and the
// autoscaler buys a node for each pod that the scheduler has found Unschedulable, as
// cluster-autoscaler does.
type world struct {
	rnd     *rand.Rand
	gated   bool
	offers  []share.Amount // of the nodes
	free    []share.Amount
	places  [][]int
	waiting []Pod
	open    []Pod
	bound   []boundPod
	caps    map[string]share.Terms

	unschedulable, bought, bindings int
}

type boundPod struct {
	Pod
	node, until int
}

func (w *world) namespaces() (all []Namespace) {
	for name, terms := range w.caps {
		n := Namespace{Name: name, Terms: terms}
		for _, p := range w.bound {
			if p.Namespace == name {
				n.Bound = n.Bound.Plus(p.Asks)
			}
		}
		all = append(all, n)
	}
	return all
}

func (w *world) currentCase() Case {
	c := Case{Places: w.places, Assumed: w.open, Waiting: w.waiting, Namespaces: w.namespaces()}
	for i, f := range w.free {
		c.Nodes = append(c.Nodes, Node{Name: fmt.Sprint(i), Free: f})
		c.Room = c.Room.Plus(w.offers[i])
	}
	return c
}

// decide opens gates.
func (w *world) decide() {
	a := Decide(w.currentCase())
	through := map[int]bool{}
	for _, i := range a.Open {
		through[i] = true
		w.open = append(w.open, w.waiting[i])
	}
	var left []Pod
	for i, p := range w.waiting {
		if !through[i] {
			left = append(left, p)
		}
	}
	w.waiting = left
}

// schedule tries some of the pods without a gate.
func (w *world) schedule(tick, tries int) {
	for range tries {
		if len(w.open) == 0 {
			return
		}
		i := w.rnd.IntN(len(w.open))
		p := w.open[i]
		var fit []int
		for _, n := range w.places[p.Place] {
			if p.Asks.FitsIn(w.free[n]) {
				fit = append(fit, n)
			}
		}
		if len(fit) == 0 {
			w.unschedulable++
			w.bought++
			continue
		}
		n := fit[w.rnd.IntN(len(fit))]
		w.free[n] = w.free[n].Minus(p.Asks)
		w.open = slices.Delete(w.open, i, i+1)
		w.bound = append(w.bound, boundPod{p, n, tick + 1 + w.rnd.IntN(100)})
		w.bindings++
	}
}

// end ends the pods whose time has come.
func (w *world) end(tick int) {
	w.bound = slices.DeleteFunc(w.bound, func(p boundPod) bool {
		if p.until <= tick {
			w.free[p.node] = w.free[p.node].Plus(p.Asks)
		}
		return p.until <= tick
	})
}

func (w *world) check(t *testing.T, tick int) {
	t.Helper()
	used := map[string]share.Amount{}
	for _, p := range w.open {
		used[p.Namespace] = used[p.Namespace].Plus(p.Asks)
	}
	for _, p := range w.bound {
		used[p.Namespace] = used[p.Namespace].Plus(p.Asks)
	}
	for name, terms := range w.caps {
		if u := used[name]; u.CPU > terms.CPU.Or(u.CPU) || u.Memory > terms.Memory.Or(u.Memory) {
			t.Fatalf("tick %d: namespace %s has %+v", tick, name, u)
		}
	}
	for i, f := range w.free {
		if f.CPU < 0 || f.Memory < 0 {
			t.Fatalf("tick %d: node %d has %+v left", tick, i, f)
		}
	}
}

func newWorld(seed uint64, gated bool) *world {
	w := &world{rnd: rand.New(rand.NewPCG(47, seed)), gated: gated, places: [][]int{nil, nil, nil}}
	for i := range 12 {
		offer := amount(unit.MilliCPU(4000+w.rnd.IntN(12_000)), gib*unit.Bytes(8+w.rnd.IntN(56)))
		w.offers, w.free = append(w.offers, offer), append(w.free, offer)
		w.places[0] = append(w.places[0], i)
		w.places[1+i%2] = append(w.places[1+i%2], i)
	}
	w.caps = map[string]share.Terms{
		"a": {Weight: 1}, "b": {Weight: 2}, "c": {Weight: 1, CPU: node.Some[unit.MilliCPU](20_000)}, "d": {Weight: 1, Memory: node.Some(40 * gib)},
	}
	return w
}

func (w *world) arrive(i, tick int) {
	p := podOf(fmt.Sprint("p", i), amount(unit.MilliCPU(100*(1+w.rnd.IntN(40))), gib/4*unit.Bytes(1+w.rnd.IntN(60))))
	p.Namespace, p.Place = []string{"a", "b", "c", "d"}[w.rnd.IntN(4)], w.rnd.IntN(3)
	p.Created, p.Priority = noon.Add(time.Duration(tick)*time.Second), int32(5000+w.rnd.IntN(3))
	if w.gated {
		w.waiting = append(w.waiting, p)
	} else {
		w.open = append(w.open, p)
	}
}

// run lets pods arrive, and ends when all have run.
func (w *world) run(t *testing.T, arrivals int) {
	t.Helper()
	arrived, tick := 0, 0
	for ; arrived < arrivals || len(w.waiting)+len(w.open) > 0; tick++ {
		if tick > 200*arrivals {
			t.Fatalf("%d pods wait for ever, %d without a gate", len(w.waiting), len(w.open))
		}
		w.end(tick)
		if arrived < arrivals && len(w.waiting)+len(w.open) < 150 {
			for range min(w.rnd.IntN(4), arrivals-arrived) {
				w.arrive(arrived, tick)
				arrived++
			}
		}
		if w.gated {
			w.decide()
			w.check(t, tick)
		}
		w.schedule(tick, w.rnd.IntN(6))
		if !w.gated && w.unschedulable > 1000 {
			return
		}
	}
}

// TestTenThousandArrivalsBuyNoNode lets 10,000 pods of four namespaces arrive in a
// cluster that is full most of the time. With the gate, the scheduler finds none of them
// Unschedulable, and the autoscaler buys nothing. All pods run in the end, no namespace
// exceeds its cap at any time, and in the end nothing that fits waits. Without the gate,
// the same arrivals buy nodes.
func TestTenThousandArrivalsBuyNoNode(t *testing.T) {
	arrivals := 10_000
	if testing.Short() {
		arrivals = 1000
	}
	w := newWorld(4, true)
	w.run(t, arrivals)
	if w.unschedulable > 0 || w.bought > 0 || w.bindings != arrivals {
		t.Errorf("%d times a pod was Unschedulable, %d nodes were bought, %d of %d pods ran", w.unschedulable, w.bought, w.bindings, arrivals)
	}
	open := newWorld(4, false)
	open.run(t, arrivals)
	if open.unschedulable == 0 {
		t.Error("without the gate, no pod was Unschedulable: the test shows nothing")
	}
}

// TestInTheEndNothingThatFitsWaits stops the arrivals, lets the scheduler bind all pods
// that were let through, and decides again until nothing changes. No pod that waits fits
// then, unless its namespace has reached its cap.
func TestInTheEndNothingThatFitsWaits(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(100+seed, true)
		for i := range 150 {
			w.arrive(i, 0)
		}
		for before := -1; before != w.bindings; {
			before = w.bindings
			w.decide()
			w.check(t, 0)
			w.schedule(0, 10_000)
		}
		if w.unschedulable > 0 || len(w.open) > 0 {
			t.Fatalf("seed %d: %d times Unschedulable, %d pods have no node", seed, w.unschedulable, len(w.open))
		}
		c := w.currentCase()
		for i, wait := range Decide(c).Waits {
			if wait.Code != NoRoom && wait.Code != Cap {
				t.Errorf("seed %d: %s waits with %q", seed, c.Waiting[i].Name, wait.Code)
			}
		}
		if len(c.Waiting) == 0 {
			t.Errorf("seed %d: nothing waits, so the test shows nothing", seed)
		}
	}
}
