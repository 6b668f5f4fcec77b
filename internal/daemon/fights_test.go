package daemon

import (
	"errors"
	"testing"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/report"
	"tenon.sh/tenon/internal/unit"
)

func weightStep(from, to unit.Weight, be bool) plan.Step {
	return plan.Step{
		Knob: node.Knob{Cgroup: "kubepods/besteffort/poda", File: node.FileCPUWeight},
		From: node.CPUWeight{Weight: from}, To: node.CPUWeight{Weight: to}, BE: be,
	}
}

// play writes against somebody who writes back every so often, and counts what
// it writes in a time.
func play(s plan.Step, every, in time.Duration) (writes int, f fights) {
	now := time.Unix(1e9, 0)
	f.after(s, s.To, now)
	for passed := time.Duration(0); passed < in; passed += every {
		now = now.Add(every)
		if err := f.before(s, now); err == nil {
			f.after(s, s.To, now)
			writes++
		} else if !errors.Is(err, report.ErrContested) {
			panic(err)
		}
	}
	return writes, f
}

func TestTheKubeletsMinutelyWriteIsPutRightEachTime(t *testing.T) {
	writes, f := play(weightStep(200, 100, false), time.Minute, 30*time.Minute)
	if writes != 30 {
		t.Errorf("%d of 30", writes)
	}
	now := time.Unix(1e9, 0).Add(30 * time.Minute)
	if remarks := f.remarks(now); len(remarks) != 1 {
		t.Errorf("%q", remarks)
	}
	if remarks := f.remarks(now.Add(time.Hour)); len(remarks) != 0 {
		t.Errorf("long over, and still said: %q", remarks)
	}
}

func TestTwoAgentsDoNotWriteBackAndForthAllDay(t *testing.T) {
	writes, _ := play(weightStep(200, 100, false), time.Second, time.Hour)
	if writes < 50 || writes > 120 {
		t.Errorf("%d writes in an hour against one who writes each second: want about one a minute", writes)
	}
}

func TestNarrowingBestEffortWorkDoesNotWait(t *testing.T) {
	if writes, _ := play(weightStep(200, 100, true), time.Second, time.Minute); writes != 60 {
		t.Errorf("%d of 60", writes)
	}
}

func TestAValueOfOursThatChangesIsNoFight(t *testing.T) {
	var f fights
	now := time.Unix(1e9, 0)
	for v := unit.Weight(100); v < 400; v++ {
		s := weightStep(v-1, v, false)
		if err := f.before(s, now); err != nil {
			t.Fatal(err)
		}
		f.after(s, s.To, now)
		now = now.Add(time.Second)
	}
	if r := f.remarks(now); len(r) != 0 {
		t.Errorf("%q", r)
	}
}

func TestAReleaseEndsAFight(t *testing.T) {
	_, f := play(weightStep(200, 100, false), time.Second, time.Minute)
	s := weightStep(200, 100, false)
	s.Release = true
	if err := f.before(s, time.Unix(1e9, 0)); err != nil {
		t.Error(err)
	}
	f.after(s, s.To, time.Unix(1e9, 0))
	if len(f.knobs) != 0 {
		t.Error("it is remembered")
	}
}

// TestWhatTheKernelMakesOfAWriteIsNobodyElses: a set of CPUs loses those that are
// offline.
func TestWhatTheKernelMakesOfAWriteIsNobodyElses(t *testing.T) {
	k := node.Knob{Cgroup: "kubepods/besteffort", File: node.FileCPUs}
	shown := node.CPUs{Set: unit.CPUSetOf(0, 1)}
	s := plan.Step{Knob: k, From: shown, To: node.CPUs{Set: unit.CPUSetOf(0, 1, 2)}}
	var f fights
	now := time.Unix(1e9, 0)
	for range 2 * longFrom {
		if err := f.before(s, now); err != nil {
			t.Fatal(err)
		}
		f.after(s, shown, now)
		now = now.Add(time.Second)
	}
	if got := f.remarks(now); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
