package loop

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/reclaim"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// reclaiming is a host that takes orders to reclaim memory.
type reclaiming struct {
	*memory
	orders []node.ReclaimOrder
}

func (r *reclaiming) Reclaim(orders []node.ReclaimOrder, mayRun func(node.WorkloadID) bool) {
	for _, o := range orders {
		if mayRun(o.Workload) {
			r.orders = append(r.orders, o)
		}
	}
}

// TestOrdersOfTheReclaimGoToTheHost checks that the host gets the orders of a tick, and
// none from an agent that observes or only plans.
func TestOrdersOfTheReclaimGoToTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		agent Agent
		want  int
	}{
		"acts":     {Agent{}, 1},
		"observes": {Agent{Shadow: new(shadow.World)}, 0},
		"plans":    {Agent{DryRun: true}, 0},
	} {
		h := &reclaiming{memory: colocated()}
		s := &h.snap
		s.MemoryTotal, s.Usage.Free = node.Some[unit.Bytes](4<<30), node.Some[unit.Bytes](0)
		s.Capabilities[node.FeatureMemoryReclaim] = node.Answer{Verdict: node.Yes}
		job := &s.Workloads[1]
		job.Usage = node.Usage{Memory: node.Some[unit.Bytes](1 << 30), Refaults: node.Some[int64](0), SlowAt: s.At.Add(time.Second)}
		job.Usage.Pressure.Memory.Some = node.Some(time.Duration(0))
		s.Knobs.Now[node.Knob{Cgroup: "be/job", File: node.FileMemory}] = node.NoMemoryLimit
		s.Knobs.Now[node.Knob{Cgroup: "be/job", File: node.FileRun}] = node.Running
		a := c.agent
		a.Host, a.Config.Reclaim = h, reclaim.Config{FreePercent: 10}
		var last []node.ReclaimOrder
		for range 3 {
			of, err := a.Step(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last = append(last, of.Reclaim.Orders()...)
		}
		if len(h.orders) != c.want || len(last) != 1 || last[0].Cgroup != "be/job" {
			t.Errorf("an agent that %s: the host got %v of %v", name, h.orders, last)
		}
	}
}
