package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// namedRunners is how many workloads are named of those for which one waited,
// the longest waits first. A matrix of all with all would be most of a
// snapshot, and of its record.
const namedRunners = 8

// A delayCounter counts run-queue delays: package probe.
type delayCounter interface {
	Track(slot rqdelay.Slot, cgroupID uint64, class rqdelay.Class) error
	Forget(cgroupID uint64) error
	Limit(slot rqdelay.Slot, wait time.Duration) error
	ReadInto(r *rqdelay.Reading) error
	WatchSiblings(of map[unit.CPU]unit.CPU) error
	Events() <-chan rqdelay.Event
	Close() error
}

// delays gives the workloads to a delayCounter and what it counts to the
// snapshots. The zero delays counts nothing.
type delays struct {
	mu      sync.Mutex
	counter delayCounter // nil: nothing is counted
	why     error        // counting was ended by this
	stale   bool         // the workloads may be others
	beside  bool         // siblings are watched, as long as something counts
	seating
	now   rqdelay.Reading
	parts [rqdelay.Slots][]part // by waiter; for the next list of waits
}

// A part is what one runner has of the waits of another.
type part struct {
	runner rqdelay.Slot
	time   time.Duration
}

// CountDelays begins to count by BPF how long the threads of latency-sensitive
// workloads wait for a CPU and who runs there meanwhile, and says at once when
// their waits become too long. From then on the snapshots of a resident host
// hold it. It costs every context switch of the node some 50 ns
// (docs/experiments/2026-11-22-bpf-hook-cost). The channel is closed when it
// ends. The error is probe.ErrUnsupported if the kernel cannot.
func (h *Host) CountDelays() (<-chan Delayed, error) {
	if err := h.needTree(); err != nil {
		return nil, fmt.Errorf("count run-queue delays: %w", err)
	}
	p, err := rqdelay.Open(rqdelay.Options{CgroupVersion: h.tree.Version(), Alarm: alarm})
	if err != nil {
		return nil, err
	}
	return h.delays.start(p)
}

// StopDelays ends what CountDelays began, if it did.
func (h *Host) StopDelays() error { return h.delays.stop() }

// CountsDelays reports whether they are counted.
func (h *Host) CountsDelays() bool {
	h.delays.mu.Lock()
	defer h.delays.mu.Unlock()
	return h.delays.counter != nil
}

// DelayTrouble says what keeps delays from being counted in full, in a form
// that stays the same as long as that does; empty: nothing.
func (h *Host) DelayTrouble() string { return h.delays.trouble() }

func (d *delays) start(c delayCounter) (<-chan Delayed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counter != nil {
		return nil, errors.Join(errors.New("run-queue delays are counted already"), c.Close())
	}
	d.counter, d.why, d.stale, d.seating, d.now = c, nil, true, newSeating(), rqdelay.Reading{}
	alarms := make(chan Delayed, alarmsKept)
	go d.tell(c.Events(), alarms)
	return alarms, nil
}

func (d *delays) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.why = nil
	return d.end()
}

// end ends counting; d.mu is held.
func (d *delays) end() error {
	c := d.counter
	if d.counter = nil; c == nil {
		return nil
	}
	d.seating = seating{}
	return c.Close()
}

func (d *delays) trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.why != nil:
		return fmt.Sprintf("run-queue delays are no longer counted by BPF: %v", d.why)
	case d.counter == nil:
		return ""
	}
	return d.seating.trouble()
}

// expire makes the next snapshot look whether the workloads are still those
// that are counted.
func (d *delays) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale = true
}

// fill adds to a snapshot what was counted. Whatever fails is for trouble to
// tell: the snapshot then holds less.
func (d *delays) fill(s *node.Snapshot, inode func(node.CgroupPath) (uint64, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counter == nil {
		return
	}
	err := d.counter.ReadInto(&d.now)
	if err == nil && d.stale {
		d.stale = false
		err = d.follow(d.counter, &d.now, s.Workloads, inode)
	}
	if err == nil {
		err = d.watchSiblings(s.Topology)
	}
	if err != nil {
		d.why = errors.Join(err, d.end())
		return
	}
	s.Isolation.LSOn = d.ranLS(s.Topology)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		at := d.seats[w.ID]
		if at == nil || at.shared || at.class != rqdelay.LS {
			continue
		}
		waited := d.now.Delays[at.slot].Since(d.base.Delays[at.slot])
		w.Usage.Delay = node.RunQueueDelay{Sum: node.Some(waited.Sum), Counts: slices.Clone(waited.Counts[:])}
		if w.Usage.PerCPU == nil {
			w.Usage.PerCPU = d.ranOn(at.slot, s.Topology)
		}
	}
	s.Waits = d.waits()
}

// ranOn is how long a slot ran on each CPU of the node.
func (d *delays) ranOn(slot rqdelay.Slot, t node.Topology) map[unit.CPU]time.Duration {
	now, base := d.now.Run[slot], d.base.Run[slot]
	all := make(map[unit.CPU]time.Duration, len(t.CPUs))
	for _, c := range t.CPUs {
		var ran time.Duration
		if int(c.ID) < len(now) {
			ran = now[c.ID]
		}
		if int(c.ID) < len(base) {
			ran = max(ran-base[c.ID], 0)
		}
		all[c.ID] = ran
	}
	return all
}

// waits lists who waited for whom, by name.
func (d *delays) waits() []node.Wait {
	for pair, t := range d.now.Waits {
		if t -= d.base.Waits[pair]; t > 0 && d.names[pair.Waiter] != "" && d.names[pair.Runner] != "" {
			d.parts[pair.Waiter] = append(d.parts[pair.Waiter], part{pair.Runner, t})
		}
	}
	var all []node.Wait
	for slot := range d.parts {
		waiter := rqdelay.Slot(slot)
		parts := d.parts[slot]
		d.parts[slot] = parts[:0]
		slices.SortFunc(parts, func(a, b part) int {
			return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.runner, b.runner))
		})
		named := 0
		rest := d.left[waiter]
		for _, p := range parts {
			class := d.classes[p.runner]
			if class != "" && named == namedRunners {
				rest.add(class, p.time)
				continue
			}
			if class != "" {
				named++
			}
			if name := d.names[p.runner]; class != "" && name == node.RestOf(class) {
				rest.add(class, p.time)
			} else {
				all = append(all, node.Wait{Waiter: d.names[waiter], Runner: name, Time: p.time})
			}
		}
		for i, t := range rest {
			if t > 0 {
				all = append(all, node.Wait{Waiter: d.names[waiter], Runner: node.RestOf(node.Classes[i]), Time: t})
			}
		}
	}
	slices.SortFunc(all, func(a, b node.Wait) int {
		return cmp.Or(strings.Compare(string(a.Waiter), string(b.Waiter)), strings.Compare(string(a.Runner), string(b.Runner)))
	})
	return all
}
