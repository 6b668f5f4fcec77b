// Package rqdelay loads the tracing program bpf/delay.bpf.c: how long the
// threads of each LS workload wait for a CPU, which workload ran there
// meanwhile, for which workload each CPU works, and an event at once when waits
// become too long.
//
// Every context switch of the node pays for it. So it is attached only while
// there is an LS workload to watch, it records the waits of LS alone, and its
// memory is fixed: about 0.9 MB, and 70 KB for each CPU.
//
// The program needs BTF and root, or CAP_BPF and CAP_PERFMON. It is tested on
// Linux 6.18 and uses no feature that is newer than 5.15. Building this package
// needs no compiler for BPF: the objects that go generate makes are part of the
// sources.
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
// needs; the error around it says what.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrClosed means that the probe is closed.
var ErrClosed = errors.New("the probe is closed")

// Options says what to watch.
type Options struct {
	// CgroupVersion is the version of the hierarchy that carries the CPU
	// controller, 1 or 2. The ids given to Track are of that hierarchy.
	CgroupVersion int
	// Alarm says when to send an event. The zero Alarm sends no event. Its Wait
	// holds for slots without a Limit of their own.
	Alarm Alarm
}

// An Alarm is a limit on the waits of a slot while BE, or an unknown thread,
// ran. The program sends an event when a slot crosses it.
type Alarm struct {
	Wait   time.Duration // a wait of this length is too long; 0: no wait is
	Waits  int           // so many such waits of one slot (a longer one counts once for each Wait it lasted) …
	Window time.Duration // … within this time make an event
	Gap    time.Duration // at most one event in this time, all slots together
	// Beside is for how long, within a Window, LS may run on one of two
	// siblings while BE runs on the other. More makes an event too, at most one
	// in a Gap. 0: no limit. It holds for the CPUs named to WatchSiblings.
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

// A Slot stands for a workload in the counters: a cgroup and all cgroups below
// it, or several cgroups that are counted together.
type Slot uint8

// The caller gives out the slots from First to Last. Those before First are
// runners that belong to no workload.
const (
	Untracked = Slot(delayTenonSlotTENON_UNTRACKED) // threads in no tracked cgroup
	Kernel    = Slot(delayTenonSlotTENON_KERNEL)    // kernel threads
	Idle      = Slot(delayTenonSlotTENON_IDLE)      // the CPU was idle or waking up
	Elsewhere = Slot(delayTenonSlotTENON_ELSEWHERE) // not known: the thread waited on another CPU, or too long ago
	First     = Slot(delayTenonSlotTENON_FIRST)
	Last      = Slot(delayTenonLimitTENON_SLOTS - 1)

	// Slots is the number of slots, with those before First.
	Slots = int(delayTenonLimitTENON_SLOTS)
)

// String names the slots before First, and numbers the others.
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

// A Class is how the program treats a slot.
type Class uint8

// The classes. The program records only the waits of LS; it sees all classes as
// runners.
const (
	Other  = Class(delayTenonClassTENON_OTHER) // also untracked tasks and kernel threads
	System = Class(delayTenonClassTENON_SYSTEM)
	LS     = Class(delayTenonClassTENON_LS)
	BE     = Class(delayTenonClassTENON_BE)
)

// String is the name of the class as in the rest of Tenon.
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

// A Probe counts in the kernel from Open to Close. It dies with its process:
// nothing is pinned. It is safe for concurrent use.
type Probe struct {
	events   chan Event
	reader   *ringbuf.Reader
	listened chan struct{} // closed when no sender to events is left
	waits    int           // of the alarm; 0: no alarm

	mu         sync.Mutex // guards the fields below
	kernel     delayObjects
	hook       link.Link // nil while no LS group is tracked
	epoch      uint32
	generation uint32
	tracked    tracked
	siblings   map[unit.CPU]unit.CPU  // as set by WatchSiblings
	sensed     [Slots]bool            // slots that were LS at any time
	alarms     [Slots]delayTenonAlarm // as set by Limit
	view       view
	closed     bool
}

// Open loads the program. It is attached, and counts, as soon as an LS group is
// tracked: attaching and detaching make the kernel rewrite its scheduler's code
// and stop every CPU for some microseconds.
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
	types := btf.NewCache() // the kernel's types are large: read once, then dropped
	if err := require(types); err != nil {
		return nil, err
	}
	p := &Probe{
		events: make(chan Event, eventsKept), listened: make(chan struct{}), waits: o.Alarm.Waits,
		// The program's values before the first change.
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

// load fits the program to the machine and the options, and loads it.
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
		// Not 0: the kernel's verifier treats 0 as a constant and then finds
		// too many paths.
		delayVarAlarmWaits:    uint64(max(o.Alarm.Waits, 1)),
		delayVarAlarmWindowNs: uint64(max(o.Alarm.Window, 1)),
		delayVarAlarmGapNs:    uint64(max(o.Alarm.Gap, 1)),
		delayVarBesideLimitNs: besideLimit(o.Alarm.Beside),
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
	// For a thread that was moved, the program cannot tell for which thread it
	// waited: that may have been BE.
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

// blame makes waits for the runner count as too long, or stops that.
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

// Limit sets from which length on a wait of the slot is too long; 0: no wait
// is. The other parts of the alarm are the same for all slots.
func (p *Probe) Limit(slot Slot, wait time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrClosed
	switch {
	case slot < First:
		err = fmt.Errorf("want a slot from %d to %d", uint8(First), uint8(Last))
	case p.waits == 0:
		err = errors.New("the probe was opened without an alarm")
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

// attach starts counting. The epoch tells the values that CPUs kept from an
// earlier attachment from new ones.
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

// Close detaches the program and frees its memory. It closes Events too.
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

// nanoseconds is a counter of the kernel as a duration. Counters of ns last
// for 292 years.
func nanoseconds(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }
