package work

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
)

// tenFrames returns a process that reports at least ten frames and then ends.
func tenFrames(slot int) []string {
	return []string{"sh", "-c", fmt.Sprintf("echo frame=1%d; echo out_time_us=1000; echo progress=end", slot)}
}

func jobFor(t *testing.T, j Job) *Batch {
	t.Helper()
	w, err := StartBatch(&testbed.Site{}, j, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func TestAJobThatRestartsGoesOn(t *testing.T) {
	w := jobFor(t, Job{Name: "counter", Slots: 2, Argv: tenFrames, Restart: true})
	began := time.Now().Add(-time.Hour)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if frames, _ := w.ProgressBetween(began, time.Now()); frames >= 3*(11+12) {
			break
		}
		if time.Now().After(deadline) {
			frames, _ := w.ProgressBetween(began, time.Now())
			t.Fatalf("%s frames: the processes are not started anew", strconv.FormatFloat(frames, 'f', -1, 64))
		}
	}
	if err := w.ExitError(); err != nil {
		t.Errorf("a job that restarts died: %v", err)
	}
}

func TestAJobThatDoesNotRestartDies(t *testing.T) {
	w := jobFor(t, Job{Name: "counter", Slots: 1, Argv: tenFrames})
	for deadline := time.Now().Add(10 * time.Second); w.ExitError() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Died does not report the end of the process")
		}
	}
}

func TestAJobThatFailsIsNotStartedAnew(t *testing.T) {
	w := jobFor(t, Job{Name: "failure", Slots: 1, Restart: true, Argv: func(int) []string { return []string{"sh", "-c", "echo no film >&2; exit 3"} }})
	for deadline := time.Now().Add(10 * time.Second); w.ExitError() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Died does not report the failure of the process")
		}
	}
}
