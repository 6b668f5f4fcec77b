package hold

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
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

// A site is a node with its agent, and a scheduler with its ledger.
type site struct {
	topo   node.Topology
	ledger *place.Ledger
	pods   map[place.UID]place.Pod
	had    Held
	grants Grants
	// reserved are the CPUs that no pod gets.
	reserved unit.CPUSet
}

func (n *site) report() place.Report {
	r := place.Report{Topology: n.topo, Keep: 1, Reserved: n.reserved, Pods: map[place.UID]cpus.Allocation{}}
	for id := range n.grants.Notes {
		r.Pods[place.UID(id)] = n.grants.Allocations[id]
	}
	return r
}

// workload returns a pod and its contract in the form in which the agent sees
// them.
func workload(p place.Pod, c place.Contract) node.Workload {
	d := p.Request
	return node.Workload{
		ID: node.WorkloadID(p.UID), Class: node.LS, Cgroup: node.CgroupPath("pods/" + string(p.UID)),
		Overrides: node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: d.Policy, Bind: d.Bind, Within: d.Within, Exclusive: d.Exclusive, Fewest: d.Fewest, CPUs: d.CPUs, CPU: d.CPU}}, Chosen: &cpus.Choice{Topology: c.Topology, Policy: c.Policy, CPUs: c.CPUs, Domain: c.Domain}}},
	}
}

func (n *site) tick() {
	s := node.Snapshot{Topology: n.topo, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
	for uid, p := range n.pods {
		c, _, _ := n.ledger.Contract(uid)
		w := workload(p, c)
		s.Workloads = append(s.Workloads, w)
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
	}
	n.grants = Decide(facts.NodeCPUs{ReservedCPUs: n.reserved}, 0, n.had, s)
	n.had = n.grants.Held
}

// TestWhatTheLedgerGrantsTheNodeObeys runs random histories of pods on random
// nodes. They consist of reservations, binds, ends, ticks of the agent,
// restarts of the agent, and reports. The test checks that the agent obeys
// every contract, moves no pod, and gives no pod an empty set. It also checks
// that a ledger made from the reports agrees with one made from the contracts.
func TestWhatTheLedgerGrantsTheNodeObeys(t *testing.T) {
	rnd := rand.New(rand.NewPCG(81, 82))
	granted := 0
	for try := range 150 {
		n := &site{topo: machine(1+rnd.IntN(3), 1+rnd.IntN(3), 1+rnd.IntN(5), 1+rnd.IntN(2)), ledger: place.New(), pods: map[place.UID]place.Pod{}}
		n.ledger.Learn("n", n.report())
		for i := range 60 {
			switch rnd.IntN(6) {
			case 0, 1, 2:
				p := place.Pod{UID: place.UID(fmt.Sprint("p", i)), Request: anyDemand(rnd, len(n.topo.CPUs))}
				c, why := n.ledger.Assume(p, "n")
				if why != cpus.Fits {
					continue
				}
				if rnd.IntN(5) == 0 {
					n.ledger.Forget(p.UID)
					continue
				}
				n.ledger.Confirm(p, "n", c.Choice)
				n.pods[p.UID] = p
				granted++
			case 3:
				for uid := range n.pods {
					n.ledger.RemovePod(uid)
					delete(n.pods, uid)
					break
				}
			case 4:
				if rnd.IntN(3) == 0 {
					n.had = Held{}
				}
				n.tick()
				n.check(t)
			case 5:
				n.tick()
				n.ledger.Learn("n", n.report())
				n.check(t)
			}
			if t.Failed() {
				t.Fatalf("try %d, step %d", try, i)
			}
		}
	}
	if granted < 1000 {
		t.Errorf("only %d pods were granted", granted)
	}
}

func anyDemand(rnd *rand.Rand, online int) cpus.PodRequest {
	d := cpus.PodRequest{Request: cpus.Request{
		Policy: cpus.Policy(1 + rnd.IntN(3)), CPUs: 1 + rnd.IntN(max(online/3, 1)), Bind: cpus.Bind(rnd.IntN(5)),
		Within: []cpus.Level{cpus.Machine, cpus.Machine, cpus.NUMA, cpus.L3}[rnd.IntN(4)], Exclusive: cpus.ExclusivePolicy(rnd.IntN(3)),
	}}
	if d.Policy != cpus.Exclusive {
		d.CPU = unit.MilliCPU(rnd.IntN(d.CPUs*1000 + 1))
	}
	if d.Policy == cpus.Pool {
		d.CPUs = 0
	}
	return d
}

func (n *site) check(t *testing.T) {
	t.Helper()
	var taken unit.CPUSet
	for uid, p := range n.pods {
		id := node.WorkloadID(uid)
		c, _, _ := n.ledger.Contract(uid)
		set, bound := n.grants.Set(id)
		switch {
		case !bound || set.Empty():
			t.Errorf("%s with the contract %+v has nothing: %s", uid, c, n.grants.Text(id))
		case n.grants.Notes[id].By != cpus.ByScheduler && p.Request.Policy == cpus.Exclusive && set != c.CPUs, p.Request.Policy == cpus.Exclusive && set != c.CPUs:
			t.Errorf("%s has %v, and its contract says %v: %s", uid, set, c.CPUs, n.grants.Text(id))
		case p.Request.Policy != cpus.Exclusive && (n.grants.Allocations[id].Domain != c.Domain || !c.Domain.Contains(set)):
			t.Errorf("%s has %v of %v, and its contract says %v", uid, set, n.grants.Allocations[id].Domain, c.Domain)
		case p.Request.Policy == cpus.Shared && (set.Len() > p.Request.CPUs || unit.CPUs(set.Len()) < p.Request.CPU):
			t.Errorf("%s has %d seats, demands %d and requests %v", uid, set.Len(), p.Request.CPUs, p.Request.CPU)
		}
		if own, is := n.grants.Exclusive(id); is {
			if !own.Intersect(taken).Empty() {
				t.Errorf("%s shares %v", uid, own.Intersect(taken))
			}
			taken = taken.Union(own)
		}
	}
	for id, h := range n.grants.Allocations {
		if h.Policy > cpus.Exclusive && !h.CPUs.Intersect(taken).Empty() {
			t.Errorf("%s shares the own CPUs %v", id, h.CPUs.Intersect(taken))
		}
	}
	rebuilt := place.New()
	rebuilt.Learn("n", n.report())
	for uid, p := range n.pods {
		c, _, _ := n.ledger.Contract(uid)
		rebuilt.Confirm(p, "n", c.Choice)
	}
	if a, b := n.ledger.View("n").Open(), rebuilt.View("n").Open(); a != b {
		t.Errorf("the ledger sees %v open, and one rebuilt from the report %v", a, b)
	}
}

// owned is what workloads with own CPUs have.
func owned(of map[node.WorkloadID]unit.CPUSet) Held {
	h := Held{Allocations: map[node.WorkloadID]cpus.Allocation{}}
	for id, set := range of {
		h.Allocations[id] = cpus.Allocation{Policy: cpus.Exclusive, CPUs: set}
	}
	return h
}

// own returns the own CPUs of all workloads.
func (g Held) own() map[node.WorkloadID]unit.CPUSet {
	all := map[node.WorkloadID]unit.CPUSet{}
	for id := range g.Allocations {
		if set, own := g.Exclusive(id); own {
			all[id] = set
		}
	}
	return all
}

func mustSet(t *testing.T, list string) unit.CPUSet {
	t.Helper()
	set, err := unit.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
