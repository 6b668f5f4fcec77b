package policy

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// watchedScene returns a scene with one service, after some ticks of one second.
func watchedScene(t *testing.T, c overcommit.Config, ticks int, use unit.MilliCPU) *scene {
	t.Helper()
	n := newScene(machine(16, 1, 1, 1), 2)
	n.config.Overcommit = c
	n.memory = map[node.WorkloadID]unit.Bytes{"node": 0}
	n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "web", ContentionRoot: "web"})
	n.spend(t, ticks, time.Second, map[node.WorkloadID]unit.MilliCPU{"web": use})
	return n
}

func (n *scene) spend(t *testing.T, ticks int, every time.Duration, use map[node.WorkloadID]unit.MilliCPU) {
	t.Helper()
	for range ticks {
		n.pass(spell{every: every, use: use})
		n.decide(t)
	}
}

// subtracted returns the amount that the term of a class subtracts from
// batch-cpu.
func (n *scene) subtracted(name node.TermName) unit.MilliCPU {
	for _, t := range n.state.Batch.Offer.CPU.Terms {
		if t.Name == name {
			return -t.Amount
		}
	}
	return 0
}

// TestANewServiceCountsInFull checks that the use of a new service is averaged
// over its own lifetime, and not over the whole window.
func TestANewServiceCountsInFull(t *testing.T) {
	n := watchedScene(t, colocation(), 200, 0)
	n.add(node.Workload{ID: "api", Class: node.LSR, Cgroup: "api", ContentionRoot: "api"})
	n.spend(t, 12, time.Second, map[node.WorkloadID]unit.MilliCPU{"api": 3000})
	if got := n.subtracted("LSR"); got != 3000 {
		t.Errorf("after 12 s at 3000m it counts as %v", got)
	}
}

// TestACPUThatGoesOfflineMakesNoRate takes a CPU offline and online again. The
// counter of this CPU leaves the sum and comes back, and this must not look
// like use.
func TestACPUThatGoesOfflineMakesNoRate(t *testing.T) {
	n := watchedScene(t, colocation(), 70, 1000)
	all := n.snap.Topology
	n.snap.Topology.CPUs = all.CPUs[:12]
	n.spend(t, 3, time.Second, map[node.WorkloadID]unit.MilliCPU{"web": 1000})
	if got := n.subtracted(node.TermNode); got > 10 {
		t.Errorf("after four CPUs went offline the system uses %v", got)
	}
	n.snap.Topology = all
	n.busy[15] += 10 * time.Second // it was busy while it was not counted
	n.spend(t, 70, time.Second, map[node.WorkloadID]unit.MilliCPU{"web": 1000})
	if got := n.subtracted(node.TermNode); got > 10 {
		t.Errorf("after they came back the system uses %v", got)
	}
}

// TestARestartedServiceKeepsItsHistory checks that a service that ends and
// starts again within half an hour keeps its history.
func TestARestartedServiceKeepsItsHistory(t *testing.T) {
	c := colocation()
	c.Peak = overcommit.PeakPrediction{Enable: true, ColdStart: time.Minute}
	busy, quiet := map[node.WorkloadID]unit.MilliCPU{"web": 4000}, map[node.WorkloadID]unit.MilliCPU{}
	for gone, want := range map[time.Duration]bool{10 * time.Minute: true, 40 * time.Minute: false} {
		n := watchedScene(t, c, 1, 0)
		n.spend(t, 30, time.Minute, busy)
		web := n.snap.Workloads
		n.snap.Workloads = nil
		n.spend(t, int(gone/time.Minute), time.Minute, quiet)
		n.snap.Workloads = web
		n.used["web"] = 0
		n.spend(t, 3, time.Minute, quiet)
		if got := n.subtracted("LS") > 4000; got != want {
			t.Errorf("gone for %v, it counts as %v", gone, n.subtracted("LS"))
		}
		if h, known := n.state.Batch.Demand.Peaks.Past["web"]; !known || h.Gone != 0 || h.Watched > 40*time.Minute {
			t.Errorf("back again after %v, its past is %+v", gone, h)
		}
	}
}
