package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/site"
	"tenon.sh/tenon/internal/model/node"
)

// A Job is batch work in slots. Each slot runs the same work in a process.
type Job struct {
	Name  string // name of the processes, to which the number of the slot is appended
	Slots int
	Argv  func(slot int) []string // slots are counted from 1
	// Restart starts a process again whenever it ends with status 0. Without
	// Restart, the slot ends with its process.
	Restart bool
	// Session, Nice and SchedIdle are those of the processes, see site.Child.
	Session   bool
	Nice      int
	SchedIdle bool
}

// A Batch is a running job.
type Batch struct {
	job   Job
	start func(slot int) (*site.Process, error)
	marks []*Marks // one for each slot

	mu        sync.Mutex
	processes []*site.Process // the latest process of each slot
	stopped   bool
}

// StartBatch starts a job in its group, on the tested CPUs.
func StartBatch(s *site.Site, j Job, group node.CgroupPath) (*Batch, error) {
	w := &Batch{job: j}
	for range j.Slots {
		w.marks = append(w.marks, &Marks{})
	}
	w.start = func(slot int) (*site.Process, error) {
		r, out := io.Pipe()
		p, err := site.Start(s.Groups(), site.Child{
			Name: fmt.Sprintf("%s %d", j.Name, slot), Argv: j.Argv(slot), Group: group, CPUs: s.Place.Tested, Stdout: out,
			Session: j.Session, Nice: j.Nice, SchedIdle: j.SchedIdle,
		})
		if err != nil {
			out.Close()
			return nil, err
		}
		m := w.marks[slot-1]
		go func() {
			_ = m.Follow(r, time.Now)
			_, _ = io.Copy(io.Discard, r) // a report that cannot be read must not block the work
		}()
		go func() {
			<-p.Done()
			out.Close()
			w.again(slot, p)
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

// again restarts the process of a slot that has ended, if the job has Restart.
func (w *Batch) again(slot int, ended *site.Process) {
	if !w.job.Restart || ended.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.marks[slot-1].Restart()
	if p, err := w.start(slot); err == nil { // otherwise Died reports the ended process
		ended.Kill() // removes it from the journal
		w.processes[slot-1] = p
	}
}

// now returns the current processes of the slots.
func (w *Batch) now() []*site.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// PIDs lists the current processes of the slots.
func (w *Batch) PIDs() []int {
	var pids []int
	for _, p := range w.now() {
		pids = append(pids, p.PID)
	}
	return pids
}

// Encoding waits until every process has encoded a frame.
func (w *Batch) Encoding(ctx context.Context) error {
	deadline := time.Now().Add(60 * time.Second)
	for i := 0; i < len(w.marks); {
		switch {
		case w.marks[i].Started():
			i++
			continue
		case w.now()[i].Ended() && !w.job.Restart:
			return errors.Join(w.now()[i].Err(), w.now()[i].EndedEarly())
		case time.Now().After(deadline):
			return fmt.Errorf("%s has not encoded a frame in a minute", w.now()[i].Name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// Died returns the error of the first process that has ended; nil while all
// run.
func (w *Batch) Died() error {
	if w == nil {
		return nil
	}
	for _, p := range w.now() {
		if p.Ended() && (!w.job.Restart || p.Err() != nil) {
			return errors.Join(p.Err(), p.EndedEarly())
		}
	}
	return nil
}

// Between returns the progress of all processes together between two times.
func (w *Batch) Between(from, to time.Time) (frames float64, media time.Duration) {
	if w == nil {
		return 0, 0
	}
	for _, m := range w.marks {
		f, d := m.Between(from, to)
		frames, media = frames+f, media+d
	}
	return frames, media
}

// Stop kills the batch work, because its result is not needed.
func (w *Batch) Stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	for _, p := range w.now() {
		p.Kill()
	}
}
