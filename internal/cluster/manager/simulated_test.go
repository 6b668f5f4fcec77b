package manager

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const gib = unit.Bytes(1 << 30)

// A simulatedNode is a node with an agent and without a kernel. A test sets its
// resource usage. The policy and the reports are those of the real agent.
type simulatedNode struct {
	config policy.Config
	state  policy.State
	snap   node.Snapshot
	system unit.MilliCPU
	held   unit.Bytes // memory that the system uses
	work   []job
	pace   nodereport.Pace
}

// A job is a pod of a simulated node. A negative request means that the pod has
// no request. A negative use means that the pod was not measured.
type job struct {
	class       node.Class
	asked, used unit.MilliCPU
	wants, has  unit.Bytes
	ran         time.Duration
}

func newSimulated(cpus int, memory unit.Bytes, c overcommit.Config) *simulatedNode {
	s := &simulatedNode{config: policy.Config{NodeCPUs: facts.NodeCPUs{LendLSR: true}, Overcommit: c}}
	s.snap = node.Snapshot{At: epoch, MemoryTotal: node.Some(memory), Busy: map[unit.CPU]time.Duration{}}
	for c := range cpus {
		s.snap.Topology.CPUs = append(s.snap.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c)})
		s.snap.Busy[unit.CPU(c)] = 0
	}
	return s
}

// pass advances the time, and then makes a decision.
func (s *simulatedNode) pass(every time.Duration) {
	s.snap.At = s.snap.At.Add(every)
	busy := every * time.Duration(s.system) / 1000
	used := s.held
	s.snap.Workloads = nil
	for i := range s.work {
		j := &s.work[i]
		w := node.Workload{ID: node.WorkloadID(string(rune('a' + i))), Class: j.class, Cgroup: node.CgroupPath(string(j.class) + "/" + string(rune('a'+i))), ContentionRoot: node.CgroupPath(j.class)}
		if j.used >= 0 {
			j.ran += every * time.Duration(j.used) / 1000
			busy += every * time.Duration(j.used) / 1000
			w.Usage.CPU = node.Some(j.ran)
		}
		if j.has >= 0 {
			w.Usage.Memory, w.Usage.WorkingSet = node.Some(j.has), node.Some(j.has)
			used += j.has
		}
		if j.asked >= 0 {
			w.CPURequest = node.Some(j.asked)
		}
		if j.wants >= 0 {
			w.MemoryRequest = node.Some(j.wants)
		}
		s.snap.Workloads = append(s.snap.Workloads, w)
	}
	all := map[unit.CPU]time.Duration{}
	for c, t := range s.snap.Busy {
		all[c] = t + busy/time.Duration(len(s.snap.Busy))
	}
	s.snap.Busy = all
	s.snap.Usage = node.Usage{Memory: node.Some(used), WorkingSet: node.Some(used)}
	s.state, _ = policy.Decide(s.config, s.state, s.snap)
}

// report returns the present report of the agent.
func (s *simulatedNode) report() v1alpha1.NodeReportStatus {
	v := nodereport.View{Tick: tick.Tick{Snapshot: s.snap, Batch: s.state.Batch.Offer}, Policy: s.config}
	for _, j := range s.work {
		if j.class == node.BE {
			v.Pods.BatchCPU, v.Pods.BatchMemory = v.Pods.BatchCPU+max(0, j.asked), v.Pods.BatchMemory+max(0, j.wants)
		}
	}
	return nodereport.Status(v, s.pace.Conditions())
}

// node returns the Node object, with the amounts that the kubelet reserves.
func (s *simulatedNode) node(reservedCPU unit.MilliCPU, reservedMemory unit.Bytes) *corev1.Node {
	total := s.snap.MemoryTotal.Or(0)
	n := machineOf(int64(len(s.snap.Busy)), int64(total/gib))
	n.Status.Allocatable[corev1.ResourceCPU] = cpu.reportQuantity(int64(len(s.snap.Busy))*1000 - int64(reservedCPU))
	n.Status.Allocatable[corev1.ResourceMemory] = memory.reportQuantity(int64(total - reservedMemory))
	return n
}

// reference computes Koordinator's formula for constant load, from its
// description (batchresource/plugin.go of the version that
// reference/koordinator.md names). There is one difference. With
// maxUsageRequest, a pod without a metric counts with its request. Koordinator
// omits such a pod by mistake.
func (s *simulatedNode) reference(k kind, n *corev1.Node) int64 {
	r, c := k.reclaim(s.config.Overcommit), s.config.Overcommit
	f := factsOf(n)
	capacity, reserved, system := f.Capacity[k], max(f.Reserved[k], int64(c.ReservedCPU)), int64(s.system)
	if k == memory {
		reserved, system = max(f.Reserved[k], int64(c.ReservedMemory)), int64(s.held)
	}
	var used, asked, most int64
	for _, j := range s.work {
		if j.class == node.BE {
			continue
		}
		u, a := int64(j.used), max(0, int64(j.asked))
		if k == memory {
			u, a = int64(j.has), max(0, int64(j.wants))
		}
		if u < 0 || k == cpu && j.class == node.LSE {
			u = a
		}
		used, asked, most = used+u, asked+a, most+max(u, a)
	}
	margin := capacity * (100 - int64(r.ThresholdPercent)) / 100
	batch := capacity - margin - max(system, reserved) - used
	switch r.Policy {
	case overcommit.ByRequest:
		batch = capacity - margin - reserved - asked
	case overcommit.ByMaxUsageRequest:
		batch = capacity - margin - max(system, reserved) - most
	}
	if p, limited := r.LimitPercent.Value(); limited {
		batch = min(batch, capacity*int64(p)/100)
	}
	return max(0, batch)
}

// TestAnHourOfRandomLoadIsCalm simulates one node for an hour. The load changes
// at random, the agent ticks each second and sends reports at its usual pace,
// and a manager publishes them. The manager may write the node only once in
// Pause, except for a large decrease. The published amount may exceed the
// reported one by at most a ninth. It may also exceed it by the requests of
// running pods, which the manager never takes away. Large increases must not be
// more frequent than the agent allows.
func TestAnHourOfRandomLoadIsCalm(t *testing.T) {
	for seed := range uint64(5) {
		h := runAnHour(t, seed)
		t.Logf("load %d: %d reports, %d writes (%d of them within %v of another, all because of a fall), %d times more, held in %d seconds", seed, h.reports, h.writes, h.early, Pause, h.raises, h.held)
		if h.writes < 20 || h.writes > 360 || h.held == 0 {
			t.Errorf("load %d: %d writes in an hour, held in %d seconds", seed, h.writes, h.held)
		}
	}
}

// TestANodeThatServicesHardlyUseTakesNoNewBatchWork simulates a node with batch work
// whose services request less than minServiceRequestPercent. The node keeps what running
// pods request, and offers no more. When a service comes, it offers what is left again.
func TestANodeThatServicesHardlyUseTakesNoNewBatchWork(t *testing.T) {
	c := colocationDefaults()
	c.Window, c.Look, c.MinServicePercent = 5*time.Minute, time.Minute, 20
	s := newSimulated(16, 64*gib, c)
	s.system = 400
	s.work = []job{{class: node.LS, asked: 1000, used: 300, wants: gib, has: gib}, {class: node.BE, asked: 2500, used: 2000, wants: 3 * gib, has: gib}}
	n := giveBatch(s.node(0, 0), 5200, 30<<30)
	decide := func() Verdict {
		for range 20 {
			s.pass(20 * time.Second)
		}
		status := s.report()
		return Decide(Case{At: s.snap.At, Rules: c, Node: factsOf(n), Report: Sighting{Batch: &status.Batch, Seen: s.snap.At, Fresh: true}})
	}
	v := decide()
	if v.State != Held || v.Want[cpu].Or(-1) != 2500 || v.Want[memory].Or(-1) != int64(3*gib) {
		t.Errorf("while services hardly use it: %s %s: %s", v.State, amounts(v.Want), v.Reason)
	}
	n = giveBatch(s.node(0, 0), 2500, int64(3*gib))
	s.work = append(s.work, job{class: node.LS, asked: 4000, used: 300, wants: gib, has: gib})
	if v := decide(); v.State != Published || v.Want[cpu].Or(0) < 8000 {
		t.Errorf("after a service came: %s %s: %s", v.State, amounts(v.Want), v.Reason)
	}
}
