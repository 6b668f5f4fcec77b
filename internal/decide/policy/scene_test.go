package policy

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A scene is a simulated node. It has knobs and growing counters. It refuses
// the same writes as cgroup v1.
type scene struct {
	config Config
	state  State
	snap   node.Snapshot
	wants  []plan.Want // wants of the last decision
	// fails says which steps fail; nil: no step fails.
	fails func(plan.Step) bool

	busy   map[unit.CPU]time.Duration
	used   map[node.WorkloadID]time.Duration
	perCPU map[node.WorkloadID]map[unit.CPU]time.Duration
	ran    map[node.WorkloadID][2]int64 // total over all spells
	held   map[node.WorkloadID]time.Duration
	delay  map[node.WorkloadID]node.RunQueueDelay
	// answered are the requests of workloads at the last reading.
	answered map[node.WorkloadID]node.Requests
	named    map[string]bool                // the words that the scenario has used
	laws     map[node.WorkloadID]law        // how services wait, by the mechanism in use
	memory   map[node.WorkloadID]unit.Bytes // memory use of workloads; "node" is the whole node
}

func newScene(topo node.Topology, version int) *scene {
	n := &scene{
		busy:   map[unit.CPU]time.Duration{},
		used:   map[node.WorkloadID]time.Duration{},
		perCPU: map[node.WorkloadID]map[unit.CPU]time.Duration{},
		ran:    map[node.WorkloadID][2]int64{},
		held:   map[node.WorkloadID]time.Duration{},
	}
	for _, c := range topo.CPUs {
		n.busy[c.ID] = 0
	}
	nodes := map[node.NUMANode]bool{}
	for _, c := range topo.CPUs {
		nodes[c.NUMA] = true
	}
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		topo.Memory = append(topo.Memory, node.NUMAMemory{NUMA: n, Size: 64 << 30 / unit.Bytes(len(nodes))})
	}
	n.snap = node.Snapshot{
		At:           time.Unix(0, 0),
		Topology:     topo,
		MemoryTotal:  node.Some(unit.Bytes(64 << 30)),
		Capabilities: node.Capabilities{node.FeatureCPUIdle: {Verdict: node.Yes}, node.FeatureMemoryProtect: {Verdict: node.Yes}, node.FeatureCPUBurst: {Verdict: node.Yes}},
		Knobs: node.Knobs{
			Kernel: node.Kernel{CgroupVersion: version, PageSize: 4096},
			Now:    map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
		},
	}
	return n
}

// machine returns a topology with the given numbers of NUMA nodes, caches and
// CPUs. The threads of a core have consecutive numbers.
func machine(cpus, smt, caches, numa int) node.Topology {
	var t node.Topology
	for c := range cpus {
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(c / smt), L3: node.CacheID(c * caches / cpus),
			NUMA: node.NUMANode(c * numa / cpus), Socket: node.SocketID(c * numa / cpus),
		})
	}
	return t
}

// add adds a managed workload. It creates the cgroup and its ancestors as the
// kernel does. On cgroup v1 a new cgroup has the CPUs of its parent.
func (n *scene) add(w node.Workload) {
	n.snap.Workloads = append(n.snap.Workloads, w)
	n.makeGroup(w.Cgroup)
	n.makeGroup(w.ContentionRoot)
}

func (n *scene) makeGroup(p node.CgroupPath) {
	now := n.snap.Knobs.Now
	if _, exists := now[node.Knob{Cgroup: p, File: node.FileCPUWeight}]; exists || p == "" {
		return
	}
	n.makeGroup(p.Parent())
	now[node.Knob{Cgroup: p, File: node.FileCPUWeight}] = node.CPUWeight{Weight: unit.WeightOf(100)}
	now[node.Knob{Cgroup: p, File: node.FileCPUMax}] = node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	now[node.Knob{Cgroup: p, File: node.FileMemory}] = node.NoMemoryLimit
	for _, l := range node.LimitFiles {
		if !n.snap.Knobs.Kernel.Lacks(l.File) {
			now[node.Knob{Cgroup: p, File: l.File}] = l.Of(node.NoMaximum)
		}
	}
	n.makeIO(p)
	n.showIsolation()
	set, mems := node.CPUs{}, node.CPUs{}
	if n.snap.Knobs.Kernel.CgroupVersion == 1 {
		set.Set = n.snap.Topology.All()
		for _, c := range n.snap.Topology.CPUs {
			mems.Set = mems.Set.With(unit.CPU(c.NUMA))
		}
		if up, ok := now[node.Knob{Cgroup: p.Parent(), File: node.FileCPUs}].(node.CPUs); ok {
			set = up
		}
	}
	now[node.Knob{Cgroup: p, File: node.FileCPUs}] = set
	now[node.Knob{Cgroup: p, File: node.FileMems}] = mems
}

// A spell is a time with the CPU usage of all work in it.
type spell struct {
	every   time.Duration
	use     map[node.WorkloadID]unit.MilliCPU
	on      map[node.WorkloadID]unit.CPUSet // the CPUs that each workload used; absent: not counted
	system  unit.MilliCPU
	missing map[node.WorkloadID]bool // workloads without a counter
	waits   []waiting
	// throttled holds two numbers for a workload: the quota periods in which it
	// was throttled, and the periods in which it ran.
	throttled map[node.WorkloadID][2]int64
	// held is the time for which the quota of a workload throttled it.
	held map[node.WorkloadID]time.Duration
	// threads holds two numbers for a workload: the number of its threads, and the
	// number of its runnable threads.
	threads map[node.WorkloadID][2]int
	// answered holds two numbers for a workload whose requests are read at the end: those
	// that were answered in time, and the others.
	answered map[node.WorkloadID][2]uint64
	blind    bool // the use of the CPUs is unknown
	// unthrottled says that the throttling is unknown.
	unthrottled bool
	violated    bool // a service waited
}

// pass adds the CPU usage of a spell to the counters, and copies the counters
// into the snapshot.
func (n *scene) pass(p spell) {
	n.snap.At, n.snap.SLOViolated = n.snap.At.Add(p.every), p.violated
	n.busy = maps.Clone(n.busy)
	n.wait(append(n.waitsByLaw(p.every), p.waits...))
	n.answer(p.answered)
	for id, more := range p.throttled {
		n.ran[id] = [2]int64{n.ran[id][0] + more[0], n.ran[id][1] + more[1]}
	}
	for id, more := range p.held {
		n.held[id] += more
	}
	spend := func(m unit.MilliCPU, on unit.CPUSet, counter map[unit.CPU]time.Duration) {
		if on.Empty() {
			return
		}
		each := time.Duration(float64(p.every) * m.Cores() / float64(on.Len()))
		for c := range on.All() {
			n.busy[c] += each
			if counter != nil {
				counter[c] += each
			}
		}
	}
	all := n.snap.Topology.All()
	var anywhere unit.MilliCPU
	for id, m := range p.use {
		n.used[id] += time.Duration(float64(p.every) * m.Cores())
		if on, known := p.on[id]; known {
			n.perCPU[id] = maps.Clone(n.perCPU[id])
			if n.perCPU[id] == nil {
				n.perCPU[id] = map[unit.CPU]time.Duration{}
				for c := range all.All() {
					n.perCPU[id][c] = 0
				}
			}
			spend(m, on, n.perCPU[id])
		} else {
			anywhere += m
		}
	}
	spend(anywhere+p.system, all, nil)
	n.snap.Busy = n.busy
	if p.blind {
		n.snap.Busy = nil
	}
	workloads := n.snap.Workloads
	n.snap.Workloads = make([]node.Workload, len(workloads))
	for i, w := range workloads {
		w.Usage = node.Usage{PerCPU: n.perCPU[w.ID], Delay: n.delay[w.ID], Requests: n.answered[w.ID]}
		if !p.missing[w.ID] {
			w.Usage.CPU = node.Some(n.used[w.ID])
		}
		if ran := n.ran[w.ID]; !p.unthrottled {
			w.Usage.ThrottledPeriods, w.Usage.Periods = node.Some(ran[0]), node.Some(ran[1])
			w.Usage.Throttled = node.Some(n.held[w.ID])
		}
		if count, known := p.threads[w.ID]; known {
			w.Usage.Threads, w.Usage.Runnable = node.Some(count[0]), node.Some(count[1])
		}
		n.snap.Workloads[i] = w
	}
	n.applyCharges()
	n.countRunTime()
}

// decide makes a decision and applies all steps.
func (n *scene) decide(t testing.TB) []plan.Step {
	t.Helper()
	n.state, n.wants = Decide(n.config, n.state, n.snap)
	return n.apply(t, plan.Diff(n.snap.Knobs, n.wants))
}

// apply applies steps, and checks that the kernel refuses none.
func (n *scene) apply(t testing.TB, steps []plan.Step) []plan.Step {
	t.Helper()
	for _, s := range steps {
		if why := n.refusal(s); why != "" {
			t.Errorf("the kernel refuses %v: %s", s, why)
			continue
		}
		if n.stops(s) || n.fails != nil && n.fails(s) {
			continue
		}
		if _, touched := n.snap.Knobs.Before[s.Knob]; !touched && !s.Knob.File.OrdersScheduler() {
			n.snap.Knobs.Before[s.Knob] = s.From
		}
		if s.Knob.File == node.FileScheduler && !s.To.(node.Scheduler).Loaded {
			n.forgetOrders()
		}
		if s.Release {
			delete(n.snap.Knobs.Before, s.Knob)
		}
		n.snap.Knobs.Now[s.Knob] = s.To
		n.applyDivision(s)
	}
	if wrong := n.wrongIsolation(); wrong != "" {
		t.Error(wrong)
	}
	return steps
}

// refusal returns why cgroup v1 refuses a step, or "" if it does not. On v1 a
// child may never have more than its parent.
func (n *scene) refusal(s plan.Step) string {
	if n.snap.Knobs.Kernel.CgroupVersion != 1 {
		return ""
	}
	for k, v := range n.snap.Knobs.Now {
		if k.File != s.Knob.File || k == s.Knob {
			continue
		}
		parent, child := node.Value(nil), node.Value(nil)
		switch {
		case k.Cgroup == s.Knob.Cgroup.Parent():
			parent, child = v, s.To
		case k.Cgroup.Parent() == s.Knob.Cgroup:
			parent, child = s.To, v
		default:
			continue
		}
		switch p := parent.(type) {
		case node.CPUs:
			if c := child.(node.CPUs); c.Set.Empty() || !p.Set.Contains(c.Set) {
				return fmt.Sprintf("%v is not within %v", c, p)
			}
		case node.CPUMax:
			if c := child.(node.CPUMax); facts.IsQuota(c) && facts.IsQuota(p) && c.CompareWidth(p) > 0 {
				return fmt.Sprintf("%v is more than %v", c, p)
			}
		}
	}
	return ""
}
