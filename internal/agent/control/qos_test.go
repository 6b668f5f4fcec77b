package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// A fakeOperator applies a pin at once: it passes a tick to the ledger.
type fakeOperator struct {
	asked  []node.Rung
	follow func(node.Rung)
	err    error
}

func (o *fakeOperator) Pin(_ context.Context, rung node.Rung) error {
	o.asked = append(o.asked, rung)
	if o.follow != nil {
		o.follow(rung)
	}
	return o.err
}

var scheduler = node.Knob{File: node.FileScheduler}

// ladder is the selection on a node that supports the scheduler and cpu.idle.
func ladder(inUse node.Rung) node.LadderStatus {
	l := node.LadderStatus{Rung: inUse, Since: noon, Why: "the strongest that this node can carry"}
	for _, r := range node.Rungs {
		s := node.RungStatus{Rung: r, Can: node.No, Why: "it has no " + string(r)}
		if r == node.RungSchedExt || r == node.RungIdle || r == node.RungWeight {
			s.Can, s.Why = node.Yes, "probed"
		}
		l.Rungs = append(l.Rungs, s)
	}
	return l
}

// isolated is a tick at noon plus after with that mechanism in use, and with
// the scheduler loaded at noon if that is the mechanism.
func isolated(after time.Duration, inUse node.Rung) tick.Tick {
	t := seen(after, 800)
	t.Ladder = ladder(inUse)
	if inUse != node.RungSchedExt {
		return t
	}
	loaded := node.Scheduler{Loaded: true, Siblings: true, Hold: 200 * time.Microsecond, Headroom: 1}
	t.Snapshot.Knobs.Now[scheduler] = loaded
	t.Wants = append(t.Wants, plan.Want{Intent: plan.Set, Knob: scheduler, Value: loaded, Owner: plan.OwnerLadder, Reason: "the strongest that this node can carry", BE: true})
	t.Isolation = node.IsolationStatus{
		Loads: 2, Exits: map[node.ExitKind]uint64{node.ExitStall: 1}, Strays: 3, Converted: 2, Realtime: 1, OwnSlices: 6, Spills: 4, Spilled: 1,
		LastExit: node.SchedulerExit{At: noon.Add(-time.Minute), Kind: node.ExitStall, Code: 7, Reason: "runnable task stall", Message: "cc1[42] failed to run for 30.0s"},
		Scheduler: &node.SchedulerStatus{
			At: t.Snapshot.At, State: "enabled", Running: true, Variant: "6.12", Since: noon,
			Run:       map[node.SchedulerClass]time.Duration{node.SchedulerLSX: after / 4, node.SchedulerBE: after},
			Idle:      after / 2,
			ExpelIdle: after / 10, HoldIdle: after / 100, ExpelDelay: []uint64{0, 0, 0, 0, 6, 3, 1, 0}, OldestWait: 12345 * time.Microsecond,
			SchedulerCounts: node.SchedulerCounts{Expels: 10, Refusals: 11, Violations: 3, Races: 2, Resumed: 1, Relief: 5, Throttled: 6, Capped: 7, Headroom: 8, KicksExpel: 20, KicksWake: 21, KicksTimer: 9, Drift: 12, Lost: 13},
			Queues:          []node.SchedulerQueue{{Waiting: 2, Urgent: 1}, {Waiting: 3, Pinned: 4}}, Parked: 5,
		},
	}
	return t
}

func TestTheIsolationAsText(t *testing.T) {
	l := NewLedger("v1")
	if got := l.QOS().String(); got != "tenond has started and has not turned once.\n" {
		t.Errorf("before the first turn: %s", got)
	}
	turn := isolated(time.Minute, node.RungSchedExt)
	turn.Ladder.Rungs[1].Retry = noon // it was
	turn.Ladder.Rungs[1].Falls, turn.Ladder.Falls = 1, []node.Fall{{At: noon.Add(-time.Minute), Rung: node.RungSchedExt, Why: "runnable task stall"}}
	l.Observe(turn, nil)
	const want = `rung     sched_ext, since 2026-03-01 12:00:00 (1m00s)
because  the strongest that this node can carry

RUNG        NODE CAN  NOW                WHY
vendor      no        -                  it has no vendor
sched_ext   yes       in use, fell once  probed
core_sched  no        -                  it has no core_sched
siblings    no        -                  it has no siblings
cpu.idle    yes       -                  probed
weight      yes       -                  probed

scheduler  enabled, loaded 2026-03-01 12:00:00; loads 2; interface of Linux 6.12
exits      1 stall; the last at 11:59:00: stall: runnable task stall: cc1[42] failed to run for 30.0s (code 7)
run        LSX 15s, LS 0s, NORMAL 0s, BE 1m0s; idle 30s; BE outside of it 0s
beside LS  10 expelled (P50 < 4.1µs, P90 < 8.2µs), 11 refused; 6s kept idle for LS, 600ms held after it
           3 started there and were stopped (2 races, 1 resumed)
queues     5 waiting, 1 urgent, 4 for one CPU, 5 for their quota; by L3 cache: 3 7
limits     6 throttled by their quota, 7 by the cap of all BE, 8 kept off cores left to LS
kicks      20 to expel, 21 to wake (9 by timer)
repairs    12 records of CPUs were wrong, 13 events were lost
progress   oldest wait 12ms; 5 let run in relief; 4 spilled, 1 of them now
strays     3 found, 2 converted, 1 real-time left alone
slices     6 threads keep their own, or are of SCHED_IDLE: on their CPU the long slice does nothing
fall       11:59:00 sched_ext: runnable task stall
knob       / scheduler: loaded siblings hold 200µs headroom 1
`
	if got := l.QOS().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWhatTheSchedulerHasNotTakenIsSaid(t *testing.T) {
	l := NewLedger("v1")
	turn := isolated(time.Minute, node.RungSchedExt)
	turn.Isolation.Untold = "classify 9000 groups: no room"
	l.Observe(turn, nil)
	if got, want := l.QOS().String(), "\nuntold     it has not accepted all of its orders: classify 9000 groups: no room\n"; !strings.Contains(got, want) {
		t.Errorf("%q is not in\n%s", want, got)
	}
}

func TestARungThatIsDownOrPinnedSaysSo(t *testing.T) {
	l := NewLedger("v1")
	turn := isolated(time.Minute, node.RungIdle)
	turn.Ladder.Rungs[1].Falls, turn.Ladder.Rungs[1].Down, turn.Ladder.Rungs[1].Retry = 3, true, noon.Add(time.Hour)
	turn.Ladder.Pinned, turn.Ladder.ByHand = node.RungIdle, true
	l.Observe(turn, nil)
	got := l.QOS().String()
	for _, want := range []string{
		"fell 3 times, down until 13:00:00", "pinned   cpu.idle, by hand: tenon qos auto gives", "falls  none in the last hour",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "scheduler  ") {
		t.Errorf("a scheduler that was never loaded is shown:\n%s", got)
	}
	if got := l.Status().String(); !strings.Contains(got, "isolation  cpu.idle for 1m00s, pinned by hand\n") {
		t.Error(got)
	}
	turn.Ladder.ByHand, turn.Ladder.Rungs[1].Down, turn.Ladder.Rungs[1].Retry = false, false, turn.Snapshot.At.Add(90*time.Second)
	l.Observe(turn, nil)
	got = l.QOS().String()
	if !strings.Contains(got, "fell 3 times, tried again in 1m30s") || !strings.Contains(got, "pinned   cpu.idle, by the configuration\n") {
		t.Error(got)
	}
}

func TestTheStatusSaysHowMuchCPUIsKeptIdle(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(isolated(time.Second, node.RungSchedExt), nil)
	l.Observe(isolated(3*time.Second, node.RungSchedExt), nil)
	i := l.Status().Isolation
	if i.Rung != node.RungSchedExt || i.Expelled.Or(0) != 100 || i.Held.Or(0) != 10 || i.Strays != 3 {
		t.Errorf("%+v", i)
	}
	again := isolated(5*time.Second, node.RungSchedExt)
	again.Isolation.Scheduler.Since = noon.Add(4 * time.Second)
	l.Observe(again, nil)
	if i := l.Status().Isolation; i.Expelled.Known() {
		t.Errorf("a rate over a load: %+v", i)
	}
}

func TestTheKnobsOfIsolationAreExplained(t *testing.T) {
	l := NewLedger("v1")
	turn := isolated(time.Second, node.RungSchedExt)
	policy := node.Knob{Cgroup: "batch.slice", File: node.FilePolicy}
	turn.Snapshot.Knobs.Now[policy] = node.ThreadsMixed
	turn.Wants = append(turn.Wants, plan.Want{Intent: plan.Set, Knob: policy, Value: node.ThreadsBE, Owner: plan.OwnerLadder, Reason: "sched_ext", BE: true})
	l.Observe(turn, nil)
	for knob, want := range map[string]string{
		"/ scheduler":        "wanted  loaded siblings hold 200µs headroom 1, by ladder",
		"batch.slice policy": "now     mixed",
	} {
		k, err := ParseKnob(knob)
		if err != nil {
			t.Fatal(err)
		}
		e, err := l.ExplainKnob(k)
		if err != nil || !strings.Contains(e.String(), want) {
			t.Errorf("%s: %q is not in\n%s%v", knob, want, e, err)
		}
	}
	if got := l.QOS().String(); !strings.Contains(got, "batch.slice policy: mixed, wanted best-effort") {
		t.Error(got)
	}
	// A mechanism that is not in use has no knob, but a status.
	l.Observe(isolated(2*time.Second, node.RungIdle), nil)
	for _, knob := range []node.Knob{scheduler, {Cgroup: "batch.slice", File: node.FileCookie}} {
		e, err := l.ExplainKnob(knob)
		if err != nil || !strings.Contains(e.String(), "rung     cpu.idle") || !strings.Contains(e.String(), "it has no core_sched") || !strings.Contains(e.String(), "No policy asks") {
			t.Errorf("%s\n%v", e, err)
		}
	}
	if _, err := l.ExplainKnob(node.Knob{Cgroup: "nowhere", File: node.FileCookie}); err == nil {
		t.Error("an unknown cgroup is explained")
	}
}

// TestAPinIsFollowedOrSaysWhyNot queries over the socket.
func TestAPinIsFollowedOrSaysWhyNot(t *testing.T) {
	after := time.Second
	turn := func(l *Ledger, change func(*tick.Tick), inUse, pinned node.Rung) {
		after += time.Second
		t := isolated(after, inUse)
		t.Ladder.Pinned, t.Ladder.ByHand = pinned, pinned != ""
		if change != nil {
			change(&t)
		}
		l.Observe(t, nil)
	}
	for name, c := range map[string]struct {
		rung   node.Rung
		change func(*tick.Tick)
		inUse  node.Rung
		err    error // of the operator
		want   string
		asked  int
	}{
		"followed": {rung: node.RungSchedExt, inUse: node.RungSchedExt, asked: 1},
		"waits for another": {rung: node.RungSchedExt, inUse: node.RungSchedExt, asked: 1, want: "sched_ext is pinned, but not in use yet: sched_ext waits until vendor is given up", change: func(t *tick.Tick) {
			w := &t.Wants[len(t.Wants)-1]
			w.Intent, w.Value, w.Reason = plan.Abstain, nil, "sched_ext waits until vendor is given up"
		}},
		"is being loaded": {rung: node.RungSchedExt, inUse: node.RungSchedExt, asked: 1, want: "sched_ext is pinned, but not in use yet: the kernel checks it", change: func(t *tick.Tick) {
			t.Isolation.Scheduler = nil
			t.Done = append(t.Done, tick.Outcome{Step: plan.Step{Knob: scheduler, To: node.Scheduler{Loaded: true}}, Err: errors.New("the kernel checks it")})
		}},
		"taken back":     {rung: "", inUse: node.RungIdle, asked: 1},
		"cannot be":      {rung: node.RungCoreSched, want: "this node cannot carry core_sched: it has no core_sched"},
		"no such rung":   {rung: "sched-ext", want: `no rung is called "sched-ext": want one of [vendor sched_ext`},
		"the turn hangs": {rung: node.RungIdle, inUse: node.RungIdle, err: errors.New("no turn has followed"), want: "no turn has followed", asked: 1},
		"fell": {rung: node.RungSchedExt, inUse: node.RungIdle, asked: 1, want: "sched_ext was tried and fell: no room; in use: cpu.idle", change: func(t *tick.Tick) {
			t.Ladder.Falls = []node.Fall{{At: t.Snapshot.At, Rung: node.RungSchedExt, Why: "no room"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger("v1")
			turn(l, nil, node.RungIdle, "")
			o := &fakeOperator{err: c.err, follow: func(rung node.Rung) { turn(l, c.change, c.inUse, rung) }}
			client, stop := servedBy(t, l, o)
			defer stop()
			client.wait = 100 * time.Millisecond
			q, err := client.Pin(t.Context(), c.rung)
			switch {
			case c.want == "" && (err != nil || q.Ladder.Rung != c.inUse):
				t.Errorf("%+v, %v", q.Ladder, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v", err)
			}
			if len(o.asked) != c.asked {
				t.Errorf("the operator was asked for %v", o.asked)
			}
		})
	}
}

func TestASlowLoadIsWaitedFor(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(isolated(time.Second, node.RungIdle), nil)
	late := func(d time.Duration, running bool) {
		turn := isolated(d, node.RungSchedExt)
		turn.Ladder.Pinned, turn.Ladder.ByHand, turn.Isolation.Scheduler.Running = node.RungSchedExt, true, running
		l.Observe(turn, nil)
	}
	o := &fakeOperator{follow: func(node.Rung) {
		late(2*time.Second, false)
		time.AfterFunc(100*time.Millisecond, func() { late(3*time.Second, true) })
	}}
	client, stop := servedBy(t, l, o)
	defer stop()
	q, err := client.Pin(t.Context(), node.RungSchedExt)
	if err != nil || !q.Means.Scheduler.Running {
		t.Errorf("%+v, %v", q, err)
	}
	if got := q.Outcome(); got != "sched_ext is in use: the strongest that this node can carry (pinned by hand, until tenon qos auto or the next boot)" {
		t.Error(got)
	}
}

func TestTheBestAndTheBaseOfANode(t *testing.T) {
	q := QOS{At: noon, Ladder: ladder(node.RungIdle)}
	if best, err := q.Best(); best != node.RungSchedExt || err != nil {
		t.Errorf("%s, %v", best, err)
	}
	if base, err := q.Base(); base != node.RungIdle || err != nil {
		t.Errorf("%s, %v", base, err)
	}
	q.Ladder.Rungs[1].Can, q.Ladder.Rungs[1].Why = node.No, "no CONFIG_SCHED_CLASS_EXT"
	if _, err := q.Best(); err == nil || !strings.Contains(err.Error(), "no rung above cpu.idle: vendor: it has no vendor; sched_ext: no CONFIG_SCHED_CLASS_EXT; core_sched") {
		t.Error(err)
	}
	q.Ladder.Rungs[4].Can = node.No
	if base, err := q.Base(); base != node.RungWeight || err != nil {
		t.Errorf("%s, %v", base, err)
	}
	if _, err := (QOS{At: noon}).Base(); err == nil || !strings.Contains(err.Error(), "CPU QoS is off") {
		t.Error(err)
	}
	if _, err := (QOS{}).Best(); err == nil || !strings.Contains(err.Error(), "has not turned once") {
		t.Error(err)
	}
}
