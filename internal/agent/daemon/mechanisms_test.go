package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

// reopen returns the mechanisms that a new daemon loads from dir.
func reopen(t *testing.T, dir string, send func(tick.Event)) *mechanisms {
	t.Helper()
	r, err := openMechanisms(dir, proc.Default(), send)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// keep saves failures.
func keep(t *testing.T, r *mechanisms, failures ...node.Failure) {
	t.Helper()
	if err := r.keep(failures); err != nil {
		t.Error(err)
	}
}

func TestAPinIsFollowedByATickThatBeginsAfterIt(t *testing.T) {
	woken := make(chan tick.Event, 1)
	r := reopen(t, t.TempDir(), func(e tick.Event) { woken <- e })
	if asked := follows(r); asked != (node.Request{}) { // during a tick
		t.Errorf("nothing was asked for: %+v", asked)
	}
	done := make(chan error, 1)
	go func() { done <- r.Pin(t.Context(), node.MechanismIdle) }()
	if e := <-woken; e.Kind != tick.EventPin || e.Text != "cpu.idle is pinned by hand" {
		t.Errorf("%v", e)
	}
	r.end(true)
	select {
	case err := <-done:
		t.Fatalf("Pin returned after a tick that began before it: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if asked := follows(r); asked.Mechanism != node.MechanismIdle || time.Since(asked.At) > time.Minute {
		t.Errorf("%+v", asked)
	}
	r.end(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAPinThatNoTickFollowsIsSaidToBeOne(t *testing.T) {
	r := reopen(t, t.TempDir(), func(tick.Event) {})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := r.Pin(ctx, node.MechanismIdle); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no tick of tenond has applied it yet") {
		t.Errorf("%v", err)
	}
	if asked := follows(r); asked.Mechanism != node.MechanismIdle {
		t.Errorf("a later tick does not apply the choice: %+v", asked)
	}
}

// follows begins a tick whose time is now, and returns the operator's request.
func follows(r *mechanisms) node.Request {
	asked, _ := r.begin(time.Now().Round(0))
	return asked
}

// ask makes an operator's request, and runs a tick at once.
func ask(t *testing.T, r *mechanisms, mechanism node.Mechanism) node.Request {
	t.Helper()
	var asked node.Request
	r.send = func(tick.Event) {
		asked = follows(r)
		r.end(true)
	}
	if err := r.Pin(t.Context(), mechanism); err != nil {
		t.Fatal(err)
	}
	return asked
}

func TestAPinOutlivesTheDaemonButNotTheBoot(t *testing.T) {
	dir := t.TempDir()
	r := reopen(t, dir, nil)
	pinned := ask(t, r, node.MechanismCoreSched)
	if next := follows(reopen(t, dir, nil)); next.Mechanism != node.MechanismCoreSched || !next.At.Equal(pinned.At) {
		t.Errorf("%+v, want %+v", next, pinned)
	}
	text, err := os.ReadFile(r.path())
	if err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(string(text), r.boot, "another-boot")
	if other == string(text) {
		t.Fatalf("no boot in %s", text)
	}
	if err := os.WriteFile(r.path(), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if next := follows(reopen(t, dir, nil)); next != (node.Request{}) {
		t.Errorf("after a boot: %+v", next)
	}
}

// TestFailuresBeforeARequestDoNotCountLater selects a mechanism like an
// operator, which voids its earlier failures. They must stay void when the
// selection ends.
func TestFailuresBeforeARequestDoNotCountLater(t *testing.T) {
	dir := t.TempDir()
	r := reopen(t, dir, nil)
	if asked := ask(t, r, ""); asked != (node.Request{}) {
		t.Errorf("nothing was pinned: %+v", asked)
	}
	pinned := ask(t, r, node.MechanismSchedExt)
	if asked := ask(t, r, ""); asked.Mechanism != "" || !asked.At.Equal(pinned.At) {
		t.Errorf("%+v, want the time of %+v", asked, pinned)
	}
	if next := follows(reopen(t, dir, nil)); next.Mechanism != "" || !next.At.Equal(pinned.At) {
		t.Errorf("after a restart: %+v", next)
	}
}

func TestAPinThatCannotBeKeptOrReadIsAnError(t *testing.T) {
	dir := t.TempDir()
	r := reopen(t, dir, nil)
	r.dir = dir + "/gone"
	if err := r.Pin(t.Context(), node.MechanismIdle); !errors.Is(err, os.ErrNotExist) || r.now != (node.Request{}) {
		t.Errorf("%v, %+v", err, r.now)
	}
	r.dir = dir
	if err := os.WriteFile(r.path(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := openMechanisms(dir, proc.Default(), nil); err == nil || !strings.Contains(err.Error(), statedir.MechanismsFile) || r == nil || r.now != (node.Request{}) {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestFailuresOutliveTheDaemon checks that failures under earlier daemons still
// count. Three failures in an hour must disable a mechanism even if the daemon
// restarted between them.
func TestFailuresOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	r := reopen(t, dir, nil)
	fall := node.Failure{At: time.Now().Round(0), Mechanism: node.MechanismSchedExt, Why: "runnable task stall"}
	keep(t, r, fall)
	ask(t, r, node.MechanismIdle)
	next := reopen(t, dir, nil)
	if len(next.earlier) != 1 || next.earlier[0].Why != fall.Why || !next.earlier[0].At.Equal(fall.At) || next.now.Mechanism != node.MechanismIdle {
		t.Errorf("%+v, %+v", next.earlier, next.now)
	}
	if err := os.Remove(r.path()); err != nil {
		t.Fatal(err)
	}
	keep(t, r, fall)
	if _, err := os.Stat(r.path()); err == nil {
		t.Error("an unchanged file was written again")
	}
	r.dir = dir + "/gone"
	if err := r.keep(nil); err == nil {
		t.Error("no error although the failure cannot be saved")
	}
}

// TestAFailureThatCouldNotBeSavedIsSavedLater checks that the next tick saves a
// failure that could not be saved. An error that lasts is returned once.
func TestAFailureThatCouldNotBeSavedIsSavedLater(t *testing.T) {
	dir := t.TempDir()
	r := reopen(t, dir, nil)
	failure := node.Failure{At: time.Now().Round(0), Mechanism: node.MechanismSchedExt, Why: "runnable task stall"}
	r.dir = dir + "/gone"
	if err := r.keep([]node.Failure{failure}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	keep(t, r, failure)
	r.dir = dir
	keep(t, r, failure)
	if next := reopen(t, dir, nil); len(next.earlier) != 1 || next.earlier[0].Why != failure.Why {
		t.Errorf("the next daemon has %+v", next.earlier)
	}
	r.dir = dir + "/gone"
	if err := r.keep(nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory again: %v", err)
	}
}

func TestAMechanismThatWaitsForAnotherIsNotKeptWaiting(t *testing.T) {
	now := time.Unix(100, 0)
	chosen := tick.Tick{Snapshot: node.Snapshot{At: now}, Selection: node.Selection{Mechanism: node.MechanismCoreSched, Since: now}}
	if handsOver(chosen) || handsOver(tick.Tick{}) {
		t.Error("a want that waits for another mechanism is not found")
	}
	chosen.Wants = []plan.Want{{Owner: plan.OwnerSuppress, Intent: plan.Abstain}, {Owner: plan.OwnerMechanism, Intent: plan.Abstain}}
	if !handsOver(chosen) {
		t.Error("the next tick waits for the period")
	}
	chosen.Snapshot.At = now.Add(time.Second)
	if handsOver(chosen) {
		t.Error("a mechanism that cannot be unloaded makes the loop spin")
	}
}

// TestAChoiceHasTheTimeOfTheTicks sets the wall clock an hour ahead of the
// clock of the failures, and then an hour behind it. It also loads a choice
// with a time in the future. A choice must never void later failures.
func TestAChoiceHasTheTimeOfTheTicks(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": -time.Hour, "behind": time.Hour} {
		dir := t.TempDir()
		at := time.Now().Add(off).Round(0)
		r := reopen(t, dir, nil)
		if _, err := r.set(node.MechanismSchedExt); err != nil {
			t.Fatal(err)
		}
		if asked, _ := r.begin(time.Time{}); asked.Mechanism != node.MechanismSchedExt {
			t.Errorf("%s: a tick without a time has %+v", name, asked)
		}
		for turns := range 2 {
			asked, _ := r.begin(at.Add(time.Duration(turns) * time.Minute))
			if !asked.At.Equal(at) {
				t.Errorf("%s: turn %d: asked at %v, want %v", name, turns, asked.At, at)
			}
		}
		if next := reopen(t, dir, nil); !next.now.At.Equal(at) {
			t.Errorf("%s: kept was %v, want %v", name, next.now.At, at)
		}
		next, earlier := reopen(t, dir, nil), at.Add(-time.Hour)
		if asked, _ := next.begin(earlier); !asked.At.Equal(earlier) || !reopen(t, dir, nil).now.At.Equal(earlier) {
			t.Errorf("%s: a daemon whose clock is behind has %v, want %v", name, asked.At, earlier)
		}
	}
}

// TestFailuresOfEarlierDaemonsAreReportedOnce checks that the first tick with a
// time returns the failures of an earlier daemon, and that the second tick
// returns none. A failure with a time in the future must be dropped.
func TestFailuresOfEarlierDaemonsAreReportedOnce(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Round(0)
	keep(t, reopen(t, dir, nil), node.Failure{At: now.Add(-time.Minute), Why: "stall"}, node.Failure{At: now.Add(6 * time.Hour), Why: "ahead"})
	r := reopen(t, dir, nil)
	if _, failures := r.begin(time.Time{}); len(failures) != 0 {
		t.Errorf("without a time: %v", failures)
	}
	r.end(false)
	for n, want := range []int{1, 0} {
		_, failures := r.begin(now)
		if len(failures) != want || want == 1 && failures[0].Why != "stall" {
			t.Errorf("turn %d: %v, want %d", n, failures, want)
		}
		r.end(true)
	}
}

// TestATickThatFailedFollowsNoChoice runs a tick that could not read the node.
// This tick decided nothing, so it must not count as a tick that applied the
// choice.
func TestATickThatFailedFollowsNoChoice(t *testing.T) {
	r := reopen(t, t.TempDir(), nil)
	first, err := r.set(node.MechanismIdle)
	if err != nil {
		t.Fatal(err)
	}
	r.begin(time.Time{})
	r.end(false)
	if len(first) > 0 {
		t.Error("a tick that could not read the node followed the choice")
	}
	follows(r)
	second, err := r.set(node.MechanismIdle)
	if err != nil {
		t.Fatal(err)
	}
	if r.end(true); len(first) != 1 || len(second) != 0 {
		t.Errorf("outcomes: %d of the first, %d of the second, want 1 and 0", len(first), len(second))
	}
}
