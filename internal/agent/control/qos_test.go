package control

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// A fakeOperator applies a request at once: it adds a tick to the ledger, and
// the tick selects the requested mechanism.
type fakeOperator struct {
	asked  []node.Mechanism
	follow func(node.Mechanism)
	err    error
}

// Handle does nothing: a fakeOperator has no further requests.
func (*fakeOperator) Handle(*http.ServeMux) {}

func (o *fakeOperator) Pin(_ context.Context, mechanism node.Mechanism) error {
	o.asked = append(o.asked, mechanism)
	if o.follow != nil {
		o.follow(mechanism)
	}
	return o.err
}

var scheduler = node.Knob{File: node.FileScheduler}

// selection returns the selection of a node that supports only sched_ext,
// cpu.idle and the least weight. It lists the mechanisms that the tests name.
func selection(inUse node.Mechanism) node.Selection {
	l := node.Selection{Mechanism: inUse, Since: noon, Why: "the strongest that this node supports"}
	for _, r := range []node.Mechanism{
		node.MechanismVendor, node.MechanismSchedExt, node.MechanismCoreSched, node.MechanismSiblings, node.MechanismIdle, node.MechanismWeight,
	} {
		s := node.MechanismStatus{Mechanism: r, Can: node.No, Why: "it has no " + string(r)}
		if r == node.MechanismSchedExt || r == node.MechanismIdle || r == node.MechanismWeight {
			s.Can, s.Why = node.Yes, "probed"
		}
		l.Mechanisms = append(l.Mechanisms, s)
	}
	return l
}

// isolatedTick returns a tick after noon with the mechanism inUse. For
// sched_ext, the scheduler was loaded at noon.
func isolatedTick(after time.Duration, inUse node.Mechanism) tick.Tick {
	t := measuredTick(after, 800)
	t.Selection = selection(inUse)
	if inUse != node.MechanismSchedExt {
		return t
	}
	loaded := node.Scheduler{Loaded: true, Siblings: true, Hold: 200 * time.Microsecond, Headroom: 1}
	t.Snapshot.Knobs.Now[scheduler] = loaded
	t.Wants = append(t.Wants, plan.Want{Intent: plan.Set, Knob: scheduler, Value: loaded, Owner: plan.OwnerMechanism, Reason: "the strongest that this node supports", BE: true})
	t.Isolation = node.IsolationStatus{
		Loads: 2, Exits: map[node.ExitKind]uint64{node.ExitStall: 1}, Strays: 3, Converted: 2, Realtime: 1, OwnSlices: 6, Demotions: 4, Demoted: 1,
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
	if got := l.QOS().String(); got != "tenond has started and has made no tick yet.\n" {
		t.Errorf("before the first tick: %s", got)
	}
	turn := isolatedTick(time.Minute, node.MechanismSchedExt)
	turn.Selection.Mechanisms[1].Retry = noon // the retry is due
	turn.Selection.Mechanisms[1].Failures, turn.Selection.Failures = 1, []node.Failure{{At: noon.Add(-time.Minute), Mechanism: node.MechanismSchedExt, Why: "runnable task stall"}}
	l.Observe(turn, nil)
	const want = `mechanism  sched_ext, since 2026-03-01 12:00:00 (1m00s)
because    the strongest that this node supports

MECHANISM   NODE CAN  NOW                  WHY
vendor      no        -                    it has no vendor
sched_ext   yes       in use, failed once  probed
core_sched  no        -                    it has no core_sched
siblings    no        -                    it has no siblings
cpu.idle    yes       -                    probed
weight      yes       -                    probed

scheduler  enabled, loaded 2026-03-01 12:00:00; loads 2; interface of Linux 6.12
exits      1 stall; the last at 11:59:00: stall: runnable task stall: cc1[42] failed to run for 30.0s (code 7)
run        LSX 15s, LS 0s, NORMAL 0s, BE 1m0s; idle 30s; BE outside of it 0s
beside LS  10 expelled (P50 < 4.1µs, P90 < 8.2µs), 11 refused; 6s kept idle for LS, 600ms held after it
           3 started there and were stopped (2 races, 1 resumed)
queues     5 waiting, 1 urgent, 4 for one CPU, 5 for their quota; by L3 cache: 3 7
limits     6 throttled by their quota, 7 by the cap of all BE, 8 kept off cores left to LS
kicks      20 to expel, 21 to wake (9 by timer)
repairs    12 records of CPUs were wrong, 13 events were lost
progress   oldest wait 12ms; 5 let run in relief; 4 demoted, 1 of them now
strays     3 found, 2 converted, 1 real-time left alone
slices     6 threads keep their own, or are of SCHED_IDLE: on their CPU the long slice does nothing
failure    11:59:00 sched_ext: runnable task stall
knob       / scheduler: loaded siblings hold 200µs headroom 1
`
	if got := l.QOS().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWhatTheSchedulerHasNotTakenIsSaid(t *testing.T) {
	l := NewLedger("v1")
	turn := isolatedTick(time.Minute, node.MechanismSchedExt)
	turn.Isolation.Refused = "classify 9000 groups: no room"
	l.Observe(turn, nil)
	if got, want := l.QOS().String(), "\nuntold     it has not accepted all of its orders: classify 9000 groups: no room\n"; !strings.Contains(got, want) {
		t.Errorf("%q is not in\n%s", want, got)
	}
}

func TestAMechanismThatIsDownOrPinnedSaysSo(t *testing.T) {
	l := NewLedger("v1")
	turn := isolatedTick(time.Minute, node.MechanismIdle)
	turn.Selection.Mechanisms[1].Failures, turn.Selection.Mechanisms[1].Down, turn.Selection.Mechanisms[1].Retry = 3, true, noon.Add(time.Hour)
	turn.Selection.Pinned, turn.Selection.ByHand = node.MechanismIdle, true
	l.Observe(turn, nil)
	got := l.QOS().String()
	for _, want := range []string{
		"failed 3 times, down until 13:00:00", "pinned     cpu.idle, by hand: tenon isolation auto gives", "failures  none in the last hour",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "scheduler  ") {
		t.Errorf("the text shows a scheduler that was never loaded:\n%s", got)
	}
	if got := l.Status().String(); !strings.Contains(got, "isolation  cpu.idle for 1m00s, pinned by hand\n") {
		t.Error(got)
	}
	turn.Selection.ByHand, turn.Selection.Mechanisms[1].Down, turn.Selection.Mechanisms[1].Retry = false, false, turn.Snapshot.At.Add(90*time.Second)
	l.Observe(turn, nil)
	got = l.QOS().String()
	if !strings.Contains(got, "failed 3 times, tried again in 1m30s") || !strings.Contains(got, "pinned     cpu.idle, by the configuration\n") {
		t.Error(got)
	}
}

func TestTheStatusSaysHowMuchCPUIsKeptIdle(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(isolatedTick(time.Second, node.MechanismSchedExt), nil)
	l.Observe(isolatedTick(3*time.Second, node.MechanismSchedExt), nil)
	i := l.Status().Isolation
	if i.Mechanism != node.MechanismSchedExt || i.Expelled.Or(0) != 100 || i.Held.Or(0) != 10 || i.Strays != 3 {
		t.Errorf("%+v", i)
	}
	again := isolatedTick(5*time.Second, node.MechanismSchedExt)
	again.Isolation.Scheduler.Since = noon.Add(4 * time.Second)
	l.Observe(again, nil)
	if i := l.Status().Isolation; i.Expelled.Known() {
		t.Errorf("a rate across a new load of the scheduler: %+v", i)
	}
}

func TestTheKnobsOfIsolationAreExplained(t *testing.T) {
	l := NewLedger("v1")
	turn := isolatedTick(time.Second, node.MechanismSchedExt)
	policy := node.Knob{Cgroup: "batch.slice", File: node.FilePolicy}
	turn.Snapshot.Knobs.Now[policy] = node.ThreadsMixed
	turn.Wants = append(turn.Wants, plan.Want{Intent: plan.Set, Knob: policy, Value: node.ThreadsBE, Owner: plan.OwnerMechanism, Reason: "sched_ext", BE: true})
	l.Observe(turn, nil)
	for knob, want := range map[string]string{
		"/ scheduler":        "wanted  loaded siblings hold 200µs headroom 1, by mechanism",
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
	// A mechanism that is not in use still has a status, but no knob.
	l.Observe(isolatedTick(2*time.Second, node.MechanismIdle), nil)
	for _, knob := range []node.Knob{scheduler, {Cgroup: "batch.slice", File: node.FileCookie}} {
		e, err := l.ExplainKnob(knob)
		if err != nil || !strings.Contains(e.String(), "mechanism  cpu.idle") || !strings.Contains(e.String(), "it has no core_sched") || !strings.Contains(e.String(), "No policy asks") {
			t.Errorf("%s\n%v", e, err)
		}
	}
	if _, err := l.ExplainKnob(node.Knob{Cgroup: "nowhere", File: node.FileCookie}); err == nil {
		t.Error("an unknown cgroup is explained")
	}
}

// TestAPinIsFollowedOrSaysWhyNot requests mechanisms through the socket. The
// answer must confirm the request, or say why it cannot be fulfilled.
func TestAPinIsFollowedOrSaysWhyNot(t *testing.T) {
	after := time.Second
	turn := func(l *Ledger, change func(*tick.Tick), inUse, pinned node.Mechanism) {
		after += time.Second
		t := isolatedTick(after, inUse)
		t.Selection.Pinned, t.Selection.ByHand = pinned, pinned != ""
		if change != nil {
			change(&t)
		}
		l.Observe(t, nil)
	}
	for name, c := range map[string]struct {
		mechanism node.Mechanism
		change    func(*tick.Tick)
		inUse     node.Mechanism
		err       error // the error that the operator returns
		want      string
		asked     int
	}{
		"followed": {mechanism: node.MechanismSchedExt, inUse: node.MechanismSchedExt, asked: 1},
		"waits for another": {mechanism: node.MechanismSchedExt, inUse: node.MechanismSchedExt, asked: 1, want: "sched_ext is pinned, but not in use yet: sched_ext waits until vendor is given up", change: func(t *tick.Tick) {
			w := &t.Wants[len(t.Wants)-1]
			w.Intent, w.Value, w.Reason = plan.Abstain, nil, "sched_ext waits until vendor is given up"
		}},
		"is being loaded": {mechanism: node.MechanismSchedExt, inUse: node.MechanismSchedExt, asked: 1, want: "sched_ext is pinned, but not in use yet: the kernel checks it", change: func(t *tick.Tick) {
			t.Isolation.Scheduler = nil
			t.Done = append(t.Done, tick.Outcome{Step: plan.Step{Knob: scheduler, To: node.Scheduler{Loaded: true}}, Err: errors.New("the kernel checks it")})
		}},
		"taken back":        {mechanism: "", inUse: node.MechanismIdle, asked: 1},
		"cannot be":         {mechanism: node.MechanismCoreSched, want: "this node does not support core_sched: it has no core_sched"},
		"no such mechanism": {mechanism: "sched-ext", want: `no mechanism is called "sched-ext": want one of [vendor sched_ext`},
		"the turn hangs":    {mechanism: node.MechanismIdle, inUse: node.MechanismIdle, err: errors.New("no turn has followed"), want: "no turn has followed", asked: 1},
		"fell": {mechanism: node.MechanismSchedExt, inUse: node.MechanismIdle, asked: 1, want: "sched_ext was tried and failed: no room; in use: cpu.idle", change: func(t *tick.Tick) {
			t.Selection.Failures = []node.Failure{{At: t.Snapshot.At, Mechanism: node.MechanismSchedExt, Why: "no room"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger("v1")
			turn(l, nil, node.MechanismIdle, "")
			o := &fakeOperator{err: c.err, follow: func(mechanism node.Mechanism) { turn(l, c.change, c.inUse, mechanism) }}
			client, stop := servedBy(t, l, o)
			defer stop()
			client.wait = 100 * time.Millisecond
			q, err := client.Pin(t.Context(), c.mechanism)
			switch {
			case c.want == "" && (err != nil || q.Selection.Mechanism != c.inUse):
				t.Errorf("%+v, %v", q.Selection, err)
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
	l.Observe(isolatedTick(time.Second, node.MechanismIdle), nil)
	late := func(d time.Duration, running bool) {
		turn := isolatedTick(d, node.MechanismSchedExt)
		turn.Selection.Pinned, turn.Selection.ByHand, turn.Isolation.Scheduler.Running = node.MechanismSchedExt, true, running
		l.Observe(turn, nil)
	}
	o := &fakeOperator{follow: func(node.Mechanism) {
		late(2*time.Second, false)
		time.AfterFunc(100*time.Millisecond, func() { late(3*time.Second, true) })
	}}
	client, stop := servedBy(t, l, o)
	defer stop()
	q, err := client.Pin(t.Context(), node.MechanismSchedExt)
	if err != nil || !q.Means.Scheduler.Running {
		t.Errorf("%+v, %v", q, err)
	}
	if got := q.Outcome(); got != "sched_ext is in use: the strongest that this node supports (pinned by hand, until tenon isolation auto or the next boot)" {
		t.Error(got)
	}
}

func TestTheBestAndTheBaseOfANode(t *testing.T) {
	q := QOS{At: noon, Selection: selection(node.MechanismIdle)}
	if best, err := q.Best(); best != node.MechanismSchedExt || err != nil {
		t.Errorf("%s, %v", best, err)
	}
	if base, err := q.Base(); base != node.MechanismIdle || err != nil {
		t.Errorf("%s, %v", base, err)
	}
	q.Selection.Mechanisms[1].Can, q.Selection.Mechanisms[1].Why = node.No, "no CONFIG_SCHED_CLASS_EXT"
	if _, err := q.Best(); err == nil || !strings.Contains(err.Error(), "no mechanism above cpu.idle: vendor: it has no vendor; sched_ext: no CONFIG_SCHED_CLASS_EXT; core_sched") {
		t.Error(err)
	}
	q.Selection.Mechanisms[4].Can = node.No
	if base, err := q.Base(); base != node.MechanismWeight || err != nil {
		t.Errorf("%s, %v", base, err)
	}
	if _, err := (QOS{At: noon}).Base(); err == nil || !strings.Contains(err.Error(), "CPU QoS is off") {
		t.Error(err)
	}
	if _, err := (QOS{}).Best(); err == nil || !strings.Contains(err.Error(), "has made no tick yet") {
		t.Error(err)
	}
}
