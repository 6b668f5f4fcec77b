package hold

import (
	"fmt"
	"os"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// The model is a node of two L3 caches with two cores each, an agent, three
// pods that own CPUs, and two schedulers. Both schedulers may schedule each
// pod.
const (
	modelPods       = 3
	modelSchedulers = 2
)

var modelDemands = [modelPods]int{2, 2, 1} // the node has three CPUs for pods, so not all pods fit

// A world is one state of the model. It is comparable, so that the test visits
// each state once.
type world struct {
	bound      [modelPods]contract // the contracts in the API server
	schedulers [modelSchedulers]scheduler
	had        [modelPods]contract // the contracts that the agent follows
	reported   [modelPods]contract // the contracts in the report
	kills      int
	// closed says that CPU 0 is reserved now, and the other two that it was in the
	// last tick of the agent and in the report. turns is the number of changes that
	// may follow.
	closed, hadClosed, reportedClosed bool
	turns                             int
}

// A contract is the part of a place.Contract that the model needs: a set of
// CPUs. The agent refuses a pod that is bound and to which it gives none.
type contract struct {
	set           string
	made, refused bool
}

// A scheduler holds the knowledge of one of the two schedulers.
type scheduler struct {
	seen, report, reserved [modelPods]contract
	closed                 bool // in the report
}

type model struct {
	t       *testing.T
	pods    int
	topo    node.Topology
	visited map[world]bool
	rested  map[agentInput]bool
	ticks   map[agentInput][modelPods]contract

	reserves map[reserving]contract
}

// An agentInput is the input of a tick of the agent.
type agentInput struct {
	bound, had [modelPods]contract
	closed     bool
}

func (w *world) agentInput() agentInput { return agentInput{w.bound, w.had, w.closed} }

// reservedIf returns the reserved CPUs.
func (m *model) reservedIf(closed bool) unit.CPUSet {
	if closed {
		return unit.CPUSetOf(0)
	}
	return unit.CPUSet{}
}

func modelPod(p int) place.Pod {
	return place.Pod{UID: place.UID(fmt.Sprint("p", p)), Request: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: modelDemands[p]}}}
}

func (m *model) contractOf(c contract) place.Contract {
	set := mustSet(m.t, c.set)
	return place.Contract{Choice: cpus.Choice{Topology: pick.Compile(m.topo).Hash(), Policy: cpus.Exclusive, CPUs: set}}
}

// ledger builds the ledger of a scheduler from its knowledge.
func (m *model) ledger(s *scheduler) *place.Ledger {
	l := place.New()
	r := place.Report{Topology: m.topo, Keep: 1, Reserved: m.reservedIf(s.closed), Pods: map[place.UID]cpus.Allocation{}}
	for p, h := range s.report {
		switch {
		case h.made:
			r.Pods[modelPod(p).UID] = cpus.Allocation{Policy: cpus.Exclusive, CPUs: mustSet(m.t, h.set)}
		case h.refused:
			r.Pods[modelPod(p).UID] = cpus.Allocation{}
		}
	}
	l.Learn("n", r)
	for p := range m.pods {
		switch {
		case s.seen[p].made:
			l.Confirm(modelPod(p), "n", m.contractOf(s.seen[p]).Choice)
		case s.reserved[p].made:
			pod := modelPod(p)
			if s.report[p].refused { // another scheduler has bound the pod; the ledger keeps the reservation
				pod.UID += "-reserved"
			}
			l.Confirm(pod, "n", m.contractOf(s.reserved[p]).Choice)
		}
	}
	return l
}

// reserve returns the contract that a scheduler reserves for a pod.
func (m *model) reserve(s *scheduler, p int) contract {
	key := reserving{*s, p}
	out, known := m.reserves[key]
	if !known {
		if c, why := m.ledger(s).Assume(modelPod(p), "n"); why == cpus.Fits {
			out = contract{set: c.CPUs.String(), made: true}
		}
		m.reserves[key] = out
	}
	return out
}

type reserving struct {
	scheduler
	pod int
}

// tick returns the CPUs that the agent gives to the bound pods.
func (m *model) tick(w world) [modelPods]contract {
	key := w.agentInput()
	if out, known := m.ticks[key]; known {
		return out
	}
	s := node.Snapshot{Topology: m.topo, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
	var had map[node.WorkloadID]unit.CPUSet
	for p := range m.pods {
		if w.bound[p].made {
			work := workload(modelPod(p), m.contractOf(w.bound[p]))
			s.Workloads = append(s.Workloads, work)
			s.Knobs.Now[node.Knob{Cgroup: work.Cgroup, File: node.FileCPUs}] = node.CPUs{}
		}
		if w.had[p].made {
			if had == nil {
				had = map[node.WorkloadID]unit.CPUSet{}
			}
			had[node.WorkloadID(modelPod(p).UID)] = mustSet(m.t, w.had[p].set)
		}
	}
	before := Held{} // without memory
	if had != nil {
		before = owned(had)
	}
	g := Decide(facts.NodeCPUs{ReservedCPUs: m.reservedIf(w.closed)}, 0, before, s)
	var out [modelPods]contract
	for p := range m.pods {
		if set, own := g.Exclusive(node.WorkloadID(modelPod(p).UID)); own {
			out[p] = contract{set: set.String(), made: true}
		} else {
			out[p].refused = w.bound[p].made
		}
	}
	m.ticks[key] = out
	return out
}

// next lists the states that one action leads to.
func (m *model) next(w world) []world {
	var all []world
	add := func(change func(*world)) {
		n := w
		change(&n)
		if n != w {
			all = append(all, n)
		}
	}
	for i := range w.schedulers {
		s := &w.schedulers[i]
		for p := range m.pods {
			if !s.seen[p].made && !s.reserved[p].made { // reserve
				if c := m.reserve(s, p); c.made {
					add(func(n *world) { n.schedulers[i].reserved[p] = c })
				}
			}
			if s.reserved[p].made { // bind; the API server refuses a second one
				add(func(n *world) {
					if !n.bound[p].made {
						n.bound[p] = s.reserved[p]
					}
					n.schedulers[i].reserved[p] = contract{}
					n.schedulers[i].seen[p] = n.bound[p]
				})
				add(func(n *world) { n.schedulers[i].reserved[p] = contract{} }) // another plugin fails
			}
			add(func(n *world) { // an event of the pod
				n.schedulers[i].seen[p] = n.bound[p]
				if n.bound[p].made {
					n.schedulers[i].reserved[p] = contract{}
				}
			})
		}
		add(func(n *world) { n.schedulers[i].report, n.schedulers[i].closed = n.reported, n.reportedClosed })
		if w.kills > 0 { // a new process lists the pods and the report
			add(func(n *world) {
				n.kills--
				n.schedulers[i] = scheduler{seen: n.bound, report: n.reported, closed: n.reportedClosed}
			})
		}
	}
	add(func(n *world) { n.had, n.hadClosed = m.tick(w), n.closed })
	add(func(n *world) { n.reported, n.reportedClosed = n.had, n.hadClosed })
	if w.turns > 0 {
		add(func(n *world) { n.turns--; n.closed = !n.closed })
	}
	if w.kills > 0 { // the agent loses its state
		add(func(n *world) { n.kills--; n.had = [modelPods]contract{} })
	}
	return all
}

// deliverAll delivers all events that are under way, and then checks the state.
func (m *model) deliverAll(w world) {
	key := w.agentInput()
	if m.rested[key] {
		return
	}
	m.rested[key] = true
	w.had = m.tick(w)
	if again := m.tick(w); again != w.had {
		m.t.Fatalf("the agent does not come to rest: %+v, then %+v", w.had, again)
	}
	taken := mustSet(m.t, "")
	for p, h := range w.had {
		set := mustSet(m.t, h.set)
		few := set.Len() < modelDemands[p] && !w.closed // the pod keeps the rest if a CPU of it is reserved
		if h.made && (few || set.Len() > modelDemands[p] || !w.bound[p].made) || !set.Intersect(taken).Empty() {
			m.t.Fatalf("pod %d has %q of %+v", p, h.set, w)
		}
		taken = taken.Union(set)
	}
	s := scheduler{seen: w.bound, report: w.had, closed: w.closed}
	open := m.ledger(&s).View("n").Open()
	if pick.Compile(m.topo).All().Minus(taken).Minus(m.reservedIf(w.closed)) != open {
		m.t.Fatalf("the ledger sees %v open, and the pods hold %v: %+v", open, taken, w)
	}
}

// TestNoInterleavingLeavesAnOverlap visits the states that two schedulers, an
// agent and the API server can reach. They get there by reservations, binds,
// events, reports, one kill, and a CPU that is reserved and given back, in any
// order. In each state the test delivers all events and then checks three
// things: no CPU has two owners, each pod has what it demands or nothing, and
// the CPUs that are neither held nor reserved are open in the ledger. While the
// CPU is reserved, a pod may keep a part. With two pods it visits every state.
// With three it visits the shortest histories first and stops after a number of
// states, which is larger if TENON_TEST_LONG is 1.
func TestNoInterleavingLeavesAnOverlap(t *testing.T) {
	most := 12000
	if os.Getenv("TENON_TEST_LONG") != "" {
		most = 400000
	}
	for pods, most := range map[int]int{2: 1 << 30, 3: most} {
		m := &model{
			t: t, pods: pods, topo: machine(1, 2, 2, 1), visited: map[world]bool{}, rested: map[agentInput]bool{},
			ticks: map[agentInput][modelPods]contract{}, reserves: map[reserving]contract{},
		}
		start := world{kills: 1, turns: 2}
		queue := []world{start}
		m.visited[start] = true
		for len(queue) > 0 && len(m.visited) < most {
			w := queue[0]
			queue = queue[1:]
			m.deliverAll(w)
			for _, n := range m.next(w) {
				if !m.visited[n] {
					m.visited[n] = true
					queue = append(queue, n)
				}
			}
		}
		t.Logf("%d pods: %d states, at rest %d different ones; %d were not visited", pods, len(m.visited), len(m.rested), len(queue))
	}
}
