package rqdelay

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
)

// A Reading holds the counters since Open. Values never decrease.
// Reading.Since returns what was counted between two readings.
type Reading struct {
	// Switches is the number of context switches.
	Switches uint64
	// Delays holds the waits of each slot that is or was LS, over all CPUs.
	Delays map[Slot]Histogram
	// Waits holds, for each Pair of a waiter and a runner, how long the waiter
	// waited for a CPU on which the runner ran. If two threads of the waiter
	// wait at the same time, both count. The sum over all runners equals the
	// sum of the waiter's histogram. Pairs without a wait are left out.
	Waits map[Pair]time.Duration
	// Run is the run time of each slot, by CPU number. For the slot Idle it is
	// the idle time of the CPU. Slots that never ran are left out.
	Run map[Slot][]time.Duration
	// RunByClass is the run time by class, without idle time. If a slot changes
	// its class, its earlier run time stays in the old class.
	RunByClass map[Class][]time.Duration
}

// A Pair is a slot that waited, and a slot that ran meanwhile.
type Pair struct{ Waiter, Runner Slot }

// Read reads all counters. It copies mapped memory, without a system call.
//
// A thread that still runs is counted up to the last context switch on any CPU.
// A wait is counted when it ends. Read copies the values one by one while the
// kernel changes them. So the sum of several counters may differ a little from
// another counter that should equal it.
func (p *Probe) Read() (Reading, error) {
	var r Reading
	err := p.ReadInto(&r)
	return r, err
}

// ReadInto does the same as Read, but reuses the maps of r, which is an
// earlier Reading of the same program. After an error r must not be used.
func (p *Probe) ReadInto(r *Reading) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("read the run-queue delays: %w", ErrClosed)
	}
	if r.Delays == nil {
		r.Delays, r.Waits = map[Slot]Histogram{}, map[Pair]time.Duration{}
		r.Run, r.RunByClass = map[Slot][]time.Duration{}, map[Class][]time.Duration{}
	}
	r.Switches = 0
	if err := p.view.readCPUs(r, p.epoch, p.hook != nil); err != nil {
		return fmt.Errorf("read the run times: %w", err)
	}
	for slot, sensed := range p.sensed {
		if !sensed {
			continue
		}
		if err := p.view.readWaits(r, Slot(slot)); err != nil {
			return fmt.Errorf("read the waits of %v: %w", Slot(slot), err)
		}
	}
	return nil
}

// A view holds the kernel's counters in mapped memory, and buffers for copies of them.
type view struct {
	cpus, delays, matrix *ebpf.Memory

	cpu []delayTenonCpu
	row [Slots]uint64
}

func newView(m delayMaps, cpus int) (view, error) {
	v := view{cpu: make([]delayTenonCpu, cpus)}
	for _, part := range []struct {
		of   *ebpf.Map
		into **ebpf.Memory
	}{{m.Cpus, &v.cpus}, {m.Delays, &v.delays}, {m.Matrix, &v.matrix}} {
		memory, err := part.of.Memory()
		if err != nil {
			return view{}, fmt.Errorf("map the counters %v: %w", part.of, err)
		}
		*part.into = memory
	}
	return v, nil
}

// load copies one element of an array.
func load[T any](from *ebpf.Memory, index int, into *T) error {
	size := unsafe.Sizeof(*into)
	_, err := from.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(into)), size), int64(index)*int64(size))
	return err
}

func (v *view) readCPUs(r *Reading, epoch uint32, attached bool) error {
	// The best estimate of the present time, on the clock of the run queues, is
	// the time of the latest switch on any CPU.
	var now uint64
	for i := range v.cpu {
		if err := load(v.cpus, i, &v.cpu[i]); err != nil {
			return err
		}
		if v.cpu[i].Epoch == epoch {
			now = max(now, v.cpu[i].Since)
		}
	}
	for i := range v.cpu {
		c := &v.cpu[i]
		if attached && c.Epoch == epoch { // the present thread has run since then
			c.SlotNs[c.Running.Slot] += now - c.Since
			c.ClassNs[c.Running.Class] += now - c.Since
		}
		r.Switches += c.Switches
		for slot, ns := range c.SlotNs {
			put(r.Run, Slot(slot), i, len(v.cpu), ns)
		}
		for class := Other; class <= BE; class++ {
			put(r.RunByClass, class, i, len(v.cpu), c.ClassNs[class])
		}
	}
	return nil
}

// put sets the value of one CPU for a key.
func put[K comparable](m map[K][]time.Duration, key K, cpu, cpus int, ns uint64) {
	if ns == 0 {
		return
	}
	if m[key] == nil {
		m[key] = make([]time.Duration, cpus)
	}
	m[key][cpu] = nanoseconds(ns)
}

func (v *view) readWaits(r *Reading, waiter Slot) error {
	var sum delayTenonDelay
	for i := range v.cpu {
		var d delayTenonDelay
		if err := load(v.delays, i*Slots+int(waiter), &d); err != nil {
			return err
		}
		for n, c := range d.Count {
			sum.Count[n] += c
		}
		sum.SumNs += d.SumNs
		sum.IdleNs += d.IdleNs
		sum.ElsewhereNs += d.ElsewhereNs
	}
	r.Delays[waiter] = Histogram{Counts: sum.Count, Sum: nanoseconds(sum.SumNs)}

	if err := load(v.matrix, int(waiter), &v.row); err != nil {
		return err
	}
	// These two runners are frequent, so each CPU counts them by itself.
	v.row[Idle], v.row[Elsewhere] = sum.IdleNs, sum.ElsewhereNs
	for runner, ns := range v.row {
		if ns > 0 {
			r.Waits[Pair{waiter, Slot(runner)}] = nanoseconds(ns)
		}
	}
	return nil
}

// Since returns the growth from an earlier reading, before, to r. The maps of
// the result leave out values that did not grow, except for histograms.
func (r Reading) Since(before Reading) Reading {
	d := Reading{
		Switches: growth(r.Switches, before.Switches), Delays: make(map[Slot]Histogram, len(r.Delays)), Waits: map[Pair]time.Duration{},
		Run: grownByCPU(r.Run, before.Run), RunByClass: grownByCPU(r.RunByClass, before.RunByClass),
	}
	for slot, h := range r.Delays {
		d.Delays[slot] = h.Since(before.Delays[slot])
	}
	for pair, t := range r.Waits {
		if g := growth(t, before.Waits[pair]); g > 0 {
			d.Waits[pair] = g
		}
	}
	return d
}

func grownByCPU[K comparable](now, before map[K][]time.Duration) map[K][]time.Duration {
	d := make(map[K][]time.Duration, len(now))
	for key, times := range now {
		was := before[key]
		var diff []time.Duration
		for cpu, t := range times {
			if cpu < len(was) {
				t = growth(t, was[cpu])
			}
			if t > 0 && diff == nil {
				diff = make([]time.Duration, len(times))
			}
			if t > 0 {
				diff[cpu] = t
			}
		}
		if diff != nil {
			d[key] = diff
		}
	}
	return d
}
