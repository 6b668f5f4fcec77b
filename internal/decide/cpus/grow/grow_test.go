package grow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A site is a simulated node on which work starts, ends and uses CPUs.
type site struct {
	snap   node.Snapshot
	use    facts.Use
	had    hold.Held
	state  State
	grants hold.Grants
	base   hold.Grants // what work holds without growth
	used   map[node.WorkloadID]map[unit.CPU]time.Duration
	// uncounted is a workload without per-CPU counters.
	uncounted node.WorkloadID
}

func newSite(nodes, caches, cpus int) *site {
	n := &site{used: map[node.WorkloadID]map[unit.CPU]time.Duration{}}
	n.snap.At = time.Unix(0, 0)
	n.snap.Knobs.Now = map[node.Knob]node.Value{}
	for c := range nodes * caches * cpus {
		l3 := c / cpus
		n.snap.Topology.CPUs = append(n.snap.Topology.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(c), L3: node.CacheID(l3), NUMA: node.NUMANode(l3 / caches), Socket: node.SocketID(l3 / caches),
		})
	}
	return n
}

func (n *site) add(id string, o node.CPUOverride, limit unit.MilliCPU) {
	w := node.Workload{ID: node.WorkloadID(id), Class: node.LS, Cgroup: node.CgroupPath("ls/" + id), Overrides: node.Overrides{CPUs: o}}
	if limit > 0 {
		w.CPULimit = node.Some(limit)
	}
	n.snap.Workloads = append(n.snap.Workloads, w)
	n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
}

func (n *site) remove(id string) {
	var left []node.Workload
	for _, w := range n.snap.Workloads {
		if string(w.ID) != id {
			left = append(left, w)
		}
	}
	n.snap.Workloads = left
}

// tick lets the work use CPUs for the time every. Then it decides.
func (n *site) tick(every time.Duration, use map[string]map[unit.CPU]unit.MilliCPU, missed map[node.WorkloadID]string) {
	n.snap.At = n.snap.At.Add(every)
	workloads := make([]node.Workload, len(n.snap.Workloads))
	for i, w := range n.snap.Workloads {
		before, now, all := n.used[w.ID], map[unit.CPU]time.Duration{}, time.Duration(0)
		for _, c := range n.snap.Topology.CPUs {
			now[c.ID] = before[c.ID] + time.Duration(use[string(w.ID)][c.ID])*every/1000
			all += now[c.ID]
		}
		n.used[w.ID] = now
		w.Usage = node.Usage{CPU: node.Some(all), PerCPU: now}
		if w.ID == n.uncounted {
			w.Usage.PerCPU = nil
		}
		workloads[i] = w
	}
	n.snap.Workloads = workloads
	before := n.use
	n.use = n.use.Observe(n.snap)
	n.base = hold.Decide(facts.NodeCPUs{}, 0, n.had, n.snap)
	n.state, n.grants = Decide(n.state, n.base, before, n.use, missed, n.snap)
	n.had = n.grants.Held
}

// spreadUse divides an amount of CPU usage equally among a set of CPUs.
func spreadUse(set unit.CPUSet, all unit.MilliCPU) map[unit.CPU]unit.MilliCPU {
	use := map[unit.CPU]unit.MilliCPU{}
	for c := range set.All() {
		use[c] = min(all/unit.MilliCPU(max(set.Len(), 1)), 1000)
	}
	return use
}

// TestGrowthTakesNothingThatIsOthers runs random histories. Pools may grow,
// owners come and go, and services use CPUs, wait or do nothing. In each tick,
// no pool may have a CPU that another workload owns, and every pool must have
// all open CPUs of its home. What a pool has beside its home must be whole free
// caches of the same NUMA node. While a service waits, no pool may keep any of
// these.
func TestGrowthTakesNothingThatIsOthers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(91, 92))
	grown, left := 0, 0
	for try := range 100 {
		caches, each := 2+rnd.IntN(4), 2+rnd.IntN(4)
		n := newSite(1+rnd.IntN(2), caches, each)
		for i := range 1 + rnd.IntN(2) {
			n.add(fmt.Sprint("pool", i), node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 1000}, Grows: true}}, unit.CPUs(rnd.IntN(3)*each))
		}
		n.add("web", node.CPUOverride{}, 0)
		busy, where := rnd.IntN(4), n.snap.Topology.All()
		var had map[node.WorkloadID]Pool
		for step := range 150 {
			if rnd.IntN(30) == 0 {
				busy, where = rnd.IntN(4), unit.CPUSetOf(unit.CPU(rnd.IntN(len(n.snap.Topology.CPUs))))
			}
			switch id := fmt.Sprint("own", rnd.IntN(3)); rnd.IntN(25) {
			case 0:
				n.remove(id)
				n.add(id, node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 1 + rnd.IntN(each)}}}, 0)
			case 1:
				n.remove(id)
			}
			use := map[string]map[unit.CPU]unit.MilliCPU{"web": spreadUse(where, unit.CPUs(busy)/3)}
			for id, h := range n.grants.Allocations {
				use[string(id)] = spreadUse(h.CPUs, unit.CPUs(h.CPUs.Len())*unit.MilliCPU(busy)/3)
			}
			var missed map[node.WorkloadID]string
			if rnd.IntN(40) == 0 {
				missed = map[node.WorkloadID]string{"web": "waits"}
			}
			n.tick(time.Duration(200+rnd.IntN(1500))*time.Millisecond, use, missed)
			n.check(t, missed)
			sum := 0
			for id, p := range n.state.Pools {
				if more := p.More.Minus(had[id].More); !more.Empty() {
					sum++
				}
				if !had[id].More.Minus(p.More).Empty() {
					left++
				}
			}
			if grown += sum; sum > 1 {
				t.Errorf("%d pools grew in one tick", sum)
			}
			had = n.state.Pools
			if t.Failed() {
				t.Fatalf("try %d, step %d", try, step)
			}
		}
	}
	if grown < 100 || left < 100 {
		t.Errorf("pools grew %d times and gave back %d times: too few for this test", grown, left)
	}
}

func (n *site) check(t *testing.T, missed map[node.WorkloadID]string) {
	t.Helper()
	var taken unit.CPUSet
	for id, h := range n.grants.Allocations {
		set := h.CPUs
		if h.Policy != cpus.Exclusive {
			continue
		}
		if !set.Intersect(taken).Empty() {
			t.Errorf("%s owns %v of others", id, set.Intersect(taken))
		}
		taken = taken.Union(set)
	}
	for id, h := range n.grants.Allocations {
		if h.Policy == cpus.Exclusive {
			continue
		}
		p := n.state.Pools[id]
		if !h.CPUs.Intersect(taken).Empty() {
			t.Errorf("%s has %v, which others own", id, h.CPUs.Intersect(taken))
		}
		if home := n.base.Allocations[id].CPUs; !h.CPUs.Contains(home) || h.CPUs != home.Union(p.More) {
			t.Errorf("%s has %v, and the open CPUs of its home are %v, more are %v", id, h.CPUs, home, p.More)
		}
		var whole unit.CPUSet
		for _, c := range neighbours(n.grants.Map, h.Domain) {
			if p.More.Contains(c) {
				whole = whole.Union(c)
			}
		}
		if p.More != whole || !h.Domain.Intersect(p.More).Empty() {
			t.Errorf("%s has %v beside its home %v, which are no whole caches of its NUMA node", id, p.More, h.Domain)
		}
		if len(missed) > 0 && !p.More.Empty() {
			t.Errorf("%s keeps %v while %v wait", id, p.More, missed)
		}
	}
}

// fillPool lets the pool id use all its CPUs for a number of ticks.
func (n *site) fillPool(ticks int, others map[string]map[unit.CPU]unit.MilliCPU, id node.WorkloadID) {
	for range ticks {
		set, _ := n.grants.Set(id)
		use := map[string]map[unit.CPU]unit.MilliCPU{string(id): spreadUse(set, unit.CPUs(set.Len()))}
		for of, u := range others {
			use[of] = u
		}
		n.tick(time.Second, use, nil)
	}
}

// TestWhatKeepsAPoolInItsHome fills the home of a pool. Each case but one has a
// reason not to grow, and the pool must stay in its home. In the case without a
// reason it must grow.
func TestWhatKeepsAPoolInItsHome(t *testing.T) {
	home := &cpus.Choice{Policy: cpus.Pool, Domain: unit.CPUSetOf(0, 1, 2, 3)}
	pool := node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}, Chosen: home}
	still, apart := pool, pool
	still.Grows = false
	apart.Exclusive = cpus.PCPULevel
	for name, c := range map[string]struct {
		o      node.CPUOverride
		limit  unit.MilliCPU
		nodes  int
		owner  bool
		others map[string]map[unit.CPU]unit.MilliCPU
		want   string
	}{
		"nothing":                      {pool, 0, 1, false, nil, "0-7"},
		"its own limit":                {pool, 4000, 1, false, nil, "0-3"},
		"the largest limit":            {pool, math.MaxInt64, 1, false, nil, "0-7"},
		"it may not grow":              {still, 0, 1, false, nil, "0-3"},
		"it is to be apart":            {apart, 0, 1, false, nil, "0-3"},
		"the next cache has an owner":  {pool, 0, 1, true, nil, "0-3"},
		"the next cache is used":       {pool, 0, 1, false, map[string]map[unit.CPU]unit.MilliCPU{"web": spreadUse(unit.CPUSetOf(4, 5), 1500)}, "0-3"},
		"the next cache is used a bit": {pool, 0, 1, false, map[string]map[unit.CPU]unit.MilliCPU{"web": spreadUse(unit.CPUSetOf(4, 5), 500)}, "0-7"},
		"another NUMA node":            {pool, 0, 2, false, nil, "0-3"},
	} {
		n := newSite(c.nodes, 2/c.nodes, 4)
		n.add("pi", c.o, c.limit)
		n.add("web", node.CPUOverride{}, 0)
		if c.owner {
			n.add("db", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 1}}, Chosen: &cpus.Choice{Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(5)}}, 0)
		}
		n.fillPool(30, c.others, "pi")
		if set, _ := n.grants.Set("pi"); set.String() != c.want {
			t.Errorf("%s: the pool has CPUs %v, want %s: %s", name, set, c.want, n.grants.Text("pi"))
		}
	}
}

// TestAPoolGivesBackWhatItDoesNotNeed lets a pool grow, and then use little
// CPU. It must give the added caches back.
func TestAPoolGivesBackWhatItDoesNotNeed(t *testing.T) {
	n := newSite(1, 2, 4)
	n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}}, 0)
	n.fillPool(20, nil, "pi")
	for i, want := range []string{"0-7", "0-7", "0-3", "0-3"} {
		if set, _ := n.grants.Set("pi"); set.String() != want {
			t.Errorf("after %d s of little use: CPUs %v, want %s: %s", 32*i, set, want, n.grants.Text("pi"))
		}
		for range 32 {
			n.tick(time.Second, map[string]map[unit.CPU]unit.MilliCPU{"pi": spreadUse(unit.CPUSetOf(0, 1, 2, 3), 1000)}, nil)
		}
	}
	want := []cpus.Growth{{Code: cpus.GrowthSpare, CPUs: unit.CPUSetOf(4, 5, 6, 7), Percent: 70, For: time.Minute}}
	if got := n.grants.Notes["pi"].Growth; !slices.Equal(got, want) {
		t.Errorf("the reason is %+v, want %+v", got, want)
	}
}

// TestAPoolForgetsTheTimesOfAClockThatWasAhead sets the clock back by an hour, and
// the daemon starts again. A time of before is then in the future. The pool must
// grow, give back and rest as long as without this, and not an hour longer.
func TestAPoolForgetsTheTimesOfAClockThatWasAhead(t *testing.T) {
	n := newSite(1, 2, 4)
	n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}}, 0)
	restart := func() {
		n.snap.At = n.snap.At.Add(-time.Hour)
		n.use.At = n.snap.At // the daemon takes the time of the counters from a clock that cannot be set
	}
	has := func(when, want string) {
		t.Helper()
		if set, _ := n.grants.Set("pi"); set.String() != want {
			t.Errorf("%s the pool has CPUs %v, want %s: %s", when, set, want, n.grants.Text("pi"))
		}
	}
	waste := func(ticks int) {
		for range ticks {
			n.tick(time.Second, map[string]map[unit.CPU]unit.MilliCPU{"pi": spreadUse(unit.CPUSetOf(0, 1, 2, 3), 1000)}, nil)
		}
	}
	n.fillPool(8, nil, "pi")
	restart()
	n.fillPool(20, nil, "pi")
	has("full,", "0-7")
	waste(30)
	restart()
	waste(70)
	has("after a minute with spare CPUs", "0-3")
	n.fillPool(20, nil, "pi")
	has("full again,", "0-7")
	n.tick(time.Second, nil, map[node.WorkloadID]string{"web": "waits"})
	has("while a service waits,", "0-3")
	restart()
	n.fillPool(50, nil, "pi")
	has("before the rest ends,", "0-3")
	n.fillPool(20, nil, "pi")
	has("after the rest", "0-7")
}

// TestAnIdlePoolDoesNotGrow fills the home of a pool by the work of others. The
// pool may grow only if its own workload uses most of its CPU request.
func TestAnIdlePoolDoesNotGrow(t *testing.T) {
	home := unit.CPUSetOf(0, 1, 2, 3)
	for name, c := range map[string]struct {
		request, use unit.MilliCPU // of the workload
		want         string
	}{
		"idle":                           {2000, 0, "0-3"},
		"it uses half of its request":    {2000, 1000, "0-3"},
		"it uses its request":            {2000, 2000, "0-7"},
		"idle without a request":         {0, 20, "0-3"},
		"it has no request, and is busy": {0, 200, "0-7"},
		"its request is above its home":  {16000, 3900, "0-7"},
	} {
		n := newSite(1, 2, 4)
		n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: c.request}, Grows: true}, Chosen: &cpus.Choice{Policy: cpus.Pool, Domain: home}}, 0)
		n.add("web", node.CPUOverride{}, 0)
		for range 30 {
			n.tick(time.Second, map[string]map[unit.CPU]unit.MilliCPU{"pi": spreadUse(home, c.use), "web": spreadUse(home, 4000-c.use)}, nil)
		}
		if set, _ := n.grants.Set("pi"); set.String() != c.want {
			t.Errorf("%s: the pool has CPUs %v, want %s: %s", name, set, c.want, n.grants.Text("pi"))
		}
	}
}

// TestABusyPoolGrowsBeforeOthers has two full pools and one free cache between
// them. The first pool shares its home with a service, and the second fills its
// home alone, so the cache is for the second. If the first one waits longer than
// its objective, the cache is for the first.
func TestABusyPoolGrowsBeforeOthers(t *testing.T) {
	first, free, second := unit.CPUSetOf(0, 1, 2, 3), unit.CPUSetOf(4, 5, 6, 7), unit.CPUSetOf(8, 9, 10, 11)
	for name, c := range map[string]struct {
		missed map[node.WorkloadID]string
		want   node.WorkloadID
	}{
		"no service waits": {nil, "second"},
		"the first waits":  {map[node.WorkloadID]string{"first": "waits"}, "first"},
	} {
		n := newSite(1, 3, 4)
		for id, home := range map[string]unit.CPUSet{"first": first, "second": second} {
			n.add(id, node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 1000}, Grows: true}, Chosen: &cpus.Choice{Policy: cpus.Pool, Domain: home}}, 0)
		}
		slices.SortFunc(n.snap.Workloads, func(a, b node.Workload) int { return strings.Compare(string(a.ID), string(b.ID)) })
		n.add("web", node.CPUOverride{}, 0)
		for range 30 {
			n.tick(time.Second, map[string]map[unit.CPU]unit.MilliCPU{
				"first": spreadUse(first, 1500), "second": spreadUse(second, 4000), "web": spreadUse(first, 2500),
			}, c.missed)
			if n.state.Pools["first"].More != n.state.Pools["second"].More {
				break
			}
		}
		if more := n.state.Pools[c.want].More; more != free {
			t.Errorf("%s: pool %s has CPUs %v beside its home, want %v; first has %v", name, c.want, more, free, n.state.Pools["first"].More)
		}
	}
}

// TestAPoolThatBecameIdleGivesBack lets a pool grow and then do nothing, while
// services fill its CPUs. It must give the added cache back after a minute. If
// its workload is busy and idle in turns, the pool must not grow and shrink in
// turns.
func TestAPoolThatBecameIdleGivesBack(t *testing.T) {
	home, beside := unit.CPUSetOf(0, 1, 2, 3), unit.CPUSetOf(4, 5, 6, 7)
	use := func(pi unit.MilliCPU) map[string]map[unit.CPU]unit.MilliCPU {
		return map[string]map[unit.CPU]unit.MilliCPU{"pi": spreadUse(home, pi), "web": spreadUse(home, 4000-pi), "db": spreadUse(beside, 2400)}
	}
	grown := func() *site {
		n := newSite(1, 2, 4)
		n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}, Chosen: &cpus.Choice{Policy: cpus.Pool, Domain: home}}, 0)
		n.fillPool(20, nil, "pi")
		if set, _ := n.grants.Set("pi"); set != home.Union(beside) {
			t.Fatalf("the pool has CPUs %v, and should have grown", set)
		}
		n.add("web", node.CPUOverride{}, 0)
		n.add("db", node.CPUOverride{}, 0)
		return n
	}
	n := grown()
	for _, c := range []struct {
		ticks int
		want  string
	}{{55, "0-7"}, {10, "0-3"}} {
		for range c.ticks {
			n.tick(time.Second, use(100), nil)
		}
		if set, _ := n.grants.Set("pi"); set.String() != c.want {
			t.Errorf("an idle pool has CPUs %v, want %s: %s", set, c.want, n.grants.Text("pi"))
		}
	}
	n = grown()
	for _, pi := range []unit.MilliCPU{1200, 1800, 1200, 900, 1900, 100} {
		for i := range 40 {
			n.tick(time.Second, use(pi), nil)
			if set, _ := n.grants.Set("pi"); set != home.Union(beside) {
				t.Fatalf("after %d s with a use of %v: the pool has CPUs %v: %s", i, pi, set, n.grants.Text("pi"))
			}
		}
	}
}

// TestAServiceThatIsNotCountedKeepsPoolsInTheirHomes checks that no pool grows
// while a service has no counters, because that service may run on a cache that
// looks quiet.
func TestAServiceThatIsNotCountedKeepsPoolsInTheirHomes(t *testing.T) {
	for use, want := range map[unit.MilliCPU]string{20: "0-7", 500: "0-3"} {
		n := newSite(1, 2, 4)
		n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}}, 0)
		n.add("web", node.CPUOverride{}, 0)
		n.uncounted = "web"
		n.fillPool(30, map[string]map[unit.CPU]unit.MilliCPU{"web": spreadUse(unit.CPUSetOf(7), use)}, "pi")
		if set, _ := n.grants.Set("pi"); set.String() != want {
			t.Errorf("beside a service that uses %v: CPUs %v, want %s", use, set, want)
		}
	}
}

// TestAPoolWithoutCountersStaysInItsHome checks that a pool takes no
// neighbouring cache if per-CPU counters are missing. Tenon does not see which
// work runs in such a cache.
func TestAPoolWithoutCountersStaysInItsHome(t *testing.T) {
	n := newSite(1, 2, 4)
	n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}}, 0)
	for range 30 {
		n.snap.At = n.snap.At.Add(time.Second)
		before := n.use
		n.use = n.use.Observe(n.snap)
		n.base = hold.Decide(facts.NodeCPUs{}, 0, n.had, n.snap)
		n.state, n.grants = Decide(n.state, n.base, before, n.use, nil, n.snap)
	}
	if set, _ := n.grants.Set("pi"); set != unit.CPUSetOf(0, 1, 2, 3) {
		t.Errorf("the pool has CPUs %v", set)
	}
}

// TestAPoolThatGrewReturnsHomeWithoutCounters lets a pool grow beside a
// service. It then removes the counters of that service. The pool must return
// home, but not because of one failed reading.
func TestAPoolThatGrewReturnsHomeWithoutCounters(t *testing.T) {
	n := newSite(1, 2, 4)
	n.add("pi", node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 2000}, Grows: true}}, 0)
	n.add("web", node.CPUOverride{}, 0)
	for _, c := range []struct {
		ticks     int
		uncounted node.WorkloadID
		use       unit.MilliCPU // of web beside the home
		want      string
	}{
		{30, "", 200, "0-7"},
		{1, "web", 200, "0-7"},
		{5, "", 200, "0-7"},
		{2, "web", 3900, "0-7"},
		{1, "web", 3900, "0-3"},
		{50, "", 200, "0-3"}, // for a minute it does not grow
		{20, "", 200, "0-7"},
		{2, "pi", 200, "0-7"},
		{1, "pi", 200, "0-3"},
	} {
		n.uncounted = c.uncounted
		n.fillPool(c.ticks, map[string]map[unit.CPU]unit.MilliCPU{"web": spreadUse(unit.CPUSetOf(4, 5, 6, 7), c.use)}, "pi")
		if set, _ := n.grants.Set("pi"); set.String() != c.want {
			t.Errorf("%d s without counters of %q: CPUs %v, want %s: %s", c.ticks, c.uncounted, set, c.want, n.grants.Text("pi"))
		}
		why := []cpus.Growth{{Code: cpus.GrowthUncounted, CPUs: unit.CPUSetOf(4, 5, 6, 7), Workload: string(c.uncounted)}}
		if got := n.grants.Notes["pi"].Growth; c.want == "0-3" && c.uncounted != "" && !slices.Equal(got, why) {
			t.Errorf("the reason is %+v, want %+v", got, why)
		}
	}
}

// BenchmarkDecide measures a tick of a node with 256 CPUs, 100 services and 16
// pools that may grow.
func BenchmarkDecide(b *testing.B) {
	n := newSite(1, 32, 8)
	for i := range 16 {
		n.add(fmt.Sprint("pool", i), node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: 1000}, Grows: true}}, 0)
	}
	use := map[string]map[unit.CPU]unit.MilliCPU{}
	for i := range 100 {
		n.add(fmt.Sprint("web", i), node.CPUOverride{}, 0)
		use[fmt.Sprint("web", i)] = spreadUse(n.snap.Topology.All(), 1000)
	}
	n.tick(time.Second, use, nil)
	before := n.use
	n.tick(time.Second, use, nil)
	b.ReportAllocs()
	for b.Loop() {
		Decide(n.state, n.base, before, n.use, nil, n.snap)
	}
}
