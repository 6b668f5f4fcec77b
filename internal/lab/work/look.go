package work

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// LookPeriod is the time between two reports of an ffmpeg that reports to a file
// (Transcode.Report). It is about the time of one frame, so a look at the file counts
// the frames up to one. The lab reads the file only when it looks: reports that woke
// it up would stop the load generator, which has the same CPU.
const LookPeriod = 20 * time.Millisecond

// tailSize is the size of the end of a file that has at least one whole report.
const tailSize = 4 << 10

// errNoReport says that a process has not reported yet.
var errNoReport = errors.New("it has not reported its progress yet")

// Look reads what the processes have done so far, and notes it as the progress at a
// given time (at), which is about now. The progress between the times of two looks is
// a count, and not interpolated. Look does nothing for a job that reports to its
// standard output.
func (w *Batch) Look(at time.Time) error {
	if w == nil || w.job.Report == nil {
		return nil
	}
	var faults []error
	for i, m := range w.marks {
		mark, err := readReport(w.job.Report(i + 1))
		if err != nil {
			faults = append(faults, fmt.Errorf("read the progress of %s %d: %w", w.job.Name, i+1, err))
			continue
		}
		mark.At = at
		m.Add(mark)
	}
	return errors.Join(faults...)
}

// Look does so for all jobs.
func (all Batches) Look(at time.Time) error {
	var faults []error
	for _, w := range all {
		faults = append(faults, w.Look(at))
	}
	return errors.Join(faults...)
}

// dropReport removes the report of an earlier process of a slot: a look must not take
// it for that of the next process.
func (w *Batch) dropReport(slot int) error {
	if w.job.Report == nil {
		return nil
	}
	if err := os.Remove(w.job.Report(slot)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an older report: %w", err)
	}
	return nil
}

// readReport returns the last whole report in a file.
func readReport(path string) (Mark, error) {
	f, err := os.Open(path)
	if err != nil {
		return Mark{}, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Mark{}, err
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(size-tailSize, 0), tailSize))
	if err != nil {
		return Mark{}, err
	}
	mark, found := lastReport(string(tail))
	if !found {
		return Mark{}, errNoReport
	}
	return mark, nil
}

// lastReport returns the last whole report in the end of a text. The end may begin
// within a report, and the text may end within one.
func lastReport(text string) (last Mark, found bool) {
	var at Mark
	counted := false // the report has its number of frames
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		counted = counted || strings.HasPrefix(line, "frame=")
		if at.read(line) && counted {
			last, found, counted = at, true, false
		}
	}
	return last, found
}
