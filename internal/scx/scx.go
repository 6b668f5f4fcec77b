// Package scx loads Tenon's sched_ext scheduler, bpf/scheduler.bpf.c: BE threads
// (policy SCHED_EXT) run only where no fair thread wants the CPU and, when
// asked, never beside a running LS thread on the other thread of a core.
//
// The scheduler is partial: LS threads stay with the kernel's own scheduler,
// whose class is above that of sched_ext. All it does to them is one tracing
// program at each context switch. Nothing is pinned: when the process that
// loaded it dies, the kernel takes it down and BE threads go on under the
// fair class, where their cgroup should have cpu.idle set.
//
// CPU quotas and weights of cgroups do not act on SCHED_EXT threads; SetPods
// and SetCap take their place.
//
// It needs Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT and BTF, and root.
// There is an object for each form of the kernel's interface (Variant), chosen
// by what the kernel's BTF declares.
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

	"tenon.sh/tenon/internal/unit"
)

// ErrUnsupported means that this kernel cannot carry the scheduler; the error
// around it says what is missing.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrBusy means that another sched_ext scheduler is loaded. Tenon does not
// fight for the place.
var ErrBusy = errors.New("another sched_ext scheduler is loaded")

// ErrClosed means that the scheduler was closed before.
var ErrClosed = errors.New("the scheduler is closed")

// NoCap is the cap of BE that caps nothing.
const NoCap unit.MilliCPU = -1

// DefaultHeadroom lets the scheduler choose how many idle cores it leaves to
// LS: one of twenty in each LLC, at least one where there are more than two.
const DefaultHeadroom = -1

// Options says how to schedule. Of the zero value only Topology and
// CgroupVersion have to be filled in.
type Options struct {
	// CgroupVersion is the version of the hierarchy that carries the CPU
	// controller, 1 or 2. The ids given to Classify are of that hierarchy.
	CgroupVersion int
	// Topology has every online CPU. A machine whose CPUs go online or offline
	// ends the scheduler (Exit.Restart): load anew with the new topology.
	Topology []CPU
	Params
	// Timeout is how long a BE thread may wait before the kernel's watchdog
	// throws the scheduler out; 0: 30 s, which is also the most that kernels take.
	Timeout time.Duration
	// Silence is how long the scheduler goes on without Beat before it ends
	// itself; 0: 60 s.
	Silence time.Duration
}

// Params can be changed while the scheduler runs.
type Params struct {
	// SMTRule keeps BE off the siblings of CPUs that run LSX.
	SMTRule bool
	// Hold is how long a sibling stays closed to BE after LSX has left; 0:
	// 200 µs; negative: no time.
	Hold time.Duration
	// Headroom is how many whole idle cores of each LLC are left to LS when BE
	// is placed; DefaultHeadroom: see there; 0: none.
	Headroom int
	// Slice is how long a BE thread runs before another may; 0: 4 ms.
	Slice time.Duration
	// Cap is how much CPU time all BE threads together may have; NoCap or 0: no
	// limit. See SetCap.
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

// A Scheduler is loaded from Load to Close, or until the kernel throws it out:
// Status and Events tell. It is safe for concurrent use.
type Scheduler struct {
	variant  Variant
	layout   *layout
	topology []CPU
	since    time.Time
	events   chan Event
	listened chan struct{} // closed when nobody sends to events any more
	reader   *ringbuf.Reader

	detaching atomic.Bool // we end it ourselves

	mu         sync.Mutex // guards the rest
	kernel     *ebpf.Collection
	view       view
	hook, ops  link.Link
	number     uint64 // of all schedulers since boot; 0: not known
	params     Params
	known      map[uint64]scheduler613ScxGroup // what the table of groups holds
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
// CPU's time, enforced over periods of 100 ms; NoCap: no limit. It is what a
// quota on the BE cgroup is for fair threads.
func (s *Scheduler) SetCap(cap unit.MilliCPU) error {
	s.mu.Lock()
	p := s.params
	s.mu.Unlock()
	p.Cap = cap
	return s.SetParams(p)
}

// Beat says that the owner is alive. Without it for Options.Silence the
// scheduler ends itself: BE must not run on by the orders of the dead.
func (s *Scheduler) Beat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("tell the BE scheduler of our life: %w", ErrClosed)
	}
	if err := s.kernel.Variables[scheduler613VarBeatNs].Set(uint64(monotonic())); err != nil {
		return fmt.Errorf("tell the BE scheduler of our life: %w", err)
	}
	s.beat = time.Now()
	return s.lookForRoom(s.beat)
}

// Detach unloads the scheduler as Close does, and stops the hook, but keeps the
// programs and all that was set for Attach. Events stays open.
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

// Attach brings a scheduler back after Detach. It gives ErrBusy when another one
// is loaded by now. When CPUs have come or gone since Load, it fails: load anew.
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

// detach takes the scheduler down and waits until the kernel has done it.
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
		// Another one may have been loaded at once, even one of ours.
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

// release gives all back, in the order that leaves no rule without the hook.
func (s *Scheduler) release() error {
	err := errors.Join(s.detach(), s.unhook())
	if s.kernel != nil {
		s.kernel.Close()
	}
	return err
}
