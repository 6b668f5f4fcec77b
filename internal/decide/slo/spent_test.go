package slo

import (
	"encoding/json"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A spentScene is a service with an objective for its requests on a node of which
// everything is measured. Each number is what a counter grows by in a second.
type spentScene struct {
	*requestScene
	cpu, others, steal, throttled time.Duration
	memory, io                    time.Duration // stalls of the service
	nodeMemory, nodeIO            time.Duration // stalls of any work
	ownStalls                     bool          // those of the service are known
	ownMemory, batchMemory        unit.Bytes    // what they hold
	ownRefaults, batchRefaults    int64
	waited                        time.Duration // for a CPU on which no thread ran

	stalls struct{ memory, io time.Duration } // of the service until now
}

func newSpentScene(t *testing.T) *spentScene {
	b := &spentScene{requestScene: newRequestScene(t), cpu: 50 * ms, others: time.Second, ownStalls: true, ownMemory: 1 << 30, batchMemory: 1 << 30}
	b.s.MemoryTotal = node.Some[unit.Bytes](64 << 30)
	b.web().Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, kernelBuckets)}
	return b
}

// pass lets seconds pass.
func (b *spentScene) pass(seconds int) Judgement {
	grow := func(m *node.Maybe[time.Duration], by time.Duration) { *m = node.Some(m.Or(0) + by) }
	var j Judgement
	for range seconds {
		web, train, s := &b.s.Workloads[0].Usage, &b.s.Workloads[1].Usage, &b.s.Usage
		grow(&web.CPU, b.cpu)
		grow(&web.Throttled, b.throttled)
		grow(&web.Delay.Sum, b.waited)
		grow(&s.CPU, b.cpu+b.others)
		grow(&s.Steal, b.steal)
		web.Pressure = node.Pressure{}
		grow(&s.Pressure.Memory.Some, max(b.memory, b.nodeMemory))
		grow(&s.Pressure.IO.Some, max(b.io, b.nodeIO))
		b.stalls.memory, b.stalls.io = b.stalls.memory+b.memory, b.stalls.io+b.io
		if b.ownStalls {
			web.Pressure.Memory.Some, web.Pressure.IO.Some = node.Some(b.stalls.memory), node.Some(b.stalls.io)
		}
		web.Memory, train.Memory = node.Some(b.ownMemory), node.Some(b.batchMemory)
		web.Refaults, train.Refaults = node.Some(web.Refaults.Or(0)+b.ownRefaults), node.Some(train.Refaults.Or(0)+b.batchRefaults)
		j = b.run(1)
	}
	return j
}

// TestSlowRequestsThatDoNotWaitForACPUHaveACause lets the requests of a service become slow for
// each reason that leaves its threads no longer waits for a CPU. No such reason costs BE any CPU.
func TestSlowRequestsThatDoNotWaitForACPUHaveACause(t *testing.T) {
	for name, c := range map[string]struct {
		fault   func(b *spentScene)
		want    Cause
		culprit node.WorkloadID
	}{
		"batch work grows":          {func(b *spentScene) { b.memory, b.batchMemory = 300*ms, 8<<30 }, BEMemory, "batch/train"},
		"batch work thrashes":       {func(b *spentScene) { b.memory, b.batchRefaults, b.ownRefaults = 300*ms, 900, 100 }, BEMemory, "batch/train"},
		"the service thrashes more": {func(b *spentScene) { b.memory, b.batchRefaults, b.ownRefaults = 300*ms, 100, 900 }, Memory, ""},
		"the service itself grows":  {func(b *spentScene) { b.memory, b.batchMemory, b.ownMemory = 300*ms, 4<<30, 8<<30 }, Memory, ""},
		"its own memory limit": {func(b *spentScene) {
			b.memory, b.batchMemory, b.web().MemoryLimit = 300*ms, 8<<30, node.Some[unit.Bytes](1<<30+1<<20)
		}, Memory, ""},
		"batch work grows a little":     {func(b *spentScene) { b.memory, b.batchMemory = 300*ms, 1<<30+1<<28 }, Memory, ""},
		"memory stalls are short":       {func(b *spentScene) { b.memory, b.batchMemory = ms, 8<<30 }, Downstream, ""},
		"stalls of others, own unknown": {func(b *spentScene) { b.nodeMemory, b.batchMemory, b.ownStalls = 300*ms, 8<<30, false }, NotWaiting, ""},
		"no stall of any work":          {func(b *spentScene) { b.ownStalls = false }, Downstream, ""},
		"a disk":                        {func(b *spentScene) { b.io = 300 * ms }, Storage, ""},
		"memory, and so a disk":         {func(b *spentScene) { b.memory, b.io, b.batchMemory = 300*ms, 300*ms, 8<<30 }, BEMemory, "batch/train"},
		"more work beside more others":  {func(b *spentScene) { b.cpu, b.others = 80*ms, 3*time.Second }, Contention, ""},
		"more work beside the same":     {func(b *spentScene) { b.cpu = 80 * ms }, NotWaiting, ""},
		"a little more work":            {func(b *spentScene) { b.cpu, b.others = 52*ms, 3*time.Second }, Downstream, ""},
		"a back end":                    {func(*spentScene) {}, Downstream, ""},
		"a back end beside others":      {func(b *spentScene) { b.others = 6 * time.Second }, Downstream, ""},
		"the hypervisor":                {func(b *spentScene) { b.steal = 2 * time.Second }, NotWaiting, ""},
		"a limit, rarely":               {func(b *spentScene) { b.throttled = 40 * ms }, NotWaiting, ""},
		"no count of waits":             {func(b *spentScene) { b.web().Usage.Delay.Counts = nil }, NotWaiting, ""},
		"waits":                         {func(b *spentScene) { b.waited = 100 * ms }, NotWaiting, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSpentScene(t)
			b.want(b.pass(120), Kept, "", false)
			text, err := json.Marshal(b.x)
			if err != nil {
				t.Fatal(err)
			}
			b.x = Tracker{} // the agent restarts, with its state
			if err := json.Unmarshal(text, &b.x); err != nil {
				t.Fatal(err)
			}
			b.perTick = []uint64{0, 40, 10, 0}
			c.fault(b)
			b.pass(20) // the window in which it begins
			j := b.pass(20)
			b.want(j, Missed, c.want, false)
			if culprit, percent := j.Culprit(); culprit != c.culprit || culprit != "" && percent != 100 {
				t.Errorf("to blame is %q for %d %%, want %q", culprit, percent, c.culprit)
			}
			spent := j.Requests.Spent
			if spent.Window != 15*time.Second || !spent.Work.Known() || spent.UsualWork != node.Some(ms) || spent.Memory.Known() != b.ownStalls {
				t.Errorf("spent %+v", spent)
			}
		})
	}
}

// TestWorkIsComparedAtTheSameLoad has a service whose requests need more CPU time if they
// are few. More of them for each second, and windows without a usual cost, blame nothing.
func TestWorkIsComparedAtTheSameLoad(t *testing.T) {
	b := newSpentScene(t)
	b.cpu, b.perTick = 200*ms, []uint64{0, 400, 0, 0}
	b.want(b.pass(120), Kept, "", false)
	b.cpu, b.others, b.perTick = 100*ms, 3*time.Second, []uint64{0, 40, 10, 0} // 2 ms each in place of 0.5 ms
	b.pass(20)
	b.want(b.pass(20), Missed, NotWaiting, false)
	if spent := b.x.Requests["shop/web"].Judgement.Requests.Spent; spent.UsualWork.Known() || spent.Work != node.Some(2*ms) {
		t.Errorf("%+v", spent)
	}
	if costs := b.x.Requests["shop/web"].Costs; len(costs) != 1 {
		t.Errorf("learnt from a window with a miss: %+v", costs)
	}
	b.cpu = 10 * ms // so little that even all of it explains nothing
	b.pass(20)
	b.want(b.pass(20), Missed, Downstream, false)
}

// TestWorkThatVariesIsUsual has requests whose CPU time varies by as much as they need
// more of it later.
func TestWorkThatVariesIsUsual(t *testing.T) {
	b := newSpentScene(t)
	for i := range 20 {
		b.cpu = 100 * ms
		if i%2 == 0 {
			b.cpu = 30 * ms
		}
		b.pass(15)
	}
	b.cpu, b.others, b.perTick = 100*ms, 3*time.Second, []uint64{0, 40, 10, 0}
	b.pass(20)
	b.want(b.pass(20), Missed, NotWaiting, false)
}

// TestMemoryThatAPodGivesBackWasNotTaken follows the memory of batch work: what it gained
// counts for one to two minutes, and a workload that comes has gained all that it has.
func TestMemoryThatAPodGivesBackWasNotTaken(t *testing.T) {
	const gib = unit.Bytes(1 << 30)
	total := node.Some(64 * gib)
	s := node.Snapshot{At: time.Unix(1e9, 0), Workloads: []node.Workload{{ID: "a", Class: node.BE}, {ID: "b", Class: node.BE}, {ID: "web", Class: node.LS}}}
	var l Ledger
	pass := func(seconds int, a, b, web unit.Bytes) Taken {
		for range seconds {
			s.At = s.At.Add(time.Second)
			for i, m := range []unit.Bytes{a, b, web} {
				s.Workloads[i].Usage.Memory = node.Some(m)
			}
			l = l.observe(s)
		}
		return l.taken(total)
	}
	if got := pass(90, 20*gib, 8*gib, 8*gib); got != (Taken{}) {
		t.Errorf("what they have at first: %+v", got)
	}
	if got := pass(5, 21*gib, 11*gib, 8*gib); got != (Taken{By: "b", Percent: 75}) {
		t.Errorf("b gained 3 GiB of 4: %+v", got)
	}
	if got := pass(5, 21*gib, 11*gib, 13*gib); got != (Taken{}) {
		t.Errorf("the service gained more: %+v", got)
	}
	if got := pass(130, 21*gib, 11*gib, 13*gib); got != (Taken{}) {
		t.Errorf("two minutes later: %+v", got)
	}
	pass(5, 29*gib, 11*gib, 13*gib)
	if got := pass(1, 21*gib, 11*gib, 13*gib); got != (Taken{}) {
		t.Errorf("a gave it back: %+v", got)
	}
	s.Workloads = append(s.Workloads, node.Workload{ID: "new", Class: node.BE})
	s.Workloads[3].Usage.Memory = node.Some(2 * gib)
	if got := pass(1, 21*gib, 11*gib, 13*gib); got != (Taken{By: "new", Percent: 100}) {
		t.Errorf("a new one: %+v", got)
	}
	s.Workloads[3].Usage = node.Usage{}
	if got := pass(5, 21*gib, 11*gib, 13*gib); got != (Taken{By: "new", Percent: 100}) {
		t.Errorf("its memory cannot be read: %+v", got)
	}
	if got := l.taken(node.Maybe[unit.Bytes]{}); got != (Taken{}) {
		t.Errorf("of a node whose memory is not known: %+v", got)
	}
	s.Workloads = s.Workloads[:3]
	if pass(1, 21*gib, 11*gib, 13*gib); len(l.Work) != 3 {
		t.Errorf("remembers %v", l.Work)
	}
	s.Workloads[0].Usage.Refaults, s.Workloads[2].Usage.Refaults = node.Some[int64](5e6), node.Some[int64](10)
	if got := pass(1, 21*gib, 11*gib, 13*gib); got != (Taken{}) {
		t.Errorf("the first count of pages: %+v", got)
	}
	s.Workloads[0].Usage.Refaults, s.Workloads[2].Usage.Refaults = node.Some[int64](5e6+900), node.Some[int64](110)
	if got := pass(1, 21*gib, 11*gib, 13*gib); got != (Taken{By: "a", Percent: 100}) {
		t.Errorf("a read back more: %+v", got)
	}
}
