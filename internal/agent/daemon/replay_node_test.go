package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/sim"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A busyNode is a simulated node for the record of an hour. Services start and
// stop, pods of batch work start, end and get new names, and other programs
// write knobs. The busyNode replaces the host, and also does the work of the
// daemon before and after each tick. The number of the second and a seed
// determine all its events.
type busyNode struct {
	*sim.Node
	t      *testing.T
	agent  *loop.Agent
	before policy.State // the state of the policies before this tick
	wake   chan tick.Event
	config policy.Config

	random    *rand.Rand
	begun     time.Time
	second    int // number of seconds that have passed
	conflicts writeConflicts
	asked     node.Request
	shown     time.Time // time of the last snapshot

	pods   []*pod // in the order of their start
	number int
	ending map[node.CgroupPath]node.Run
	waits  map[node.WorkloadID]node.RunQueueDelay
	waited []node.Wait
}

// A pod is a workload on the simulated node, with its processes.
type pod struct {
	node.Workload
	pids     []int
	ends     int  // the second at which it ends by itself; 0: never
	stubborn bool // it starts a process again after a request to end
}

const busyMemory = 32 << 30

func newBusyNode(t *testing.T) *busyNode {
	t.Helper()
	n := &busyNode{
		Node: sim.New(sim.Options{
			RecursiveProtection: true, // so that replays need the fact, too
			Topology:            conformance.Topology(1, 6, 2),
			Isolation:           &sim.Isolation{Features: []node.Feature{node.FeatureSchedExt, node.FeatureCoreSched}},
		}),
		t: t, wake: make(chan tick.Event, 16), begun: time.Now(), random: rand.New(rand.NewPCG(3, 4)),
		ending: map[node.CgroupPath]node.Run{}, waits: map[node.WorkloadID]node.RunQueueDelay{},
	}
	n.config = policy.Config{
		CPUQOS:   isolation.Config{Enable: true},
		Suppress: suppress.Config{Enable: true, ThresholdPercent: 65, MinPercent: 5, Policy: suppress.ByQuota},
		Memory:   memory.Config{Classes: map[node.Class]memory.Shares{node.LS: {MinPercent: 50, LowPercent: 100}}},
		Overcommit: overcommit.Config{
			Enable: true, CPU: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage},
			Window: 5 * time.Minute, Look: time.Minute, DegradeAfter: 15 * time.Minute, RenewAfter: 5 * time.Minute, WorthPPM: 100_000,
		},
		Evict: evict.Config{Memory: evict.MemoryConfig{ThresholdPercent: 80, LowerPercent: 70}, Grace: 5 * time.Second},
	}
	for _, name := range []string{"web", "db", "search"} {
		n.serve(name, node.LS)
	}
	n.serve("pinned", node.LSR)
	for range 4 {
		n.work(1 << 30)
	}
	return n
}

// must fails the test if an operation of the simulation has failed.
func (n *busyNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("second %d: %v", n.second, err)
	}
}

// start starts a pod with one process.
func (n *busyNode) start(p *pod, memory unit.Bytes, demand unit.MilliCPU) {
	n.must(n.MakeGroup(p.Cgroup))
	n.Manage(p.Workload)
	n.pods = append(n.pods, p)
	n.fork(p, memory, demand)
}

// fork starts a process in a pod.
func (n *busyNode) fork(p *pod, memory unit.Bytes, demand unit.MilliCPU) {
	pid, err := n.Start(p.Cgroup, memory)
	n.must(err)
	n.must(n.Demand(pid, demand))
	p.pids = append(p.pids, pid)
}

// serve starts a service. A restarted service gets a new cgroup.
func (n *busyNode) serve(name string, class node.Class) {
	n.number++
	p := &pod{Workload: node.Workload{
		ID: node.WorkloadID(name), Class: class, Rule: "services", Cgroup: node.CgroupPath(fmt.Sprintf("ls/%s-%d", name, n.number)), ContentionRoot: "ls",
		MemoryRequest: node.Some[unit.Bytes](2 << 30), // services use half of it
	}}
	if class == node.LSR {
		p.CPURequest = node.Some(unit.CPUs(1))
	} else {
		p.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
	}
	n.start(p, 1<<30, unit.MilliCPU(500+n.random.IntN(1500)))
}

// work starts a pod of batch work.
func (n *busyNode) work(memory unit.Bytes) {
	n.number++
	name := fmt.Sprintf("job-%03d", n.number)
	p := &pod{
		Workload: node.Workload{
			ID: node.WorkloadID(name), Class: node.BE, Rule: "batch", Cgroup: node.CgroupPath("be/" + name), ContentionRoot: "be",
			Priority: n.random.IntN(3) * 100,
		},
		ends: n.second + 60 + n.random.IntN(300), stubborn: n.number%3 == 0,
	}
	if n.number%4 == 0 {
		p.CPULimit = node.Some(unit.MilliCPU(500 + 100*n.random.IntN(10)))
	}
	if n.number%3 == 0 {
		p.Weight = node.Some(unit.WeightOf(int64(20 + n.random.IntN(300))))
	}
	n.start(p, memory, unit.MilliCPU(500+n.random.IntN(4000)))
}

// end ends the processes of a pod, then removes its cgroup.
func (n *busyNode) end(p *pod) {
	for _, pid := range p.pids {
		if n.Alive(pid) {
			n.must(n.Stop(pid))
		}
	}
	n.must(n.RemoveGroup(p.Cgroup))
	n.Forget(p.ID)
	delete(n.ending, p.Cgroup)
	n.pods = slices.DeleteFunc(n.pods, func(o *pod) bool { return o == p })
}

// podsOf returns the pods of a class.
func (n *busyNode) podsOf(c node.Class) []*pod {
	var all []*pod
	for _, p := range n.pods {
		if p.Class == c {
			all = append(all, p)
		}
	}
	return all
}

// service returns the pod of a service.
func (n *busyNode) service(id node.WorkloadID) *pod {
	return n.pods[slices.IndexFunc(n.pods, func(p *pod) bool { return p.ID == id })]
}

func (n *busyNode) send(e tick.Event) {
	e.At = time.Now()
	n.wake <- e
}

// Snapshot advances the simulator to the present time and returns the state of
// the node. It adds values that the simulator does not have: the waits, and the
// memory of the machine.
func (n *busyNode) Snapshot(ctx context.Context) (node.Snapshot, error) {
	n.before = n.agent.State()
	for int(time.Since(n.begun)/time.Second) > n.second {
		n.second++
		n.happen()
		n.Advance(time.Second)
	}
	n.agent.Config = n.config
	s, err := n.Node.Snapshot(ctx)
	if err != nil {
		return s, err
	}
	s.At = s.At.Add(time.Since(n.begun) % time.Second) // the second fraction of a tick that an event caused
	s.MemoryTotal = node.Some[unit.Bytes](busyMemory)
	s.Isolation.Request = n.asked
	s.Isolation.LSOn = map[unit.CPU]time.Duration{}
	for c := range s.Topology.All().All() {
		s.Isolation.LSOn[c] = time.Duration(0)
		if c%3 == 0 {
			s.Isolation.LSOn[c] = time.Duration(n.second) * 200 * time.Millisecond
		}
	}
	s.Waits = slices.Clone(n.waited)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		w.Usage.Delay = n.waits[w.ID]
		if n.ending[w.Cgroup] != "" && s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}] != node.Value(node.Ended) {
			w.Ending = n.ending[w.Cgroup]
		}
		if (n.second+i)%97 == 0 { // counters that cannot be read
			w.Usage.CPU, w.Usage.Memory = node.Maybe[time.Duration]{}, node.Maybe[unit.Bytes]{}
		}
	}
	if n.second%113 == 0 {
		s.Busy, s.Waits = nil, nil
	}
	n.shown = s.At
	n.conflicts.see(&s)
	return s, nil
}

// Apply performs a step. From time to time it first ends a pod of batch work.
func (n *busyNode) Apply(ctx context.Context, s plan.Step) error {
	if s.Knob.File == node.FileSchedulerGroup && s.To != node.Value(node.SchedulerGroup{}) && n.random.IntN(40) == 0 {
		for _, p := range n.podsOf(node.BE) {
			if p.Cgroup == s.Knob.Cgroup {
				n.end(p)
			}
		}
	}
	if err := n.Node.Apply(ctx, s); err != nil {
		return err
	}
	n.conflicts.note(s, s.To)
	if v, is := s.To.(node.Run); is && v.EndsProcesses() {
		for _, p := range n.pods {
			if p.Cgroup != s.Knob.Cgroup {
				continue
			}
			n.ending[p.Cgroup] = v
			if p.stubborn && v == node.AskedToEnd {
				n.fork(p, 3<<30, 200)
			}
		}
	}
	return nil
}

// happen simulates the events of one second.
func (n *busyNode) happen() {
	n.load()
	n.changePods()
	n.wait()
	n.interfere()
	n.isolate()
	n.configure()
}

// load changes the demands of all workloads.
func (n *busyNode) load() {
	for _, p := range n.pods {
		if p.Class == node.BE && n.second%5 != 0 {
			continue
		}
		for _, pid := range p.pids {
			if n.Alive(pid) {
				n.must(n.Demand(pid, unit.MilliCPU(100+n.random.IntN(2500))))
			}
		}
	}
}

// changePods starts and ends pods. It removes pods whose processes have ended.
func (n *busyNode) changePods() {
	for _, p := range n.podsOf(node.BE) {
		dead := !slices.ContainsFunc(p.pids, n.Alive)
		if dead || p.ends <= n.second {
			n.end(p)
		}
	}
	if n.second%15 == 0 && len(n.podsOf(node.BE)) < 14 {
		n.work(unit.Bytes(200+n.random.IntN(800)) << 20)
		n.send(tick.Event{Kind: tick.EventCgroups})
	}
	if n.second%40 == 0 { // one pod is renamed
		if all := n.podsOf(node.BE); len(all) > 0 {
			p := all[n.random.IntN(len(all))]
			n.Forget(p.ID)
			p.ID = node.WorkloadID(fmt.Sprintf("renamed-%d", n.second))
			n.Manage(p.Workload)
		}
	}
	if n.second%300 == 0 { // one service is restarted
		old := n.service("search")
		n.end(old)
		n.serve("search", node.LS)
		n.send(tick.Event{Kind: tick.EventCgroups})
	}
	if n.second%700 == 0 {
		n.serve(fmt.Sprintf("night-%d", n.second), node.LS)
	}
	if n.second%700 == 350 {
		for _, p := range n.podsOf(node.LS) {
			if strings.HasPrefix(string(p.ID), "night-") {
				n.end(p)
			}
		}
	}
	if at := n.second % 1500; at >= 500 && at < 560 && at%6 == 0 { // memory runs short
		n.work(5 << 30)
	}
	if at := n.second % 1500; at >= 500 && at < 620 && at%7 == 0 {
		if all := n.podsOf(node.BE); len(all) > 0 {
			n.fork(all[n.random.IntN(len(all))], 1<<30, 300)
		}
	}
}

// wait adds the waits of one second. From second 600 to 840, services miss
// their objective because of batch work.
func (n *busyNode) wait() {
	bad := n.second >= 600 && n.second < 840
	n.waited = nil
	for _, p := range n.podsOf(node.LS) {
		d := n.waits[p.ID]
		counts := make([]uint64, 29)
		copy(counts, d.Counts)
		counts[4+n.random.IntN(4)] += 900
		sum := 20 * time.Millisecond
		if bad && p.ID != "db" {
			counts[15] += 100 // 8 ms
			sum += 800 * time.Millisecond
		}
		n.waits[p.ID] = node.RunQueueDelay{Sum: node.Some(d.Sum.Or(0) + sum), Counts: counts}
		n.waited = append(n.waited, node.Wait{Waiter: p.ID, Runner: node.RestOf(node.BE), Time: n.waits[p.ID].Sum.Or(0) * 3 / 4})
	}
	if bad && n.second%2 == 0 {
		n.send(tick.Event{Kind: tick.EventDelay, Workload: "web", Text: "3 waits of more than 6ms in 50ms"})
	}
}

// interfere writes Tenon's knobs like another program. It writes the knobs of a
// service for some minutes, and the knobs of batch work from time to time.
func (n *busyNode) interfere() {
	if n.second >= 2000 && n.second < 2400 && n.second%2 == 0 {
		n.must(n.WriteFile(n.service("db").Cgroup, "memory.low", "0"))
	}
	if n.second%200 == 50 {
		n.must(n.WriteFile("be", "cpu.max", "max 100000"))
	}
}

// isolate changes which isolation mechanisms the node supports, so that Tenon
// changes to another mechanism and back.
func (n *busyNode) isolate() {
	switch n.second {
	case 300, 2500:
		n.Eject("runnable task stall")
		n.send(tick.Event{Kind: tick.EventMechanism, Text: "runnable task stall"})
	case 1200:
		n.Load("scx_other")
	case 1290:
		n.Load("")
	case 1700, 3000:
		n.asked = node.Request{At: n.shown, Mechanism: node.MechanismCoreSched}
		n.send(tick.Event{Kind: tick.EventPin, Text: "core_sched is pinned by hand"})
	case 1780:
		n.asked.Mechanism = node.MechanismSiblings
		n.send(tick.Event{Kind: tick.EventPin})
	case 1880, 3060:
		n.asked.Mechanism = ""
		n.send(tick.Event{Kind: tick.EventPin, Text: "the choice is the configuration's again"})
	}
}

// configure changes the configuration.
func (n *busyNode) configure() {
	c := &n.config
	switch n.second {
	default:
		return
	case 420:
		c.Suppress.ThresholdPercent = 45
	case 1000:
		c.Suppress.Policy = suppress.ByCPUSet
	case 1100:
		c.Suppress.Policy = suppress.ByQuota
		c.CPUQOS.Hold = node.Some(time.Millisecond)
	case 1400:
		c.CPUQOS.Identity = map[node.Class]node.Identity{node.LS: node.IdentityHigh}
	case 1450:
		c.CPUQOS.Identity = nil
	case 2600:
		c.CPUQOS.Enable = false
	case 2660:
		c.CPUQOS.Enable = true
	case 2800:
		c.CPUQOS.Mechanism = node.MechanismSiblings
	case 2880:
		c.CPUQOS.Mechanism, c.Suppress.Enable = "", false
	case 3200:
		c.Suppress.Enable, c.Suppress.ThresholdPercent = true, 70
		c.NodeCPUs = facts.NodeCPUs{Reserved: unit.CPUs(1), LendLSR: true}
	}
	n.send(tick.Event{Kind: tick.EventConfig})
}
