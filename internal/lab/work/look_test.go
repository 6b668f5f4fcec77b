package work

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
)

func TestTheLastWholeReportCounts(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		frames float64
		found  bool
	}{
		"three reports":                {report2, 40, true},
		"it begins within a report":    {"us=1\nprogress=continue\n" + report2, 40, true},
		"only the end of a report":     {"out_time_us=1\nprogress=continue\n", 0, false},
		"it ends within a report":      {report2 + "frame=50\nout_time_us=1", 40, true},
		"it ends within the last line": {report2 + "frame=50\nprogress=cont", 40, true},
		"no report":                    {"", 0, false},
	} {
		if got, found := lastReport(c.text); got.Frames != c.frames || found != c.found {
			t.Errorf("%s: %+v, found %v", name, got, found)
		}
	}
}

// TestFramesBetweenLooksAreCounted has a process that reports ten frames, stands still
// and reports five more. Between two looks there are as many frames as were reported,
// and none while it stood still, however far the looks are apart.
func TestFramesBetweenLooksAreCounted(t *testing.T) {
	dir := t.TempDir()
	path := func(slot int) string { return filepath.Join(dir, fmt.Sprint("report-", slot)) }
	report := func(slot, frames int) {
		t.Helper()
		f, err := os.OpenFile(path(slot), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// The file is longer than what a look reads.
		fmt.Fprintf(f, "%sframe=%d\nout_time_us=%d\nprogress=continue\n", strings.Repeat("bitrate=N/A\n", tailSize/10), frames, 1000*frames)
	}
	w := &Batch{job: Job{Name: "ffmpeg", Report: path}, marks: []*Marks{{}, {}}}
	if err := w.Look(time.Unix(0, 0)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a look at a file that is not there: %v", err)
	}
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	look := func(second, first, other int) {
		report(1, first)
		report(2, other)
		if err := w.Look(at(second)); err != nil {
			t.Fatal(err)
		}
	}
	look(10, 10, 7)
	look(20, 10, 7) // both stood still
	look(21, 15, 7)
	look(30, 20, 9)
	for _, c := range []struct{ from, to, frames int }{{10, 20, 0}, {20, 21, 5}, {10, 30, 12}, {21, 30, 7}} {
		if frames, _ := w.ProgressBetween(at(c.from), at(c.to)); frames != float64(c.frames) {
			t.Errorf("from %d to %d: %v frames, want %d", c.from, c.to, frames, c.frames)
		}
	}
	if err := os.WriteFile(path(2), []byte("frame=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Look(at(40)); !errors.Is(err, errNoReport) {
		t.Errorf("a look at a file without a report: %v", err)
	}
}

// TestAnOlderReportDoesNotCount starts a job where an earlier process has reported.
func TestAnOlderReportDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(path, []byte(report2), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w, err := StartBatch(&testbed.Site{}, Job{
		Name: "reporter", Slots: 1, Report: func(int) string { return path },
		Argv: func(int) []string {
			return []string{"sh", "-c", "sleep 0.3; printf 'frame=3\\nprogress=continue\\n' > " + path + "; sleep 60"}
		},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	if err := w.Encoding(t.Context()); err != nil {
		t.Fatal(err)
	}
	if frames, _ := w.ProgressBetween(began, time.Now().Add(time.Hour)); frames != 3 {
		t.Errorf("%v frames, want 3", frames)
	}
}
