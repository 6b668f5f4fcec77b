// Package rqdelay loads the tracing program bpf/delay.bpf.c, which measures how
// long LS threads wait for a CPU, and on which CPUs each workload runs. For
// each wait, it records which workload had the CPU. When waits become too long,
// the program sends an event at once.
//
// The program costs time at every context switch of the node. Therefore it is
// attached only while an LS workload is tracked, and it records only the waits
// of LS. The size of its memory is fixed: about 0.9 MB, and 70 KB for each CPU.
//
// The program needs BTF and root, or CAP_BPF and CAP_PERFMON. It is tested on
// Linux 6.18 and uses no feature newer than 5.15. The compiled program is part
// of the sources, so a build of this package needs no BPF compiler.
package rqdelay

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"tenon.sh/tenon/internal/model/unit"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target bpfel -tags linux -type tenon_event -type tenon_slot -type tenon_class -type tenon_limit delay ../../../bpf/delay.bpf.c -- -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror

// ErrUnsupported means that this kernel lacks something that the program
// needs. The error that wraps it names the missing part.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrClosed means that the probe is closed.
var ErrClosed = errors.New("the probe is closed")

// Options are the parameters of Open.
type Options struct {
	// CgroupVersion is the version, 1 or 2, of the hierarchy with the cpu
	// controller. The ids that Track takes are those of this hierarchy.
	CgroupVersion int
	// Alarm says when the program sends an event. The zero Alarm sends none.
	// For a slot with a limit of its own, Limit replaces Alarm.Wait.
	Alarm Alarm
}

// An Alarm limits how long the threads of a slot may wait while BE, or an
// unknown thread, runs. If they wait longer, the program sends an event.
type Alarm struct {
	Wait   time.Duration // a wait of at least this length is too long; 0: no wait is
	Waits  int           // number of too long waits of one slot that causes an event; a wait of n times Wait counts as n
	Window time.Duration // the time within which these waits occur
	Gap    time.Duration // the minimum time between two events, over all slots
	// Beside is the time within a Window for which LS may run on a CPU while BE
	// runs on its sibling. After a longer time the program sends an event, at
	// most one per Gap. 0 means no limit. Beside applies to the CPUs that
	// WatchSiblings has set.
	Beside time.Duration
}

func (o Options) check() error {
	if o.CgroupVersion != 1 && o.CgroupVersion != 2 {
		return fmt.Errorf("cgroup version %d: want 1 or 2", o.CgroupVersion)
	}
	a := o.Alarm
	if a.Wait < 0 || a.Beside < 0 || (a != (Alarm{}) && (a.Waits < 1 || a.Window <= 0 || a.Gap <= 0)) {
		return fmt.Errorf("alarm after %d waits of %v in %v, every %v at most: want positive values", a.Waits, a.Wait, a.Window, a.Gap)
	}
	return nil
}

// A Slot is the number of a workload in the counters. A workload consists of
// one or several cgroups, each with all cgroups below it.
type Slot uint8

// The caller assigns the slots from First to Last to workloads. The slots
// before First stand for other runners.
const (
	Untracked = Slot(delayTenonSlotTENON_UNTRACKED) // threads in no tracked cgroup
	Kernel    = Slot(delayTenonSlotTENON_KERNEL)    // kernel threads
	Idle      = Slot(delayTenonSlotTENON_IDLE)      // the CPU was idle or waking up
	Elsewhere = Slot(delayTenonSlotTENON_ELSEWHERE) // not known: the thread waited on another CPU, or the wait began too long ago
	First     = Slot(delayTenonSlotTENON_FIRST)
	Last      = Slot(delayTenonLimitTENON_SLOTS - 1)

	// Slots is the number of slots, including those before First.
	Slots = int(delayTenonLimitTENON_SLOTS)
)

// String returns the name of a slot before First. For other slots it returns
// the number.
func (s Slot) String() string {
	switch s {
	case Untracked:
		return "untracked"
	case Kernel:
		return "kernel"
	case Idle:
		return "idle"
	case Elsewhere:
		return "elsewhere"
	}
	return fmt.Sprintf("slot %d", uint8(s))
}

// A Class is the QoS class of a slot.
type Class uint8

// The classes. The program records only the waits of LS. A runner, which has
// the CPU for which LS waits, may be of any class.
const (
	Other  = Class(delayTenonClassTENON_OTHER) // also the class of untracked tasks and kernel threads
	System = Class(delayTenonClassTENON_SYSTEM)
	LS     = Class(delayTenonClassTENON_LS)
	BE     = Class(delayTenonClassTENON_BE)
)

// String returns the name that the class has everywhere in Tenon.
func (c Class) String() string {
	switch c {
	case Other:
		return "OTHER"
	case System:
		return "SYSTEM"
	case LS:
		return "LS"
	case BE:
		return "BE"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// A Probe counts from Open to Close. It pins nothing in the kernel, which
// therefore removes it when its process ends. It is safe for concurrent use.
type Probe struct {
	events   chan Event
	reader   *ringbuf.Reader
	listened chan struct{} // closed when no goroutine sends to events any more
	waits    int           // Alarm.Waits; 0: no alarm

	mu         sync.Mutex // guards the fields below
	kernel     delayObjects
	hook       link.Link // nil while no LS group is tracked
	epoch      uint32
	generation uint32
	tracked    tracked
	siblings   map[unit.CPU]unit.CPU  // the argument of the last WatchSiblings
	sensed     [Slots]bool            // slots that are or were LS
	alarms     [Slots]delayTenonAlarm // the alarm of each slot, set by Limit
	view       view
	closed     bool
}

// Open loads the program. It is attached only while an LS group is tracked. To
// attach or detach it, the kernel must patch its own code and stop every CPU
// for some microseconds.
func Open(o Options) (*Probe, error) {
	p, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open the run-queue delay probe: %w", err)
	}
	return p, nil
}

func open(o Options) (*Probe, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	types := btf.NewCache() // the kernel's types are large, so the cache is dropped after Open
	if err := checkFields(types); err != nil {
		return nil, err
	}
	p := &Probe{
		events: make(chan Event, eventsKept), listened: make(chan struct{}), waits: o.Alarm.Waits,
		// These are the initial values in the program.
		epoch: 1, generation: 1, tracked: newTracked(),
	}
	if err := p.load(o, types); err != nil {
		return nil, err
	}
	reader, err := ringbuf.NewReader(p.kernel.Events)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the event ring: %w", err), p.kernel.Close())
	}
	p.reader = reader
	go p.listen()
	return p, nil
}

// load adapts the program to the machine and the options, and loads it.
func (p *Probe) load(o Options, types *btf.Cache) error {
	spec, err := loadDelay()
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count possible CPUs: %w", err)
	}
	spec.Maps[delayMapCpus].MaxEntries = uint32(cpus)
	spec.Maps[delayMapDelays].MaxEntries = uint32(cpus * Slots)
	spec.Maps[delayMapEvents].MaxEntries = uint32(max(os.Getpagesize(), int(spec.Maps[delayMapEvents].MaxEntries)))
	for name, value := range map[string]any{
		delayVarCgroupVersion: uint32(o.CgroupVersion),
		// The values must not be 0. The kernel's verifier would treat 0 as a
		// constant, and then it would explore too many paths.
		delayVarAlarmWaits:    uint64(max(o.Alarm.Waits, 1)),
		delayVarAlarmWindowNs: uint64(max(o.Alarm.Window, 1)),
		delayVarAlarmGapNs:    uint64(max(o.Alarm.Gap, 1)),
		delayVarBesideLimitNs: siblingLimit(o.Alarm.Beside),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s to %v: %w", name, value, err)
		}
	}
	if err := spec.LoadAndAssign(&p.kernel, &ebpf.CollectionOptions{Cache: types}); err != nil {
		return fmt.Errorf("load the program of sched_switch: %w", err)
	}
	if p.view, err = newView(p.kernel.delayMaps, cpus); err != nil {
		return errors.Join(err, p.kernel.Close())
	}
	// If a waiting thread was moved to another CPU, the program does not know which
	// thread ran there before. It may have been BE, so the wait counts for the alarm.
	if err := p.blame(Elsewhere, true); err != nil {
		return errors.Join(err, p.kernel.Close())
	}
	if o.Alarm.Wait == 0 {
		return nil
	}
	for slot := First; ; slot++ {
		if err := p.limit(slot, o.Alarm.Wait); err != nil {
			return errors.Join(err, p.kernel.Close())
		}
		if slot == Last {
			return nil
		}
	}
}

// blame sets whether the Alarm counts waits for a CPU on which the runner ran.
// It counts them if the runner is BE or not known.
func (p *Probe) blame(runner Slot, is bool) error {
	var mask uint64
	if is {
		mask = math.MaxUint64
	}
	if p.alarms[runner].Blamed == mask {
		return nil
	}
	p.alarms[runner].Blamed = mask
	return p.kernel.Alarms.Put(uint32(runner), p.alarms[runner])
}

// Limit sets how long a thread of the slot may wait. 0 means that no wait is
// too long. The other fields of the Alarm apply to all slots.
func (p *Probe) Limit(slot Slot, wait time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrClosed
	switch {
	case slot < First:
		err = fmt.Errorf("want a slot from %d to %d", uint8(First), uint8(Last))
	case p.waits == 0:
		err = errors.New("the probe has no alarm")
	case !p.closed:
		err = p.limit(slot, wait)
	}
	if err != nil {
		return fmt.Errorf("alarm of %v at %v: %w", slot, wait, err)
	}
	return nil
}

func (p *Probe) limit(slot Slot, wait time.Duration) error {
	p.alarms[slot].WaitNs = uint64(max(wait, 0))
	return p.kernel.Alarms.Put(uint32(slot), p.alarms[slot])
}

// attach starts to count in a new epoch, so that values of earlier epochs,
// which CPUs may still hold, are not valid any more.
func (p *Probe) attach() error {
	p.epoch++
	if err := p.kernel.Epoch.Set(p.epoch); err != nil {
		return fmt.Errorf("begin epoch %d: %w", p.epoch, err)
	}
	hook, err := link.AttachTracing(link.TracingOptions{Program: p.kernel.TenonSwitch, AttachType: ebpf.AttachTraceRawTp})
	if err != nil {
		return fmt.Errorf("attach to sched_switch: %w", err)
	}
	p.hook = hook
	return nil
}

func (p *Probe) detach() error {
	hook := p.hook
	p.hook = nil
	if hook == nil {
		return nil
	}
	if err := hook.Close(); err != nil {
		return fmt.Errorf("detach from sched_switch: %w", err)
	}
	return nil
}

// Close detaches the program, frees its memory and closes Events.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := errors.Join(p.detach(), p.reader.Close())
	<-p.listened
	return errors.Join(err, p.kernel.Close())
}

// nanoseconds converts a counter of the kernel. It returns the largest Duration
// for counters that would overflow it (292 years).
func nanoseconds(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }
