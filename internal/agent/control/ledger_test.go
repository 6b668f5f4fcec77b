package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var quota = node.Knob{Cgroup: "batch.slice", File: node.FileCPUMax}

func noLimit() node.Value { return node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod} }

// measuredTick returns a tick after noon. Since noon, web has used 500m of CPU,
// and the job 1200m. The tick wants the quota limit for BE.
func measuredTick(after time.Duration, limit unit.MilliCPU) tick.Tick {
	used := func(m unit.MilliCPU) node.Maybe[time.Duration] {
		return node.Some(time.Hour + time.Duration(m)*after/1000)
	}
	t := tick.Tick{Sense: 300 * time.Microsecond, Decide: 100 * time.Microsecond, Act: time.Millisecond}
	t.Snapshot = node.Snapshot{
		At:          noon.Add(after),
		Topology:    node.Topology{CPUs: []node.LogicalCPU{{ID: 0}, {ID: 1, Core: 1}}},
		Usage:       node.Usage{CPU: used(1700), Memory: node.Some[unit.Bytes](3 << 30)},
		MemoryTotal: node.Some[unit.Bytes](8 << 30),
		Busy:        map[unit.CPU]time.Duration{0: time.Hour + after*9/10, 1: time.Hour + after*8/10},
		Workloads: []node.Workload{
			{
				ID: "batch.slice/job.service", Class: node.BE, Rule: "batch", Cgroup: "batch.slice/job.service", ContentionRoot: "batch.slice",
				Usage:    node.Usage{CPU: used(1200), Throttled: used(250), Memory: node.Some[unit.Bytes](300 << 20)},
				CPULimit: node.Some(unit.CPUs(2)),
			},
			{
				ID: "system.slice/web.service", Class: node.LS, Rule: "web", Cgroup: "system.slice/web.service", ContentionRoot: "system.slice/web.service",
				Usage:         node.Usage{CPU: used(500), Memory: node.Some[unit.Bytes](1 << 30), PerCPU: map[unit.CPU]time.Duration{0: time.Hour + after/2}},
				MemoryRequest: node.Some[unit.Bytes](2 << 30),
			},
		},
		Knobs: node.Knobs{
			Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096},
			Now:    map[node.Knob]node.Value{quota: noLimit(), {Cgroup: "batch.slice/job.service", File: node.FileCPUMax}: noLimit()},
			Before: map[node.Knob]node.Value{},
		},
	}
	t.Wants = []plan.Want{
		{Intent: plan.Set, Knob: quota, Value: node.Limit(limit), Owner: plan.OwnerSuppress, Reason: "65% of 2000m - 500m in use by others", BE: true},
		{Intent: plan.Release, Knob: node.Knob{Cgroup: "batch.slice/job.service", File: node.FileMemory}, Owner: plan.OwnerLimit, Reason: "no memory limit was asked for"},
	}
	return t
}

// addWrite adds the step of a tick's first want to the tick. err is the error
// of the step, or nil.
func addWrite(t tick.Tick, err error) tick.Tick {
	w := t.Wants[0]
	t.Done = append(t.Done, tick.Outcome{
		Step: plan.Step{Knob: w.Knob, From: t.Snapshot.Knobs.Now[w.Knob], To: w.Value, Owner: w.Owner, Reason: w.Reason, BE: true}, Err: err,
	})
	return t
}

// withWrite returns the tick t on a node whose quota Tenon has changed to v.
func withWrite(t tick.Tick, v node.Value) tick.Tick {
	t.Snapshot.Knobs.Now[quota], t.Snapshot.Knobs.Before[quota] = v, noLimit()
	return t
}

func TestTheStatusSaysWhatIsUsedAndWhatHoldsIt(t *testing.T) {
	l := NewLedger("v1")
	l.started = noon
	l.Observe(measuredTick(time.Second, 800), nil)
	if s := l.Status(); s.Workloads[0].CPU.Known() || s.Node.CPU.Known() || len(s.Node.Busy) > 0 {
		t.Errorf("a rate from only one reading: %+v", s)
	}
	l.Observe(addWrite(measuredTick(2*time.Second, 800), nil), nil)
	l.Observe(measuredTick(2*time.Second+20*time.Millisecond, 800), nil) // an event, too soon for a new rate
	s := l.Status()
	if s.Ticks != 3 || s.Held != 0 || s.Version != "v1" || len(s.Recent) != 1 || len(s.Failing) != 0 {
		t.Errorf("%+v", s)
	}
	if got := s.Workloads[0].CPU.Or(0); got != 1200 {
		t.Errorf("the job uses %v", got)
	}
	if got := s.Workloads[0].Throttled.Or(0); got != 25 {
		t.Errorf("the job is throttled %v", got)
	}
	if s.Node.CPU.Or(0) != 1700 || len(s.Node.Busy) != 2 || s.Node.Busy[0].Busy != 900 || s.Node.Busy[0].Class[node.LS] != 500 {
		t.Errorf("%+v", s.Node)
	}
	if len(s.Classes) != 2 || s.Classes[0].Class != node.LS || s.Classes[1].CPU != node.Some[unit.MilliCPU](1200) || s.Classes[1].Memory != node.Some[unit.Bytes](300<<20) {
		t.Errorf("%+v", s.Classes)
	}
	if len(s.Bounds) != 1 || s.Bounds[0].Knob != quota || s.Bounds[0].Want != "80000 100000" {
		t.Errorf("%+v", s.Bounds)
	}
}

func TestALimitThatDoesNotFitIsExplained(t *testing.T) {
	l := NewLedger("v1")
	turn := measuredTick(time.Minute, 800)
	id := turn.Snapshot.Workloads[0].ID
	turn.Misfits = map[node.WorkloadID]*misfit.Misfit{id: {
		Kind: misfit.Threads, Class: node.BE, Since: turn.Snapshot.At.Add(-40 * time.Second), Throttled: 93, Limit: 1000, CPUs: 2,
		Text: "16 threads share", Write: "set no limit",
	}}
	l.Observe(turn, nil)
	e, err := l.ExplainWorkload(string(id))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"misfit     16 threads share, since ", " (40s)\n", "  write      set no limit\n",
	} {
		if !strings.Contains(e.String(), want) {
			t.Errorf("the explanation lacks %q:\n%s", want, e)
		}
	}
	if text := l.Status().String(); !strings.Contains(text, "misfit ") {
		t.Errorf("the status lacks the misfit:\n%s", text)
	}
}

func TestAWriteShowsInTheTickThatMadeIt(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(addWrite(measuredTick(time.Second, 800), nil), nil)
	e, err := l.ExplainKnob(quota)
	if err != nil {
		t.Fatal(err)
	}
	k := e.Knobs[0]
	if k.Now == nil || *k.Now != "80000 100000" || k.Before == nil || *k.Before != "max 100000" || l.Status().Held != 1 {
		t.Errorf("%+v", k)
	}
	l.Observe(withWrite(measuredTick(2*time.Second, 800), node.Limit(800)), nil)
	if e, err = l.ExplainKnob(quota); err != nil || *e.Knobs[0].Now != "80000 100000" || *e.Knobs[0].Before != "max 100000" {
		t.Errorf("%+v, %v", e.Knobs[0], err)
	}
}

func TestAFailedWriteShowsTheValueThatIs(t *testing.T) {
	l := NewLedger("v1")
	for i := range 3 {
		l.Observe(addWrite(measuredTick(time.Duration(i+1)*time.Second, 800), errors.New("read-only file system")), nil)
	}
	e, err := l.ExplainKnob(quota)
	if err != nil {
		t.Fatal(err)
	}
	if k := e.Knobs[0]; *k.Now != "max 100000" || k.Before != nil || k.Wrote == nil || k.Wrote.Error != "read-only file system" {
		t.Errorf("%+v", k)
	}
	s := l.Status()
	if len(s.Failing) != 1 || len(s.Recent) != 1 || s.Held != 0 {
		t.Errorf("a write that fails in every tick must be shown once: %+v", s)
	}
}

func TestSinceIsWhenTheDecisionBecameWhatItIs(t *testing.T) {
	l := NewLedger("v1")
	for i, limit := range []unit.MilliCPU{800, 800, 700, 700, 700} {
		l.Observe(measuredTick(time.Duration(i)*time.Second, limit), nil)
	}
	e, err := l.ExplainKnob(quota)
	if err != nil || !e.Knobs[0].Since.Equal(noon.Add(2*time.Second)) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestABlindTickKeepsWhatWasSeen(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(tick.Tick{}, errors.New("no topology"))
	if s := l.Status(); s.Blind != "no topology" || !s.At.IsZero() {
		t.Errorf("%+v", s)
	}
	l.Observe(measuredTick(time.Second, 800), nil)
	l.Observe(tick.Tick{}, errors.New("no topology"))
	if s := l.Status(); s.Blind != "no topology" || len(s.Workloads) != 2 || s.Ticks != 3 {
		t.Errorf("%+v", s)
	}
	l.Observe(measuredTick(2*time.Second, 800), nil)
	if s := l.Status(); s.Blind != "" {
		t.Errorf("%+v", s)
	}
}

func TestWorkloadsAreFoundByTheirLastName(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(measuredTick(time.Second, 800), nil)
	for _, name := range []string{"batch.slice/job.service", "job.service", "/batch.slice/job.service/"} {
		e, err := l.ExplainWorkload(name)
		if err != nil || e.Workload == nil || e.Workload.ID != "batch.slice/job.service" || len(e.Knobs) != 2 {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	e, err := l.ExplainWorkload("batch.slice")
	if err != nil || e.Workload != nil || len(e.Inputs) != 1 || len(e.Knobs) != 1 {
		t.Errorf("a cgroup: %+v, %v", e, err)
	}
	var unknown *Unknown
	if _, err = l.ExplainWorkload("jop.service"); !errors.As(err, &unknown) || strings.Join(unknown.Known, " ") !=
		"batch.slice batch.slice/job.service system.slice/web.service" {
		t.Errorf("%v", err)
	}
	if _, err = l.ExplainKnob(node.Knob{Cgroup: "batch.slice", File: "cpu.color"}); !errors.As(err, &unknown) || unknown.Known[0] != "batch.slice cpu.weight" {
		t.Errorf("%v", err)
	}
}

func TestAKnobNobodyAsksForIsForgotten(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(measuredTick(time.Second, 800), nil)
	gone := measuredTick(2*time.Second, 800)
	gone.Wants = gone.Wants[:1]
	l.Observe(gone, nil)
	if len(l.knobs) != 1 {
		t.Errorf("%v", l.knobs)
	}
}

// TestWhatNoPolicyNeedsIsNotUnreadable releases a knob that no snapshot has, because no
// policy may set it, and wants another one that cannot be read.
func TestWhatNoPolicyNeedsIsNotUnreadable(t *testing.T) {
	for intent, want := range map[plan.Intent]string{
		plan.Release: "  now     not read, because Tenon leaves it alone\n",
		plan.Abstain: "  now     cannot be read\n",
	} {
		var b strings.Builder
		Knob{Knob: node.Knob{Cgroup: "web.service", File: node.FileMemory}, Intent: intent}.describe(&b, time.Unix(0, 0))
		if !strings.Contains(b.String(), want) {
			t.Errorf("%v: %s", intent, b.String())
		}
	}
}
