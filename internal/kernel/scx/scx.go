// Package scx loads Tenon's sched_ext scheduler (bpf/scheduler.bpf.c), which
// runs BE threads only on CPUs that no fair thread needs. BE threads have the
// policy SCHED_EXT. If Params.SMTRule is set, the scheduler also keeps them off
// the sibling of a CPU that runs LS.
//
// The scheduler is partial: LS threads stay in the kernel's fair class, which
// precedes sched_ext. Their only additional cost is one tracing program at each
// context switch. Nothing is pinned. When the process that loaded the scheduler
// dies, the kernel unloads the scheduler, and BE threads continue in the fair
// class. Their cgroup should have cpu.idle set for this case.
//
// CPU quotas and weights of cgroups have no effect on SCHED_EXT threads.
// SetPods and SetCap replace them.
//
// The package needs root and Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT
// and BTF. There is one compiled BPF program for each form of the kernel's
// interface (Variant). Load selects it by the functions that the kernel's BTF
// declares.
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

// ErrUnsupported means that this kernel cannot run the scheduler. The error
// that wraps it names the missing feature.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrBusy means that another sched_ext scheduler is loaded. Tenon does not
// replace it.
var ErrBusy = errors.New("another sched_ext scheduler is loaded")

// ErrClosed means that the scheduler is closed.
var ErrClosed = errors.New("the scheduler is closed")

// NoCap means that the CPU time of BE has no cap.
const NoCap unit.MilliCPU = -1

// DefaultHeadroom lets the scheduler choose how many idle cores it leaves to
// LS: 5 % of the cores of each last-level cache (LLC), but at least one if the
// LLC has more than two cores.
const DefaultHeadroom = -1

// Options are the parameters of Load. All fields except Topology and
// CgroupVersion may be zero.
type Options struct {
	// CgroupVersion is the version, 1 or 2, of the hierarchy with the cpu
	// controller. The ids that Classify takes are those of this hierarchy.
	CgroupVersion int
	// Topology lists every online CPU. When a CPU goes online or offline, the
	// scheduler ends (Exit.Restart). The caller must then load it again with
	// the new topology.
	Topology []CPU
	Params
	// Timeout is the longest wait of a BE thread. After it, the kernel's
	// watchdog ends the scheduler. 0 means 30 s, the kernel's maximum.
	Timeout time.Duration
	// Silence is the longest time without a Beat. After it, the scheduler ends
	// itself. 0 means 60 s.
	Silence time.Duration
}

// Params are the parameters that can change while the scheduler runs.
type Params struct {
	// SMTRule keeps BE off the siblings of CPUs that run LSX.
	SMTRule bool
	// Hold is the time for which BE stays off a CPU after a thread of class LSX
	// has left the sibling. 0 means 200 µs, and a negative value means no time.
	Hold time.Duration
	// Headroom is the number of cores of each LLC that BE leaves completely idle for
	// LS. 0 means none. If it is DefaultHeadroom, the scheduler chooses the number.
	Headroom int
	// Slice is the time for which a BE thread may run while others wait. 0
	// means 4 ms.
	Slice time.Duration
	// Cap limits the total CPU time of all BE threads. NoCap and 0 mean no
	// limit. See SetCap.
	Cap unit.MilliCPU
}

// A CPU is a logical CPU with its place in the machine. Core, LLC and Node are
// numbers from 0 upwards that the caller chooses, each unique on the machine.
// Thread is the number of the CPU in its core, from 0 upwards.
type CPU struct {
	ID     unit.CPU
	Core   int
	Thread int
	LLC    int
	Node   int
}

// maxTimeout is the longest watchdog timeout that kernels accept.
const maxTimeout = 30 * time.Second

func (o Options) check() error {
	switch {
	case o.CgroupVersion != 1 && o.CgroupVersion != 2:
		return fmt.Errorf("cgroup version %d: want 1 or 2", o.CgroupVersion)
	case o.Timeout < 0 || o.Timeout > maxTimeout || o.Timeout > 0 && o.Timeout < time.Second:
		return fmt.Errorf("watchdog of %v: want 1 s to %v, or 0 for the maximum", o.Timeout, maxTimeout)
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
		return fmt.Errorf("hold of %v: want up to 1 s, 0 for the default, or a negative time for none", p.Hold)
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

// A Scheduler runs from Load to Close, or until the kernel ends it. In the
// second case, Status and Events report the end. A Scheduler is safe for
// concurrent use.
type Scheduler struct {
	variant  Variant
	layout   *layout
	topology []CPU
	since    time.Time
	events   chan Event
	listened chan struct{} // closed when no goroutine sends to events any more
	reader   *ringbuf.Reader

	detaching atomic.Bool // this process is unloading the scheduler

	mu         sync.Mutex // guards the fields below
	kernel     *ebpf.Collection
	view       view
	hook, ops  link.Link
	number     uint64 // schedulers loaded since boot, including this one; 0: not known
	params     Params
	known      map[uint64]scheduler613ScxGroup // the contents of the table of groups
	generation uint32                          // version of the table of groups
	quotaSlots uint32                          // only slots below this number may have threads that wait for quota
	beat       time.Time
	room       room
	closed     bool
}

// SetParams changes the parameters of the running scheduler.
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

// SetCap limits the total CPU time of all BE threads, in thousandths of a CPU,
// over periods of 100 ms. NoCap means no limit. The cap is needed because the
// quota of the BE cgroup limits only fair threads.
func (s *Scheduler) SetCap(cap unit.MilliCPU) error {
	s.mu.Lock()
	p := s.params
	s.mu.Unlock()
	p.Cap = cap
	return s.SetParams(p)
}

// Beat is the heartbeat of the process that loaded the scheduler. If Beat is not called for
// Options.Silence, the scheduler ends itself, so that it does not outlive a stuck agent.
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

// Detach unloads the scheduler as Close does, and stops the hook. The programs
// and their settings stay in the kernel, so that Attach can attach them again.
// Events stays open.
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

// Attach attaches the scheduler again after Detach. It returns ErrBusy if
// another scheduler was loaded meanwhile. It fails if a CPU went online or
// offline since Load. The caller must then call Load again.
func (s *Scheduler) Attach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("attach the BE scheduler: %w", ErrClosed)
	case s.ops != nil:
		return errors.New("attach the BE scheduler: it is already attached")
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

// Close unloads the scheduler and waits until the kernel has moved all threads
// into the fair class, which takes at most 0.2 s. The threads keep their
// policy. Close also closes the channel Events.
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

// detach unloads the scheduler and waits until the kernel has finished.
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
		// Another scheduler may have been loaded meanwhile, even a second one of
		// Tenon by another process.
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

// release frees everything. It ends the scheduler before the hook, because the
// scheduler's rules need the hook.
func (s *Scheduler) release() error {
	err := errors.Join(s.detach(), s.unhook())
	if s.kernel != nil {
		s.kernel.Close()
	}
	return err
}
