package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/meter"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A slot is a cgroup in which one job after another runs.
type slot struct {
	b      *machine
	index  int // from 0
	group  node.CgroupPath
	bounds testbed.Bounds

	mu      sync.Mutex
	process *testbed.Process // the running job; nil: none
	marks   *work.Marks      // the marks of this job
	meter   meter.Meter
}

// build makes the cgroup of the slot. The quota is not written yet.
func (s *slot) build(cell Cell) error {
	if err := s.b.Host.MakeGroup(s.group); err != nil {
		return err
	}
	group := string(s.group)
	if err := s.b.Tree.WriteCPUs(group, s.bounds.CPUs); err != nil {
		return err
	}
	if err := s.b.Tree.WriteCPUWeight(group, cgroup.CPUWeight{Weight: weightOf(cell.Limit)}); err != nil {
		return err
	}
	if cell.Memory > 0 {
		return s.b.Tree.WriteMemory(group, cgroup.Memory{High: unit.MaxBytes, Max: cell.Memory})
	}
	return nil
}

// hold writes the quota of the slot.
func (s *slot) hold() error { return s.b.WriteQuota(s.group, s.bounds) }

// start starts a job in the slot.
func (s *slot) start(number, threads int, frames float64) error {
	marks := &work.Marks{}
	child := testbed.Child{
		Name: fmt.Sprintf("job %d", number), Argv: s.b.task.argv(number, threads, frames), Group: s.group, CPUs: s.bounds.CPUs,
		Before: func(pid int) error {
			s.mu.Lock()
			s.meter.Follow(pid)
			s.mu.Unlock()
			return nil
		},
	}
	var r *io.PipeReader
	var out *io.PipeWriter
	if s.b.task.reports() {
		r, out = io.Pipe()
		child.Stdout = out
	}
	p, err := testbed.Start(s.b.Host, child)
	if err != nil {
		if out != nil {
			out.Close()
		}
		return err
	}
	if out != nil {
		go func() {
			_ = marks.Follow(r, time.Now)
			_, _ = io.Copy(io.Discard, r) // a report that cannot be read must not block the job
		}()
		go func() {
			<-p.Done()
			out.Close()
		}()
	}
	s.mu.Lock()
	s.process, s.marks = p, marks
	s.mu.Unlock()
	return nil
}

// Read reads the counters of the slot.
func (s *slot) Read() (meter.Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meter.Read()
}

// end kills the job of the slot if it still runs.
func (s *slot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
	s.meter.Close()
}

// exitError returns the error of an endless job that has ended.
func (s *slot) exitError() error {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p == nil || !p.HasEnded() {
		return nil
	}
	return errors.Join(p.Err(), p.EndedEarly())
}

// awaitFirstUnit waits until the job of the slot has done its first unit of
// work.
func (s *slot) awaitFirstUnit(ctx context.Context) error {
	deadline := time.Now().Add(time.Minute)
	for !s.marks.Started() {
		if err := s.exitError(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("job %d has encoded nothing in a minute", s.index)
		}
		if err := testbed.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
