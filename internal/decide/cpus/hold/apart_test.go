package hold

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A lone node has an agent. Most of its pods have no contract.
type lone struct {
	topo      node.Topology
	pods      []place.Pod
	contracts map[place.UID]place.Contract
	had       Held
}

func (n *lone) tick() Grants {
	s := node.Snapshot{Topology: n.topo, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
	for _, p := range n.pods {
		c := n.contracts[p.UID]
		w := workload(p, c)
		if c.Policy == 0 {
			w.Overrides.CPUs.Chosen = nil
		}
		s.Workloads = append(s.Workloads, w)
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
	}
	g := Decide(facts.NodeCPUs{}, 0, n.had, s)
	n.had = g.Held
	return g
}

func (n *lone) report() place.Report {
	r := place.Report{Topology: n.topo, Keep: 1, Pods: map[place.UID]cpus.Allocation{}}
	for _, p := range n.pods {
		id := node.WorkloadID(p.UID)
		if h, held := n.had.Allocations[id]; held {
			r.Pods[p.UID] = h
		}
	}
	return r
}

// TestANodeChoosesAsALedgerWould gives pods without a contract to a node. A
// ledger that knows the node's report would have to choose the same CPUs.
func TestANodeChoosesAsALedgerWould(t *testing.T) {
	rnd := rand.New(rand.NewPCG(85, 86))
	apart := 0
	for try := range 200 {
		n := &lone{topo: machine(1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(5), 1+rnd.IntN(2))}
		for i := range 12 {
			if len(n.pods) > 0 && rnd.IntN(4) == 0 {
				at := rnd.IntN(len(n.pods))
				n.pods = append(n.pods[:at:at], n.pods[at+1:]...)
				n.tick()
			}
			p := place.Pod{UID: place.UID(fmt.Sprint("p", i)), Request: anyDemand(rnd, len(n.topo.CPUs))}
			l := place.New()
			l.Learn("n", n.report())
			want, _, why := l.View("n").Offer(&p.Request)
			if why != cpus.Fits {
				continue
			}
			n.pods = append(n.pods, p)
			g := n.tick()
			set, _ := g.Set(node.WorkloadID(p.UID))
			if home := g.Allocations[node.WorkloadID(p.UID)].Domain; set != want.CPUs || home != want.Domain {
				t.Fatalf("try %d: %+v gets %v of %v, and a ledger chooses %v of %v", try, p.Request.Request, set, home, want.CPUs, want.Domain)
			}
			if p.Request.Exclusive != cpus.NotExclusive {
				apart++
			}
		}
	}
	if apart < 500 {
		t.Errorf("only %d pods were to be apart", apart)
	}
}

// TestAGrowingPodKeepsApart lets a pod grow before the other pod with the same
// exclusive policy has its turn. The core of the other pod must count already.
func TestAGrowingPodKeepsApart(t *testing.T) {
	topo := machine(1, 1, 4, 2)
	hash := pick.Compile(topo).Hash()
	own := func(uid place.UID, n int) place.Pod {
		return place.Pod{UID: uid, Request: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: n, Exclusive: cpus.PCPULevel}}}
	}
	seat := place.Pod{UID: "b", Request: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Shared, CPUs: 1, CPU: 500, Exclusive: cpus.PCPULevel}}}
	hold := cpus.Allocation{Policy: cpus.Shared, CPUs: mustSet(t, "6"), Domain: topo.All(), CPU: 500, Exclusive: cpus.PCPULevel}
	for name, c := range map[string]struct {
		other    place.Pod
		had      Held
		contract place.Contract
		want     string
	}{
		"own CPUs of the last tick": {own("b", 1), owned(map[node.WorkloadID]unit.CPUSet{"b": mustSet(t, "7")}), place.Contract{}, "0-1,5"},
		"own CPUs that are chosen":  {own("b", 1), Held{}, place.Contract{Choice: cpus.Choice{Topology: hash, Policy: cpus.Exclusive, CPUs: mustSet(t, "7")}}, "0-1,5"},
		"seats of the last tick":    {seat, Held{Allocations: map[node.WorkloadID]cpus.Allocation{"b": hold}}, place.Contract{}, "0-1,5"},
		"seats that are chosen":     {seat, Held{}, place.Contract{Choice: cpus.Choice{Topology: hash, Policy: cpus.Shared, CPUs: hold.CPUs, Domain: hold.Domain}}, "0-1,5"},
		"no CPUs before its turn":   {own("b", 1), Held{}, place.Contract{}, "0-1,7"},
		"own CPUs of other work":    {place.Pod{UID: "b", Request: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 1}}}, Held{}, place.Contract{}, "0-1,7"},
	} {
		if c.had.Allocations == nil {
			c.had = owned(nil)
		}
		c.had.Allocations["a"] = cpus.Allocation{Policy: cpus.Exclusive, CPUs: mustSet(t, "0-1"), Exclusive: cpus.PCPULevel}
		n := &lone{topo: topo, had: c.had, pods: []place.Pod{own("a", 3), c.other}, contracts: map[place.UID]place.Contract{"b": c.contract}}
		if g := n.tick(); g.own()["a"].String() != c.want {
			t.Errorf("%s: a has %v, want %s", name, g.own()["a"], c.want)
		}
	}
}
