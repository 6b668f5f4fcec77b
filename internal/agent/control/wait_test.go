package control

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// waitedTick returns a tick after noon. Since noon, web has waited for the job
// and for the kernel, and half of its waits were short.
func waitedTick(after time.Duration) tick.Tick {
	t := measuredTick(after, 800)
	web := &t.Snapshot.Workloads[1]
	n := uint64(after / time.Millisecond)
	web.Usage.Delay = node.RunQueueDelay{Sum: node.Some(after / 4), Counts: []uint64{10 + n, 0, 0, 0, n, 0}}
	web.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
	t.Snapshot.Waits = []node.Wait{
		{Waiter: "a", Runner: "b", Time: after},
		{Waiter: web.ID, Runner: node.RunnerKernel, Time: after / 100},
		{Waiter: web.ID, Runner: "batch.slice/job.service", Time: time.Hour + after/5},
		{Waiter: web.ID, Runner: "system.slice/old.service", Time: time.Hour},
		{Waiter: "z", Runner: "b", Time: after},
	}
	return t
}

func TestTheStatusSaysForWhomAServiceWaited(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(waitedTick(time.Second), nil)
	l.Observe(waitedTick(3*time.Second), nil)
	s := l.Status()
	web := s.Workloads[1]
	if web.DelayP99 != node.Some(node.DelayBound(4)) || web.Objective != node.Some(2*time.Millisecond) || s.Workloads[0].DelayP99.Known() {
		t.Errorf("P99 %v of %v, the job's %v", web.DelayP99, web.Objective, s.Workloads[0].DelayP99)
	}
	want := []Wait{{"batch.slice/job.service", 200 * time.Millisecond}, {node.RunnerKernel, 10 * time.Millisecond}}
	if len(web.Waits) != 2 || web.Waits[0] != want[0] || web.Waits[1] != want[1] {
		t.Errorf("waits %v, want %v", web.Waits, want)
	}
	e, err := l.ExplainWorkload("web.service")
	if err != nil {
		t.Fatal(err)
	}
	line := "waits      P99 < 4.096µs, of 2ms wanted; in a second it waited 200ms for batch.slice/job.service, 10ms for (kernel)"
	if !strings.Contains(e.String(), line) {
		t.Errorf("want %q in\n%s", line, e)
	}
}

func TestAWriteSaysWhatWokeItsTick(t *testing.T) {
	l := NewLedger("v1")
	turn := addWrite(measuredTick(time.Second, 800), nil)
	turn.Events = []tick.Event{{At: noon, Kind: tick.EventDelay, Workload: "web", Text: "waited"}}
	l.Observe(turn, nil)
	s := l.Status()
	if len(s.Recent) != 1 || s.Recent[0].Woken != "delay web: waited" || !strings.Contains(Line(s.Recent[0]), "(woken by delay web: waited)") {
		t.Errorf("%+v", s.Recent)
	}
}
