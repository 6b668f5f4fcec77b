package record

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func ringSize(t *testing.T, stateDir string) (sum int64, files int) {
	t.Helper()
	all, err := list(filepath.Join(stateDir, subdir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		sum += f.size
	}
	return sum, len(all)
}

func captured(t *testing.T, stateDir string) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Capture(stateDir, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheRingIsBoundedAndWhatIsInItReplays(t *testing.T) {
	dir := t.TempDir()
	const size = 64 << 10
	r, err := Open(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	l := newLife(6)
	for range 600 {
		if err := r.Record(l.tick(time.Second)); err != nil {
			t.Fatal(err)
		}
		if sum, _ := ringSize(t, dir); sum > size+size/segments {
			t.Fatalf("the ring has %d bytes, more than %d", sum, size)
		}
	}
	report, err := Replay(bytes.NewReader(captured(t, dir)), nil)
	if err != nil || !report.Identical() || report.Stretches != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if report.Ticks == 600 || report.Ticks < 30 || !report.To.Equal(l.snap.At) {
		t.Errorf("%d turns up to %v: want the last of 600", report.Ticks, report.To)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAnHourFitsIntoTheRing checks the promise of tenon capture: with a hundred
// workloads and ticks of one second, the ring contains an hour. This must hold
// even if there are orders for the BE scheduler, waits are counted, and the
// oldest file was just removed.
func TestAnHourFitsIntoTheRing(t *testing.T) {
	const turns = 400
	dir := t.TempDir()
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLife(100)
	l.isolates()
	var key int64
	orders := 0
	for i := range turns {
		turn := l.tick(time.Second)
		for _, w := range turn.Wants {
			if w.Knob.File.OrdersScheduler() {
				orders++
			}
		}
		if err := r.Record(turn); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			key = r.file.size
		}
	}
	sum, files := ringSize(t, dir)
	each := (sum - int64(files)*key) / (turns - int64(files))
	t.Logf("%d bytes a tick and %d for the first of a file, with %d orders a tick", each, key, orders/turns)
	if orders/turns < 90 {
		t.Errorf("%d orders a tick", orders/turns)
	}
	if hour := 3600*each + (segments-1)*key; hour > DefaultSize/segments*(segments-1) {
		t.Errorf("an hour takes %d bytes of a ring that has %d for sure", hour, DefaultSize/segments*(segments-1))
	}
}

// TestARingThatWasRemovedBeginsAgain removes or renames the state directory while
// the recorder runs. The next ticks must be in a new file that begins with a key
// line, so that they replay.
func TestARingThatWasRemovedBeginsAgain(t *testing.T) {
	for name, remove := range map[string]func(string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			r, err := Open(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			l := newLife(4)
			record := func() {
				t.Helper()
				for range 5 {
					if err := r.Record(l.tick(time.Second)); err != nil {
						t.Fatal(err)
					}
				}
			}
			record()
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			record()
			report, err := Replay(bytes.NewReader(captured(t, dir)), nil)
			if err != nil || !report.Identical() || report.Ticks != 5 {
				t.Errorf("%+v, %v", report, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestACrashLosesNothing does not close the recorder, as if the agent had been
// killed.
func TestACrashLosesNothing(t *testing.T) {
	dir := t.TempDir()
	l := newLife(4)
	for life := range 3 {
		r, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := r.Record(l.tick(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		report, err := Replay(bytes.NewReader(captured(t, dir)), nil)
		if err != nil || !report.Identical() || report.Ticks != 10*(life+1) || report.Stretches != life+1 {
			t.Fatalf("after %d crashes: %+v, %v", life, report, err)
		}
	}
}

func TestATornFileInTheRingCostsItsTail(t *testing.T) {
	dir := t.TempDir()
	l := newLife(4)
	for range 2 {
		r, err := Open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := r.Record(l.tick(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(dir, subdir, nameOf(1))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	report, err := Replay(bytes.NewReader(captured(t, dir)), nil)
	if err != nil || !report.Identical() || report.Ticks < 18 || report.Stretches != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as after a crash just after the file was created
		t.Fatal(err)
	}
	report, err = Replay(bytes.NewReader(captured(t, dir)), nil)
	if err != nil || report.Ticks != 10 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestAFailureIsOneErrorAndThenAFreshStart(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLife(4)
	record := func() error { return r.Record(l.tick(time.Second)) }
	if err := record(); err != nil {
		t.Fatal(err)
	}
	_ = r.file.file.Close() // as if the disk had failed
	first := record()
	if first == nil {
		t.Fatal("a write to a closed file was no error")
	}
	for range 5 {
		if err := record(); !errors.Is(err, first) {
			t.Fatalf("%v: want the first error again", err)
		}
	}
	for range 10 {
		err = record()
	}
	if err != nil {
		t.Fatalf("not tried again: %v", err)
	}
	report, err := Replay(bytes.NewReader(captured(t, dir)), nil)
	if err != nil || !report.Identical() || report.Stretches != 2 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestTheLastRoomIsLeftToTheJournal(t *testing.T) {
	r, err := Open(t.TempDir(), 1<<60)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Record(newLife(1).tick(time.Second)); err == nil || !strings.Contains(err.Error(), "stay free") {
		t.Errorf("%v", err)
	}
}

func TestATickThatCouldNotReadTheNodeIsNotRecorded(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Record(Tick{}); err != nil {
		t.Fatal(err)
	}
	if _, files := ringSize(t, dir); files != 0 {
		t.Errorf("%d files", files)
	}
	if _, err := Capture(dir, &bytes.Buffer{}); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	if _, err := Capture(filepath.Join(dir, "other"), &bytes.Buffer{}); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}
