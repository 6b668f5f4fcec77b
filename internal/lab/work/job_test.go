package work

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// TestProgressOfARestartingJobCountsOnce runs a process that prints all its lines
// at once and ends. It ends before the lab has read them.
func TestProgressOfARestartingJobCountsOnce(t *testing.T) {
	const lines, restarts = 2000, 50
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x\n"), lines), 0o644); err != nil {
		t.Fatal(err)
	}
	w := jobFor(t, Job{Name: "printer", Slots: 1, Restart: true, Line: regexp.MustCompile("^x$"), Argv: func(int) []string { return []string{"cat", path} }})
	m := w.marks[0]
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		before, falls := m.before.Frames, !slices.IsSortedFunc(m.marks, func(a, b Mark) int { return cmp.Compare(a.Frames, b.Frames) })
		m.mu.Unlock()
		if falls || int(before)%lines != 0 {
			t.Fatalf("the ended processes printed %v lines, the progress falls: %v; want a multiple of %d", before, falls, lines)
		}
		if before >= restarts*lines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v lines: the process is not started anew", before)
		}
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
