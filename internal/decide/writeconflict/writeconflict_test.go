package writeconflict

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var knob = node.Knob{Cgroup: "kubepods/besteffort/poda", File: node.FileCPUWeight}

func weight(w unit.Weight) node.Value { return node.CPUWeight{Weight: w} }

// conflict returns a snapshot with one knob. Tenon wrote the knob some time ago
// (wrote). Another component wrote it n times in the minutes before that.
func conflict(now time.Time, wrote time.Duration, n int) node.Snapshot {
	c := node.WriteConflict{Knob: knob, Wrote: now.Add(-wrote)}
	for i := range n {
		c.Found = append(c.Found, now.Add(-time.Duration(n-i)*time.Second))
	}
	return node.Snapshot{At: now, Conflicts: []node.WriteConflict{c}, Knobs: node.Knobs{Now: map[node.Knob]node.Value{knob: weight(51200)}}}
}

func TestWhatIsHeld(t *testing.T) {
	now := time.Unix(1e9, 0)
	set := plan.Want{Intent: plan.Set, Knob: knob, Value: weight(25600), Reason: "because"}
	with := func(change func(*plan.Want)) plan.Want {
		w := set
		change(&w)
		return w
	}
	for name, c := range map[string]struct {
		s    node.Snapshot
		want plan.Want
		held bool
	}{
		"the second conflict is put right at once":    {conflict(now, time.Second, minConflicts-1), set, false},
		"the third is left":                           {conflict(now, time.Second, minConflicts), set, true},
		"for ten seconds":                             {conflict(now, pause, minConflicts), set, false},
		"the tenth for fifty seconds":                 {conflict(now, pause, manyConflicts), set, true},
		"and not longer":                              {conflict(now, longPause, manyConflicts), set, false},
		"what the kubelet puts right each minute":     {conflict(now, time.Minute, manyConflicts), set, false},
		"narrowing BE does not wait":                  {conflict(now, time.Second, manyConflicts), with(func(w *plan.Want) { w.BE = true }), false},
		"widening BE does":                            {conflict(now, time.Second, manyConflicts), with(func(w *plan.Want) { w.BE, w.Value = true, weight(76800) }), true},
		"a release does not wait":                     {conflict(now, time.Second, manyConflicts), with(func(w *plan.Want) { w.Intent, w.Value = plan.Release, nil }), false},
		"a value that is there already makes no step": {conflict(now, time.Second, manyConflicts), with(func(w *plan.Want) { w.Value = weight(51200) }), false},
		"a conflict of another knob does not matter":  {conflict(now, time.Second, manyConflicts), with(func(w *plan.Want) { w.Knob.Cgroup = "other" }), false},
	} {
		got := Pause(c.s, []plan.Want{c.want})[0]
		if held := got.Intent == plan.Pause; held != c.held {
			t.Errorf("%s: held is %v, want %v: %+v", name, held, c.held, got)
		}
		if c.held && (!strings.Contains(got.Reason, "another component") || !strings.HasSuffix(got.Reason, "because") || got.Value != c.want.Value) {
			t.Errorf("%s: %+v", name, got)
		}
		if steps := plan.Diff(c.s.Knobs, []plan.Want{got}); c.held && len(steps) > 0 {
			t.Errorf("%s: a held knob is written: %v", name, steps)
		}
	}
}

// TestResetsOfSystemdCountAboveTheirNumber checks how many resets are allowed beside the
// writes of another component.
func TestResetsOfSystemdCountAboveTheirNumber(t *testing.T) {
	now := time.Unix(1e9, 0)
	times := func(n int, ago time.Duration) (all []time.Time) {
		for range n {
			all = append(all, now.Add(-ago))
		}
		return all
	}
	for name, c := range map[string]struct {
		found, resets, old int
		contested          bool
	}{
		"as many as are allowed":           {0, maxResets, 0, false},
		"one more":                         {0, maxResets + 1, 0, true},
		"with writes of another component": {minConflicts - 1, maxResets, 0, false},
		"which are too many by themselves": {minConflicts, 1, 0, true},
		"most of them long ago":            {0, maxResets, maxResets, false},
	} {
		k := node.WriteConflict{Knob: knob, Wrote: now, Found: times(c.found, time.Second)}
		k.Resets = append(times(c.old, Remembered+time.Second), times(c.resets, time.Second)...)
		s := node.Snapshot{At: now, Conflicts: []node.WriteConflict{k}, Knobs: node.Knobs{Now: map[node.Knob]node.Value{knob: weight(51200)}}}
		paused := Pause(s, []plan.Want{{Intent: plan.Set, Knob: knob, Value: weight(25600)}})[0].Intent == plan.Pause
		if Contested(s, knob) != c.contested || paused != c.contested || (len(Remarks(s)) > 0) != c.contested {
			t.Errorf("%s: contested is %v, paused %v, remarks %q", name, Contested(s, knob), paused, Remarks(s))
		}
	}
}

// TestShortJobsAreNoConflict: for each of fifty jobs in ten minutes the kubelet has systemd
// set the weights of its levels four times, and once more each minute.
func TestShortJobsAreNoConflict(t *testing.T) {
	now := time.Unix(1e9, 0)
	k := node.WriteConflict{Knob: knob, Wrote: now}
	const jobs, each = 50, 4
	for i := range 10 + jobs*each {
		k.Resets = append(k.Resets, now.Add(-Remembered+time.Duration(i)*Remembered/(10+jobs*each)))
	}
	if s := (node.Snapshot{At: now, Conflicts: []node.WriteConflict{k}}); Contested(s, knob) || len(Remarks(s)) > 0 {
		t.Errorf("%q", Remarks(s))
	}
}

func TestConflictsOfLongAgoAreOver(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := conflict(now, time.Second, manyConflicts)
	if r := Remarks(s); len(r) != 1 || !strings.Contains(r[0], "10 times in 10m0s") {
		t.Errorf("%q", r)
	}
	s.At = now.Add(Remembered + time.Minute)
	if r := Remarks(s); len(r) != 0 {
		t.Errorf("a remark on an old conflict: %q", r)
	}
	s.Conflicts[0].Wrote = s.At
	if got := Pause(s, []plan.Want{{Intent: plan.Set, Knob: knob, Value: weight(25600)}}); got[0].Intent != plan.Set {
		t.Errorf("held for an old conflict: %+v", got[0])
	}
}
