package daemon

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// tickWants holds the wants of one tick of the loop.
type tickWants struct {
	at    time.Time
	wants string
	// firstTick marks the first tick of an agent.
	firstTick bool
}

// A tally counts the events of an hour. The test fails if a necessary event did
// not happen.
type tally struct {
	ticks, woken, failed  int
	withOrders            int             // ticks that wrote an order to the BE scheduler
	orders                map[string]bool // different orders for cgroups
	caps                  map[string]bool
	slots                 map[int]bool
	kept                  map[node.Mechanism]int // ticks with each mechanism
	switches              int                    // changes from one mechanism to another
	asked, killed, frozen int
	held                  int // ticks with a knob that is left to another component
	missed, violated      int // ticks with a missed objective, and with a service that waits
	configs               int
	failures              map[node.File]int
}

func (c *tally) add(t tick.Tick, last node.Mechanism) {
	c.ticks++
	if len(t.Events) > 0 {
		c.woken++
	}
	if t.Snapshot.SLOViolated {
		c.violated++
	}
	for _, j := range t.Objectives {
		if j.Verdict == slo.Missed {
			c.missed++
			break
		}
	}
	if slices.ContainsFunc(t.Wants, func(w plan.Want) bool { return w.Intent == plan.Pause }) {
		c.held++
	}
	if r := t.Selection.Mechanism; r != "" {
		if c.kept[r]++; last != "" && last != r {
			c.switches++
		}
	}
	ordered := false
	for _, o := range t.Done {
		if o.Err != nil {
			c.failed++
			c.failures[o.Step.Knob.File]++
			continue
		}
		switch v := o.Step.To.(type) {
		case node.SchedulerGroup:
			ordered, c.orders[v.String()], c.slots[v.Slot] = true, true, true
		case node.SchedulerCap:
			ordered, c.caps[v.String()] = true, true
		case node.Run:
			switch v {
			case node.AskedToEnd:
				c.asked++
			case node.Ended:
				c.killed++
			case node.Frozen:
				c.frozen++
			}
		}
	}
	if ordered {
		c.withOrders++
	}
}

// String prints the counts.
func (c *tally) String() string {
	return fmt.Sprintf("%d ticks, %d woken by an event, %d for a waiting service, %d with an objective missed; "+
		"%d ticks with orders, %d different ones for cgroups in %d slots, %d caps; %d switches of the mechanism, ticks with each %v; "+
		"%d asked to end, %d killed, %d frozen; %d ticks with a knob left to another program; %d configurations; %d steps failed %v",
		c.ticks, c.woken, c.violated, c.missed, c.withOrders, len(c.orders), len(c.slots), len(c.caps), c.switches, c.kept,
		c.asked, c.killed, c.frozen, c.held, c.configs, c.failed, c.failures)
}

// wantsText prints all fields of wants, ordered by knob. The order in which a
// tick returns wants for different knobs has no meaning.
func wantsText(wants []plan.Want) string {
	wants = slices.Clone(wants)
	slices.SortStableFunc(wants, func(a, b plan.Want) int { return a.Knob.Compare(b.Knob) })
	var b strings.Builder
	for _, w := range wants {
		value := ""
		if w.Value != nil && (w.Intent == plan.Set || w.Intent == plan.Pause) {
			value = w.Value.String()
		}
		for _, s := range []string{string(w.Knob.Cgroup), string(w.Knob.File), string(w.Intent), value, w.Owner.String(), w.Reason} {
			b.WriteString(s)
			b.WriteByte('\t')
		}
		if w.BE {
			b.WriteString("BE")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// runLoop runs the loop of tenond on the node for an hour and records it in dir.
// The agent restarts after half of the hour. runLoop returns the wants of each
// tick and the final state of the policies.
func runLoop(t *testing.T, dir string) ([]tickWants, policy.State, *tally) {
	t.Helper()
	var all []tickWants
	count := &tally{
		orders: map[string]bool{}, caps: map[string]bool{}, slots: map[int]bool{}, kept: map[node.Mechanism]int{}, failures: map[node.File]int{},
	}
	var state policy.State
	synctest.Test(t, func(t *testing.T) {
		n := newBusyNode(t)
		var last node.Mechanism
		var config policy.Config
		for range 2 {
			d := openShow(Options{StateDir: dir, Log: slog.New(slog.DiscardHandler)}, nil)
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
			n.agent = &loop.Agent{Host: n, Period: time.Second, MaxSteps: maxSteps}
			n.agent.Resume(state)
			first := true
			_ = n.agent.Run(ctx, n.wake, func(turn tick.Tick, err error) {
				d.tick(turn, err, n.agent.Config, n.before, n.agent.Period)
				if d.failed != "" {
					t.Fatal(d.failed)
				}
				if !reflect.DeepEqual(config, n.agent.Config) {
					config = n.agent.Config
					count.configs++
				}
				count.add(turn, last)
				last = turn.Selection.Mechanism
				all = append(all, tickWants{turn.Snapshot.At, wantsText(turn.Wants), first})
				first = false
			})
			stop()
			state = n.agent.State()
			if err := d.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	return all, state, count
}

// TestAnHourWithTheBESchedulerReplays records an hour of a busy node with the
// loop and the flight recorder of tenond. Then it makes the decisions of this
// hour again, from the capture alone. Every want of every tick must be
// identical, including the orders to the BE scheduler.
func TestAnHourWithTheBESchedulerReplays(t *testing.T) {
	dir := t.TempDir()
	all, remembered, count := runLoop(t, dir)
	t.Log(count)
	checkBusy(t, count)

	var capture bytes.Buffer
	ticks, err := record.Capture(dir, &capture)
	if err != nil || ticks != len(all) {
		t.Fatalf("%d of %d ticks are captured: %v", ticks, len(all), err)
	}
	t.Logf("the capture has %d bytes, %d a tick", capture.Len(), capture.Len()/ticks)

	r, err := record.Replay(bytes.NewReader(capture.Bytes()), nil) // as tenon replay does
	if err != nil || !r.Identical() || r.Ticks != len(all) || r.Stretches != 2 || r.ReplayedSteps != r.RecordedSteps {
		t.Errorf("%v\n%v", err, r)
	}
	replayedApart(t, capture.Bytes(), all, remembered)
	foundIfChanged(t, capture.Bytes())
}

// replayedApart makes the decisions in a capture again, and compares the wants
// with those of the loop. It does not use the comparison of package record, or
// the wants in the capture.
func replayedApart(t *testing.T, capture []byte, all []tickWants, remembered policy.State) {
	t.Helper()
	var state policy.State
	i, differ := 0, 0
	err := record.Ticks(bytes.NewReader(capture), func(turn record.Tick) {
		live := all[i]
		i++
		if live.firstTick {
			if i > 1 && jsonOf(t, state) != jsonOf(t, turn.Before) {
				t.Errorf("before tick %d the state of the policies differs", i)
			}
			state = turn.Before
		}
		var wants []plan.Want
		state, wants = policy.Decide(turn.Config, state, turn.Snapshot)
		if got := wantsText(wants); got != live.wants || !turn.Snapshot.At.Equal(live.at) {
			if differ++; differ <= 3 {
				t.Errorf("tick %d at %v has other wants in the replay:\n%s", i, live.at, lineDiff(live.wants, got))
			}
		}
	})
	if err != nil || i != len(all) || differ > 0 {
		t.Errorf("%d of %d ticks, of which %d differ: %v", i, len(all), differ, err)
	}
	if jsonOf(t, state) != jsonOf(t, remembered) {
		t.Error("the final state of the policies differs")
	}
}

// foundIfChanged changes two orders in the second half of a capture. The replay
// must report both differences, with the names of the knobs.
func foundIfChanged(t *testing.T, capture []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(capture))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	text = text[bytes.LastIndex(text, []byte(`{"version":`)):]
	for _, change := range [][2]string{
		{`"file":"scheduler.cap","intent":"set","value":"`, `"file":"scheduler.cap","intent":"set","value":"1`},
		{`"intent":"set","value":"BE slot 2 weight 100"`, `"intent":"set","value":"BE slot 2 weight 101"`},
	} {
		at := bytes.LastIndex(text, []byte(change[0]))
		if at < 0 {
			t.Fatalf("the capture has no %s", change[0])
		}
		text = slices.Concat(text[:at], []byte(change[1]), text[at+len(change[0]):])
	}
	r, err := record.Replay(bytes.NewReader(text), nil)
	var found []node.File
	for _, c := range r.Changes {
		found = append(found, c.File)
	}
	if err != nil || r.Differ == 0 || !slices.Equal(found, []node.File{node.FileSchedulerCap, node.FileSchedulerGroup}) {
		t.Errorf("two orders were changed in the capture: %v\n%v", err, r)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lineDiff returns the lines that only one of two texts has.
func lineDiff(a, b string) string {
	var out strings.Builder
	show := func(sign, a, b string) {
		for line := range strings.Lines(a) {
			if !strings.Contains(b, line) {
				out.WriteString(sign + line)
			}
		}
	}
	show("-", a, b)
	show("+", b, a)
	return out.String()
}

// checkBusy fails if an expected event did not happen in the hour.
func checkBusy(t *testing.T, c *tally) {
	t.Helper()
	for what, enough := range map[string]bool{
		"3600 ticks":                                 c.ticks >= 3600,
		"ticks that an event woke":                   c.woken >= 300,
		"ticks with orders for the BE scheduler":     c.withOrders >= 500,
		"different orders for cgroups":               len(c.orders) >= 100,
		"different caps":                             len(c.caps) >= 50,
		"slots":                                      len(c.slots) >= 10,
		"ticks on sched_ext":                         c.kept[node.MechanismSchedExt] >= 1800,
		"ticks on core_sched":                        c.kept[node.MechanismCoreSched] >= 60,
		"ticks on siblings":                          c.kept[node.MechanismSiblings] >= 60,
		"switches of the isolation mechanism":        c.switches >= 8,
		"evictions":                                  c.asked >= 5,
		"victims that were killed":                   c.killed >= 1,
		"workloads that were frozen":                 c.frozen >= 1,
		"ticks with a knob left to another program":  c.held >= 60,
		"ticks in which an objective is missed":      c.missed >= 120,
		"ticks that a waiting service woke":          c.violated >= 120,
		"configurations":                             c.configs >= 6,
		"steps that failed":                          c.failed >= 5,
		"steps that failed for a cgroup that's gone": c.failures[node.FileSchedulerGroup] >= 1,
	} {
		if !enough {
			t.Errorf("the hour has too few %s: %v", what, c)
		}
	}
}
