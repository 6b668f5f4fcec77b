package loop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// memory is a host that keeps its knobs in a map. It refuses writes of the
// knobs in refuse.
type memory struct {
	snap   node.Snapshot
	refuse map[node.Knob]error
	blind  error
	slow   time.Duration // to read
	writes int
}

func (m *memory) Snapshot(context.Context) (node.Snapshot, error) {
	time.Sleep(m.slow)
	m.snap.At = m.snap.At.Add(time.Second)
	return m.snap, m.blind
}

func (m *memory) Apply(_ context.Context, s plan.Step) error {
	if err := m.refuse[s.Knob]; err != nil {
		return err
	}
	m.writes++
	m.snap.Knobs.Now[s.Knob] = s.To
	return nil
}

var beWeight = node.Knob{Cgroup: "be", File: node.FileCPUWeight}

func colocated() *memory {
	weight := node.CPUWeight{Weight: unit.WeightOf(100)}
	return &memory{snap: node.Snapshot{
		At:           time.Unix(0, 0),
		Capabilities: node.Capabilities{node.FeatureCPUIdle: {Verdict: node.Yes}},
		Workloads: []node.Workload{
			{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"},
			{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be", CPULimit: node.Some(unit.MilliCPU(500))},
		},
		Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096}, Now: map[node.Knob]node.Value{beWeight: weight}},
	}}
}

func TestStepWritesWhatIsWantedOnce(t *testing.T) {
	h := colocated()
	a := Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
	first, err := a.Step(t.Context())
	if err != nil || len(first.Done) != 2 || h.snap.Knobs.Now[beWeight] != (node.CPUWeight{Idle: true}) {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := a.Step(t.Context())
	if err != nil || len(second.Done) != 0 || h.writes != 2 {
		t.Errorf("a second turn wrote again: %v, %v", second, err)
	}
}

func TestDryRunPlansTheSameAndWritesNothing(t *testing.T) {
	h := colocated()
	dry, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}, DryRun: true}).Step(t.Context())
	if err != nil || h.writes != 0 {
		t.Fatalf("%d writes, %v", h.writes, err)
	}
	wet, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}).Step(t.Context())
	if err != nil || dry.String() != wet.String() {
		t.Errorf("dry run:\n%s\nreal run:\n%s%v", dry, wet, err)
	}
}

func TestARefusedWriteIsReportedAndTheOthersGoOn(t *testing.T) {
	h := colocated()
	refused := errors.New("invalid argument")
	h.refuse = map[node.Knob]error{beWeight: refused}
	got, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}).Step(t.Context())
	if !errors.Is(err, refused) || h.writes != 1 || len(got.Done) != 2 {
		t.Errorf("%v\n%v, %d writes", err, got, h.writes)
	}
}

func TestAnUnreadableNodeIsAnErrorWithoutWrites(t *testing.T) {
	h := colocated()
	h.blind = errors.New("gone")
	if _, err := (&Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}).Step(t.Context()); !errors.Is(err, h.blind) || h.writes != 0 {
		t.Errorf("%v, %d writes", err, h.writes)
	}
}

func TestRunTicksUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun, turns := time.Now(), 0
		err := (&Agent{Host: colocated(), Period: time.Second}).Run(ctx, nil, func(tick.Tick, error) {
			if turns++; turns == 3 {
				stop()
			}
		})
		if took := time.Since(begun); !errors.Is(err, context.Canceled) || turns != 3 || took != 2*time.Second {
			t.Errorf("%d turns in %v, %v", turns, took, err)
		}
	})
}

// beat runs the loop of an agent with a long period for the time until, and
// returns its ticks. When the loop has begun, it calls send.
func beat(t *testing.T, h *memory, until time.Duration, send func(wake chan<- tick.Event)) (turns []tick.Tick, begun time.Time) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), until)
	defer stop()
	wake := make(chan tick.Event, 16)
	begun = time.Now()
	go send(wake)
	_ = (&Agent{Host: h, Period: time.Minute}).Run(ctx, wake, func(turn tick.Tick, _ error) { turns = append(turns, turn) })
	return turns, begun
}

func delayOf(id node.WorkloadID) tick.Event {
	return tick.Event{At: time.Now(), Kind: tick.EventDelay, Workload: id}
}

func TestAnEventStartsATickAtOnceAndAStormSharesATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const storm = 10 * time.Second
		sent := 0
		turns, begun := beat(t, colocated(), 50*time.Second, func(wake chan<- tick.Event) {
			time.Sleep(300 * time.Millisecond)
			for range storm / time.Millisecond {
				wake <- delayOf("web")
				sent++
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Second)
			wake <- delayOf("web")
			sent++
		})
		if len(turns) < 8 || len(turns[0].Events) != 0 || turns[1].Begun.Sub(begun) != 300*time.Millisecond {
			t.Fatalf("%d turns, the second at %v", len(turns), turns[1].Begun.Sub(begun))
		}
		told := 0
		for i, turn := range turns {
			if len(turn.Events) > 1 {
				t.Errorf("turn %d has %v", i, turn.Events)
			}
			for _, e := range turn.Events {
				told += e.Count()
				if wait := turn.Begun.Sub(e.At); wait > idleGap+minGap {
					t.Errorf("an event waited %v", wait)
				}
			}
			if i > 0 && turn.Begun.Sub(turns[i-1].Begun) < minGap {
				t.Errorf("turns %v apart", turn.Begun.Sub(turns[i-1].Begun))
			}
		}
		if told != sent {
			t.Errorf("%d of %d events were told", told, sent)
		}
		// In a storm in which no tick has anything to write, the gaps between
		// the ticks must grow.
		if most := int(storm/idleGap) + idleTicks + 3; len(turns) > most {
			t.Errorf("%d turns, want at most %d", len(turns), most)
		}
		// A single event must start a tick at once, and soon a second tick with
		// fresh rates.
		last := turns[len(turns)-2:]
		if at := last[0].Events[0].At; last[0].Begun != at || !last[1].Events[0].Again || last[1].Begun != at.Add(minGap) {
			t.Errorf("after the storm an event of %v has turns at %v and %v", at, last[0].Begun, last[1].Begun)
		}
	})
}

// TestAnEventSoonAfterATickIsLookedAtAgainToo sends an event soon after a tick.
// The CPU usage since that tick is mostly from before the event, so a second
// tick must follow.
func TestAnEventSoonAfterATickIsLookedAtAgainToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, begun := beat(t, colocated(), time.Second, func(wake chan<- tick.Event) {
			time.Sleep(40 * time.Millisecond)
			wake <- delayOf("web")
		})
		var at []time.Duration
		for _, turn := range turns {
			at = append(at, turn.Begun.Sub(begun))
		}
		if len(at) != 3 || at[1] != 40*time.Millisecond || at[2] != 40*time.Millisecond+minGap {
			t.Errorf("turns at %v", at)
		}
	})
}

func TestEventsOfATickThatGoesOnAreThoseOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := colocated()
		h.slow = 50 * time.Millisecond
		turns, _ := beat(t, h, time.Second, func(wake chan<- tick.Event) {
			time.Sleep(10 * time.Millisecond) // within the first tick
			for _, id := range []node.WorkloadID{"web", "api", "web"} {
				wake <- delayOf(id)
			}
		})
		if len(turns) < 2 || len(turns[0].Events) != 0 {
			t.Fatalf("%d turns", len(turns))
		}
		if got := turns[1].Events; len(got) != 2 || got[0].Workload != "web" || got[0].More+got[1].More != 1 {
			t.Errorf("%d turns with %v", len(turns), got)
		}
	})
}

func TestTheTicksOfAStormRestForLongerThanTheyTake(t *testing.T) {
	last := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		pace         pace
		took, period time.Duration
		wrote        bool
		want         time.Duration
	}{
		"its second turn":               {pace{}, time.Millisecond, time.Second, false, 2 * minGap},
		"later":                         {pace{storm: 50}, time.Millisecond, time.Second, true, maxGap},
		"a big node":                    {pace{storm: 50}, 10 * time.Millisecond, time.Second, true, 210 * time.Millisecond},
		"never later than the period":   {pace{storm: 50}, 90 * time.Millisecond, time.Second, true, time.Second},
		"nothing to write for long":     {pace{storm: 50, idle: idleTicks}, time.Millisecond, time.Second, false, idleGap},
		"nothing, but a shorter period": {pace{storm: 50, idle: idleTicks}, time.Millisecond, 100 * time.Millisecond, false, 100 * time.Millisecond},
		"something to write again":      {pace{storm: 50, idle: idleTicks}, time.Millisecond, time.Second, true, maxGap},
	} {
		c.pace.last = last
		if got := c.pace.recordTick(last.Add(50*time.Millisecond), c.took, c.period, c.wrote, true); got != c.want {
			t.Errorf("%s: the gap is %v, want %v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		since, gap time.Duration
		woken      bool
		want       int
	}{
		"one close to the last":           {600 * time.Millisecond, minGap, true, 51},
		"one alone":                       {700 * time.Millisecond, minGap, true, 0},
		"one soon after so long a gap":    {700 * time.Millisecond, 400 * time.Millisecond, true, 51},
		"a turn that came by its period":  {100 * time.Millisecond, minGap, false, 0},
		"one that comes long after a gap": {900 * time.Millisecond, 400 * time.Millisecond, true, 0},
	} {
		p := pace{storm: 50, idle: idleTicks, last: last, gap: c.gap}
		if p.recordTick(last.Add(c.since), time.Millisecond, time.Second, false, c.woken); p.storm != c.want {
			t.Errorf("%s: turn %d of a storm, want %d", name, p.storm, c.want)
		}
	}
}

// TestAlarmsThatComeAfterEachGapAreAStorm sends an alarm every 50 ms, as the
// kernel does for a service that waits without end. This must count as a storm.
func TestAlarmsThatComeAfterEachGapAreAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * time.Second
		h := colocated()
		h.slow = 10 * time.Millisecond
		turns, _ := beat(t, h, long, func(wake chan<- tick.Event) {
			for range long/(50*time.Millisecond) - 1 {
				time.Sleep(50 * time.Millisecond)
				wake <- delayOf("web")
			}
		})
		used := time.Duration(len(turns)) * h.slow
		if bound := long / restShare; used > bound {
			t.Errorf("%d turns take %v of %v, want at most %v", len(turns), used, long, bound)
		}
		if len(turns) < int(long/time.Second) {
			t.Errorf("only %d turns in %v", len(turns), long)
		}
	})
}

// TestATickKnowsWhetherAServiceWaits checks that the snapshot tells the
// policies whether a service waits. An event without a workload must not count,
// and neither must an event of another kind.
func TestATickKnowsWhetherAServiceWaits(t *testing.T) {
	for _, c := range []struct {
		events   []tick.Event
		violated bool
	}{
		{nil, false},
		{[]tick.Event{{Kind: tick.EventCgroups}, {Kind: tick.EventPressure}}, false},
		{[]tick.Event{{Kind: tick.EventConfig}, {Kind: tick.EventDelay, Workload: "web"}}, true},
		{[]tick.Event{{Kind: tick.EventPressure, Workload: "web", Again: true}}, true},
	} {
		got, err := (&Agent{Host: colocated()}).tickOnce(t.Context(), c.events)
		if err != nil || got.Snapshot.SLOViolated != c.violated || len(got.Events) != len(c.events) {
			t.Errorf("%v: violated %v, %v", c.events, got.Snapshot.SLOViolated, err)
		}
	}
}

// TestSomeEventsEndTheGap checks which events end the gap between two ticks.
// After a long tick in a storm, the gap can last seconds. It must end at once
// if an operator requests something, or when another mechanism takes over.
func TestSomeEventsEndTheGap(t *testing.T) {
	for kind, ends := range map[tick.EventKind]bool{tick.EventPin: true, tick.EventHandover: true, tick.EventMechanism: false} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := colocated()
				h.slow = 300 * time.Millisecond
				turns, begun := beat(t, h, time.Minute, func(wake chan<- tick.Event) {
					for range 3 {
						wake <- delayOf("web")
						time.Sleep(400 * time.Millisecond)
					}
					wake <- tick.Event{At: time.Now(), Kind: kind}
					time.Sleep(time.Second)
				})
				soon := slices.ContainsFunc(turns, func(turn tick.Tick) bool {
					return turn.Begun.Sub(begun) <= 1600*time.Millisecond && slices.ContainsFunc(turn.Events, func(e tick.Event) bool { return e.Kind == kind })
				})
				if soon != ends {
					t.Errorf("of %d turns in a storm, one is for it: %v, want %v", len(turns), soon, ends)
				}
			})
		})
	}
}

// TestAStartWaitsHalfASecondInAStorm sends the start of a container in the gap
// after an expensive tick of a storm. The gap lasts until the period is over.
// The start must get its tick within startGap of the begin of that expensive
// tick. Many starts must not cause more ticks.
func TestAStartWaitsHalfASecondInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := colocated()
		h.slow = 100 * time.Millisecond
		const starts = 100
		turns, begun := beat(t, h, time.Minute, func(wake chan<- tick.Event) {
			for range 3 {
				wake <- delayOf("web")
				time.Sleep(time.Second)
			}
			for range starts {
				wake <- tick.Event{At: time.Now(), Kind: tick.EventStart}
				time.Sleep(20 * time.Millisecond)
			}
		})
		served := 0
		for i, turn := range turns {
			for _, e := range turn.Events {
				if e.Kind != tick.EventStart {
					continue
				}
				served++
				if late := turn.Begun.Sub(e.At); late > startGap {
					t.Errorf("a start at %v waited %v for turn %d", e.At.Sub(begun), late, i)
				}
			}
		}
		if most := int(starts*20*time.Millisecond/startGap) + 3; served == 0 || served > most {
			t.Errorf("%d turns with starts, want 1 to %d", served, most)
		}
	})
}

// TestTheTicksOfALargeNodeAreFurtherApart checks that ticks without a write use
// at most a twentieth of a CPU, even if a tick is expensive. An event must
// still start a tick at once. After a tick with a write, the next tick must
// come when the period is over.
func TestTheTicksOfALargeNodeAreFurtherApart(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{
		time.Millisecond:       time.Second,
		40 * time.Millisecond:  time.Second,
		100 * time.Millisecond: 2500 * time.Millisecond,
		time.Second:            longestPause,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			h := colocated()
			h.slow = cost
			begun := time.Now()
			a := &Agent{Host: h, Period: time.Second, Spent: func() time.Duration { return time.Since(begun) }}
			wake := make(chan tick.Event, 1)
			alone := begun.Add(30*time.Second + 1500*time.Millisecond)
			go func() {
				time.Sleep(time.Until(alone))
				wake <- delayOf("web")
			}()
			var turns []tick.Tick
			_ = a.Run(ctx, wake, func(turn tick.Tick, _ error) {
				turns = append(turns, turn)
				if a.Pause() < time.Second || a.Pause() > longestPause {
					t.Errorf("the pause is %v", a.Pause())
				}
			})
			for i, turn := range turns[:len(turns)-1] {
				apart := turns[i+1].Begun.Sub(turn.Begun)
				switch {
				case len(turns[i+1].Events) > 0:
					if late := turns[i+1].Begun.Sub(alone); !turns[i+1].Events[0].Again && late > max(cost, minGap) {
						t.Errorf("a tick costs %v: an event waited %v", cost, late)
					}
				case i > 1 && len(turn.Events) == 0 && apart != want:
					t.Errorf("a tick costs %v: two are %v apart, want %v", cost, apart, want)
				}
			}
		})
	}
	if got := pauseAfter(time.Second, true); got != 0 {
		t.Errorf("after a tick that wrote, the next comes %v later", got)
	}
}

// TestATickKnowsWhatTheThresholdCosts checks that the cost grows from tick to
// tick, and that it ends when the threshold is removed.
func TestATickKnowsWhatTheThresholdCosts(t *testing.T) {
	host := colocated()
	host.snap.Topology.CPUs = []node.LogicalCPU{{ID: 0}, {ID: 1}}
	a := Agent{Host: host}
	a.Config.Suppress = suppress.Config{Enable: true, ThresholdPercent: 65}
	var last tick.Tick
	for i := range 5 {
		used := time.Duration(i) * time.Second
		host.snap.Busy = map[unit.CPU]time.Duration{0: used, 1: 0}
		host.snap.Workloads[0].Usage.CPU = node.Some(time.Duration(0))
		host.snap.Workloads[1].Usage.CPU = node.Some(used)
		host.snap.Workloads[1].CPULimit = node.Maybe[unit.MilliCPU]{}
		quota := node.Knob{Cgroup: "be", File: node.FileCPUMax}
		host.snap.Knobs.Now[quota] = node.Limit(1000)
		host.snap.Knobs.Before = map[node.Knob]node.Value{quota: node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}}
		var err error
		if last, err = a.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if w := last.Watermark; w.Percent != 65 || w.Counted != 4*time.Second || w.Reached != 4*time.Second || w.Withheld != 4*time.Second {
		t.Errorf("after four seconds at the bound beside an idle CPU: %+v", w)
	}
	a.Config.Suppress.Enable = false
	if last, err := a.Step(t.Context()); err != nil || last.Watermark.HasThreshold() {
		t.Errorf("without a threshold: %+v, %v", last.Watermark, err)
	}
}

// TestTheThresholdIsNotChargedWithCPUsOfOwners uses two services with exclusive
// CPUs. BE may not use the CPUs of LSE, and those of LSR only if they are lent.
// So their idle time is not a cost of the threshold.
func TestTheThresholdIsNotChargedWithCPUsOfOwners(t *testing.T) {
	s := node.Snapshot{Workloads: []node.Workload{{ID: "rt", Class: node.LSE, Cgroup: "rt"}, {ID: "db", Class: node.LSR, Cgroup: "db"}, {ID: "job", Class: node.BE, Cgroup: "be"}}}
	for i := range 4 {
		s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i)})
	}
	for lent, want := range map[bool]unit.CPUSet{false: unit.CPUSetOf(2, 3), true: unit.CPUSetOf(1, 2, 3)} {
		var a Agent
		a.Config.NodeCPUs.LendLSR = lent
		a.state.CPUs.Allocations = map[node.WorkloadID]cpus.Allocation{
			"rt": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0)}, "db": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(1)},
		}
		if got := a.lendableCPUs(s); got != want {
			t.Errorf("lent %v: BE may use %v, want %v", lent, got, want)
		}
	}
}

// TestTheTimeWithoutAVerdictIsCounted has an objective on a node that does not measure waits.
func TestTheTimeWithoutAVerdictIsCounted(t *testing.T) {
	h := colocated()
	h.snap.Workloads[0].Objective.RunQueueDelay = node.Some(time.Millisecond)
	a := Agent{Host: h}
	for ticks := range 10 {
		last, err := a.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l := last.Lasted["web"]; l.Begun != time.Unix(1, 0) || l.Undecided != time.Duration(ticks)*time.Second || l.Total() != l.Undecided {
			t.Errorf("at tick %d: %+v", ticks, l)
		}
	}
}

// TestAShadowIsAllThatAnObserverWrites makes ticks of an agent with a shadow. It must
// plan each write once, as an agent that acts does, and perform none.
func TestAShadowIsAllThatAnObserverWrites(t *testing.T) {
	h := colocated()
	a := Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}, Shadow: new(shadow.World)}
	before := h.snap.Knobs.Now[beWeight]
	for i := range 3 {
		got, err := a.Step(t.Context())
		if err != nil || len(got.Done) > 0 || got.Shadow == nil || got.Snapshot.Knobs.Now[beWeight] != before {
			t.Fatalf("tick %d: %+v, %v", i, got, err)
		}
		if planned := len(got.Shadow.Steps) > 0; planned != (i == 0) {
			t.Errorf("tick %d plans %v", i, got.Shadow.Steps)
		}
		if performed := got.Performed(); len(performed.Done) != len(got.Shadow.Steps) || performed.Shadow != nil || i > 0 && performed.Snapshot.Knobs.Now[beWeight] == before {
			t.Errorf("tick %d, as if it had been performed: %+v", i, performed)
		}
	}
	if h.writes > 0 || a.Shadow.Steps()[plan.OwnerCPUQOS] == 0 {
		t.Errorf("%d writes; the shadow has %v", h.writes, a.Shadow.Steps())
	}
}
