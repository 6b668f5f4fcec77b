package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// A Job is batch work in slots. Each slot runs the same work in its own
// process.
type Job struct {
	Name  string // name of the processes, to which the number of the slot is appended
	Slots int
	Argv  func(slot int) []string // slots are counted from 1
	// Restart starts a process again whenever it ends with status 0. If Restart
	// is false, a slot ends together with its process.
	Restart bool
	// Session, Nice and SchedIdle apply to each process of the job; see
	// testbed.Child.
	Session   bool
	Nice      int
	SchedIdle bool
	// Line matches the lines of progress (Work.Line). If it is nil, the
	// progress has the form of ffmpeg. If CPUTime is set, the progress is the
	// CPU time in seconds.
	Line    *regexp.Regexp
	CPUTime bool
	// Report is the file in which the process of a slot reports its progress in the
	// form of ffmpeg (Transcode.Report); nil: on its standard output. Batch.Look
	// reads it.
	Report func(slot int) string
}

// A Batch is a running job.
type Batch struct {
	job   Job
	start func(slot int) (*testbed.Process, error)
	marks []*Marks // one for each slot

	mu        sync.Mutex
	processes []*testbed.Process // the latest process of each slot
	used      time.Duration      // CPU time of the processes that have been replaced
	stopped   bool
}

// StartBatch starts a job in the given group, on the tested CPUs.
func StartBatch(s *testbed.Site, j Job, group node.CgroupPath) (*Batch, error) {
	w := &Batch{job: j}
	for range j.Slots {
		w.marks = append(w.marks, &Marks{})
	}
	w.start = func(slot int) (*testbed.Process, error) {
		if err := w.dropReport(slot); err != nil {
			return nil, err
		}
		r, out := io.Pipe()
		p, err := testbed.Start(s.Groups(), testbed.Child{
			Name: fmt.Sprintf("%s %d", j.Name, slot), Argv: j.Argv(slot), Group: group, CPUs: s.Place.Tested, Stdout: out,
			Session: j.Session, Nice: j.Nice, SchedIdle: j.SchedIdle,
		})
		if err != nil {
			out.Close()
			return nil, err
		}
		m := w.marks[slot-1]
		var following sync.WaitGroup
		following.Go(func() {
			switch {
			case j.Line != nil:
				_ = m.FollowLines(r, j.Line, time.Now)
			case !j.CPUTime:
				_ = m.Follow(r, time.Now)
			}
			_, _ = io.Copy(io.Discard, r) // a report that cannot be read must not block the work
		})
		if j.CPUTime {
			following.Go(func() { m.followTime(s.FS, p) })
		}
		go func() {
			<-p.Done()
			out.Close()      // ends the reader after the lines that it has
			following.Wait() // the marks of a process come before those of the next
			w.restart(slot, p)
		}()
		return p, nil
	}
	for slot := 1; slot <= j.Slots; slot++ {
		w.mu.Lock() // a process that ends at once is restarted only after this
		p, err := w.start(slot)
		if err == nil {
			w.processes = append(w.processes, p)
		}
		w.mu.Unlock()
		if err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// restart starts the process of a slot again after it has ended, if the job has
// Restart set.
func (w *Batch) restart(slot int, ended *testbed.Process) {
	if !w.job.Restart || ended.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.marks[slot-1].Restart()
	if p, err := w.start(slot); err == nil { // otherwise ExitError reports the ended process
		ended.Kill() // removes it from the journal
		w.used += ended.Used()
		w.processes[slot-1] = p
	}
}

// current returns the current processes of the slots.
func (w *Batch) current() []*testbed.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// Used returns the CPU time of all processes of the job and of their children
// (testbed.TreeTime).
func (w *Batch) Used(fs proc.FS) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.used
	for _, p := range w.processes {
		t, err := testbed.TreeTime(fs, p.PID)
		if p.HasEnded() {
			t, err = p.Used(), nil
		}
		if err != nil && !errors.Is(err, proc.ErrGone) { // it ends at this moment
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// followTime adds the CPU time of a process to the marks, again and again until
// the process ends. Then it adds the total.
func (m *Marks) followTime(fs proc.FS, p *testbed.Process) {
	last := time.Duration(0)
	for {
		if t, err := testbed.TreeTime(fs, p.PID); err == nil {
			last = t
			m.Add(Mark{At: time.Now(), Frames: t.Seconds()})
		}
		select {
		case <-p.Done():
			// Used leaves out children for which the process did not wait.
			m.Add(Mark{At: time.Now(), Frames: max(last, p.Used()).Seconds()})
			return
		case <-time.After(workPeriod):
		}
	}
}

// Encoding waits until every process has shown progress.
func (w *Batch) Encoding(ctx context.Context) error {
	deadline := time.Now().Add(60 * time.Second)
	for i := 0; i < len(w.marks); {
		looked := w.Look(time.Now()) // an error is none yet: the file appears with the first report
		switch {
		case w.marks[i].Started():
			i++
			continue
		case w.current()[i].HasEnded() && (!w.job.Restart || w.current()[i].Err() != nil):
			return errors.Join(w.current()[i].Err(), w.current()[i].EndedEarly())
		case time.Now().After(deadline):
			return errors.Join(fmt.Errorf("%s has not shown progress in a minute", w.current()[i].Name), looked)
		}
		if err := testbed.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// ExitError returns the error of the first process that has ended. It returns
// nil if all run.
func (w *Batch) ExitError() error {
	if w == nil {
		return nil
	}
	for _, p := range w.current() {
		if p.HasEnded() && (!w.job.Restart || p.Err() != nil) {
			return errors.Join(p.Err(), p.EndedEarly())
		}
	}
	return nil
}

// ProgressBetween returns the progress of all processes together between two
// times.
func (w *Batch) ProgressBetween(from, to time.Time) (frames float64, media time.Duration) {
	if w == nil {
		return 0, 0
	}
	for _, m := range w.marks {
		f, d := m.ProgressBetween(from, to)
		frames, media = frames+f, media+d
	}
	return frames, media
}

// Stop kills the batch work. Its result is not needed.
func (w *Batch) Stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	for _, p := range w.current() {
		p.Kill()
	}
}

// Batches are the jobs that run beside a service at the same time.
type Batches []*Batch

// Encoding waits until every process of every job has shown progress.
func (all Batches) Encoding(ctx context.Context) error {
	for _, w := range all {
		if err := w.Encoding(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ExitError returns the error of the first process that has ended. It returns
// nil if all run.
func (all Batches) ExitError() error {
	for _, w := range all {
		if err := w.ExitError(); err != nil {
			return err
		}
	}
	return nil
}

// Used returns the CPU time of all jobs.
func (all Batches) Used(fs proc.FS) (sum time.Duration, err error) {
	for _, w := range all {
		t, err := w.Used(fs)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// Stop kills all jobs.
func (all Batches) Stop() {
	for _, w := range all {
		w.Stop()
	}
}
