// Package scx loads Tenon's sched_ext scheduler, bpf/scheduler.bpf.c: BE
// threads (policy SCHED_EXT) run only where no fair thread wants the CPU and,
// when Params.SMTRule is set, never beside a running LS thread on the other
// thread of a core.
//
// The scheduler is partial: LS threads stay with the kernel's own scheduler,
// whose class is above that of sched_ext. All that they notice is one tracing
// program at each context switch. Nothing is pinned: when the process that
// loaded the scheduler dies, the kernel unloads it and BE threads go on in the
// fair class, where their cgroup should have cpu.idle set.
//
// CPU quotas and weights of cgroups do not act on SCHED_EXT threads; SetPods
// and SetCap take their place.
//
// It needs root and Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT and BTF.
// There is an object for each form of the kernel's interface (Variant), chosen
// by the functions that the kernel's BTF declares.
package scx

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"tenon.sh/tenon/internal/model/unit"
)

// ErrUnsupported means that this kernel cannot run the scheduler; the error
// around it says what is missing.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrBusy means that another sched_ext scheduler is loaded. Tenon does not
// replace it.
var ErrBusy = errors.New("another sched_ext scheduler is loaded")

// ErrClosed means that the scheduler was closed before.
var ErrClosed = errors.New("the scheduler is closed")

// NoCap as the cap of BE means that there is no cap.
const NoCap unit.MilliCPU = -1

// DefaultHeadroom lets the scheduler choose how many idle cores it leaves to
// LS: one of twenty in each LLC, at least one where there are more than two.
const DefaultHeadroom = -1

// Options says how to schedule. Only Topology and CgroupVersion have no usable
// zero value.
type Options struct {
	// CgroupVersion is the version of the hierarchy that carries the CPU
	// controller, 1 or 2. The ids given to Classify are of that hierarchy.
	CgroupVersion int
	// Topology has every online CPU. When a CPU goes online or offline the
	// scheduler ends (Exit.Restart): load it again with the new topology.
	Topology []CPU
	Params
	// Timeout is how long a BE thread may wait before the kernel's watchdog
	// ends the scheduler; 0: 30 s, which is also the most that kernels accept.
	Timeout time.Duration
	// Silence is how long the scheduler goes on without Beat before it ends
	// itself; 0: 60 s.
	Silence time.Duration
}

// Params can be changed while the scheduler runs.
type Params struct {
	// SMTRule keeps BE off the siblings of CPUs that run LSX.
	SMTRule bool
	// Hold is how long a sibling stays closed to BE after LSX has left; 0: 200
	// µs; negative: not at all.
	Hold time.Duration
	// Headroom is how many wholly idle cores of each LLC are left to LS when BE
	// is placed; 0: none; DefaultHeadroom: the scheduler chooses.
	Headroom int
	// Slice is how long a BE thread runs before another may; 0: 4 ms.
	Slice time.Duration
	// Cap limits the CPU time of all BE threads together; NoCap or 0: no limit.
	// See SetCap.
	Cap unit.MilliCPU
}

// A CPU is a logical CPU and its place. Core, LLC and Node are numbers of the
// caller's choice from 0 on, each unique on the machine; Thread counts from 0
// within the core.
type CPU struct {
	ID     unit.CPU
	Core   int
	Thread int
	LLC    int
	Node   int
}

// maxTimeout is the longest wait that kernels let a thread have.
const maxTimeout = 30 * time.Second

func (o Options) check() error {
	switch {
	case o.CgroupVersion != 1 && o.CgroupVersion != 2:
		return fmt.Errorf("cgroup version %d: want 1 or 2", o.CgroupVersion)
	case o.Timeout < 0 || o.Timeout > maxTimeout || o.Timeout > 0 && o.Timeout < time.Second:
		return fmt.Errorf("watchdog of %v: want 1 s to %v, or 0 for the latter", o.Timeout, maxTimeout)
	case o.Silence < 0:
		return fmt.Errorf("silence of %v: want a positive time, or 0 for a minute", o.Silence)
	}
	return o.Params.check()
}

func (p Params) check() error {
	switch {
	case p.Slice < 0 || p.Slice > time.Second:
		return fmt.Errorf("slice of %v: want up to 1 s, or 0 for the default", p.Slice)
	case p.Hold > time.Second:
		return fmt.Errorf("hold of %v: want up to 1 s, 0 for the default, or less for none", p.Hold)
	case p.Cap < NoCap || p.Cap > math.MaxUint32:
		return fmt.Errorf("cap of %v: want up to %v, or %d for none", p.Cap, unit.MilliCPU(math.MaxUint32), NoCap)
	case p.Headroom < DefaultHeadroom || p.Headroom > maxCPUs:
		return fmt.Errorf("headroom of %d cores: want up to %d, or %d for the default", p.Headroom, maxCPUs, DefaultHeadroom)
	}
	return nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// A Scheduler is loaded from Load to Close, or until the kernel ends it, which
// Status and Events report. It is safe for concurrent use.
type Scheduler struct {
	variant  Variant
	layout   *layout
	topology []CPU
	since    time.Time
	events   chan Event
	listened chan struct{} // closed when no sender to events is left
	reader   *ringbuf.Reader

	detaching atomic.Bool // this process ends the scheduler itself

	mu         sync.Mutex // guards the fields below
	kernel     *ebpf.Collection
	view       view
	hook, ops  link.Link
	number     uint64 // schedulers loaded since boot; 0: not known
	params     Params
	known      map[uint64]scheduler613ScxGroup // the contents of the table of groups
	generation uint32                          // of it
	quotaSlots uint32                          // slots below it may have threads that wait for quota
	beat       time.Time
	room       room
	closed     bool
}

// SetParams changes how BE is scheduled from now on.
func (s *Scheduler) SetParams(p Params) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("change the BE scheduler: %w", ErrClosed)
	}
	if err := p.check(); err != nil {
		return fmt.Errorf("change the BE scheduler: %w", err)
	}
	return s.setParams(p)
}

func (s *Scheduler) setParams(p Params) error {
	var cores scheduler613QosParams
	cores.HoldNs = uint64(max(orDefault(p.Hold, 200*time.Microsecond), 0))
	cores.SliceNs = uint64(orDefault(p.Slice, 4*time.Millisecond))
	if p.SMTRule {
		cores.SmtRule = 1
	}
	cores.CapMcpu = uint32(p.Cap)
	if p.Cap <= 0 {
		cores.CapMcpu = math.MaxUint32
	}
	if err := s.kernel.Variables[scheduler613VarParams].Set(cores); err != nil {
		return fmt.Errorf("set parameters %+v: %w", p, err)
	}
	if err := s.kernel.Variables[scheduler613VarHeadroom].Set(int32(p.Headroom)); err != nil {
		return fmt.Errorf("set headroom of %d cores: %w", p.Headroom, err)
	}
	s.params = p
	return nil
}

// SetCap limits the CPU time of all BE threads together, in thousandths of a
// CPU, enforced over periods of 100 ms; NoCap: no limit. It stands in for a
// quota of the BE cgroup, which acts only on fair threads.
func (s *Scheduler) SetCap(cap unit.MilliCPU) error {
	s.mu.Lock()
	p := s.params
	s.mu.Unlock()
	p.Cap = cap
	return s.SetParams(p)
}

// Beat is the owner's heartbeat. After Options.Silence without it the scheduler
// ends itself, so that BE does not run on under the orders of a dead agent.
func (s *Scheduler) Beat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("write the heartbeat of the BE scheduler: %w", ErrClosed)
	}
	if err := s.kernel.Variables[scheduler613VarBeatNs].Set(uint64(monotonic())); err != nil {
		return fmt.Errorf("write the heartbeat of the BE scheduler: %w", err)
	}
	s.beat = time.Now()
	return s.lookForRoom(s.beat)
}

// Detach unloads the scheduler as Close does, and stops the hook, but keeps the
// programs and their settings for Attach. Events stays open.
func (s *Scheduler) Detach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("detach the BE scheduler: %w", ErrClosed)
	}
	if err := s.detach(); err != nil {
		return fmt.Errorf("detach the BE scheduler: %w", err)
	}
	if err := s.unhook(); err != nil {
		return fmt.Errorf("detach the BE scheduler: %w", err)
	}
	return nil
}

// Attach attaches the scheduler again after Detach. It returns ErrBusy when
// another one is loaded by now. It fails when CPUs went online or offline since
// Load: then load again.
func (s *Scheduler) Attach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("attach the BE scheduler: %w", ErrClosed)
	case s.ops != nil:
		return errors.New("attach the BE scheduler: it is attached")
	}
	err := s.prepare()
	if err == nil {
		err = s.attach()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("attach the BE scheduler: %w", err), s.detach(), s.unhook())
	}
	return nil
}

// Close unloads the scheduler, which takes at most 0.2 s, and waits until the
// kernel has put all threads back into the fair class. They keep their policy.
// Events is closed too.
func (s *Scheduler) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.detach()
	if s.reader != nil {
		err = errors.Join(err, s.reader.Close())
		<-s.listened
	}
	return errors.Join(err, s.release())
}

// detach unloads the scheduler and waits until the kernel has done it.
func (s *Scheduler) detach() error {
	if s.ops == nil {
		return nil
	}
	s.detaching.Store(true)
	if err := s.ops.Close(); err != nil {
		return fmt.Errorf("detach from sched_ext: %w", err)
	}
	s.ops = nil
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		now, err := readLoaded(sysfs)
		if err != nil {
			return err
		}
		// Another scheduler may have been loaded at once, even one of Tenon.
		if now.state == disabled || now.state == enabled && (!now.ours() || s.number != 0 && now.schedulers != s.number) {
			return nil
		}
		if time.Since(begun) > 10*time.Second {
			return fmt.Errorf("sched_ext is %s with %q, %v after detaching", now.state, now.ops, time.Since(begun))
		}
	}
}

// unhook stops the hook.
func (s *Scheduler) unhook() error {
	if s.hook == nil {
		return nil
	}
	err := s.hook.Close()
	s.hook = nil
	return err
}

// release frees everything, in an order in which no rule outlives the hook.
func (s *Scheduler) release() error {
	err := errors.Join(s.detach(), s.unhook())
	if s.kernel != nil {
		s.kernel.Close()
	}
	return err
}
