package usage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// namedRunners is the number of runners that a snapshot names for each waiter:
// those for which it waited longest. The names of all pairs would be most of a
// snapshot and of its record. For a waiter with an objective, the one that makes it
// wait now may be none of those for which it waited longest until now: such a waiter
// has namedForObjective. If there are still more, these are the runners for which it
// waited longest lately. The others count together, as the rest of their class.
const namedRunners, namedForObjective = 8, 64

// A counter measures run-queue delays by slots. Package rqdelay implements it.
type counter interface {
	Track(slot rqdelay.Slot, cgroupID uint64, class rqdelay.Class) error
	Forget(cgroupID uint64) error
	Limit(slot rqdelay.Slot, wait time.Duration) error
	ReadInto(r *rqdelay.Reading) error
	WatchSiblings(of map[unit.CPU]unit.CPU) error
	Events() <-chan rqdelay.Event
	Close() error
}

// Delays gives the workloads to a counter of run-queue delays, and adds its
// results to snapshots. Before the call of Count it does nothing. It is safe
// for concurrent use.
type Delays struct {
	tree   *cgroup.Tree
	noTree error

	mu      sync.Mutex
	counter counter // nil: counting is off
	why     error   // the error that ended counting
	stale   bool    // the workloads may have changed
	beside  bool    // WatchSiblings is on
	slotTable
	now        rqdelay.Reading
	containers [rqdelay.Slots][]container // by the slot of the waiter; listWaits reuses this memory
	here       [rqdelay.Slots]bool        // the slots of the workloads in the snapshot
	// recent holds the last waits of each waiter that has more runners than names, by the
	// slot of the runner.
	recent map[rqdelay.Slot]map[rqdelay.Slot]recentWaits
}

// A container is a part of one waiter's waits: those that one runner caused.
type container struct {
	runner rqdelay.Slot
	time   time.Duration
	lately time.Duration // see recentWaits; 0 unless the runners are ranked by it
}

// recentWaits are the waits for one runner: total at the last reading, and their growth in
// the last readings, of which an older one counts for less.
type recentWaits struct{ total, lately time.Duration }

// NewDelays returns the delays of a node. tree holds the node's cgroups. If
// there are no usable ones, tree is nil and noTree is the reason.
func NewDelays(tree *cgroup.Tree, noTree error) *Delays { return &Delays{tree: tree, noTree: noTree} }

// Count starts BPF programs that measure how long the threads of
// latency-sensitive workloads wait for a CPU, and which workload has that CPU
// meanwhile. The snapshots of a resident host then contain these waits. The
// channel gets an alarm when waits become too long, and is closed when counting
// ends. Each context switch of the node costs about 50 ns more
// (docs/experiments/2026-11-22-bpf-hook-cost). If the kernel cannot count, the
// error is rqdelay.ErrUnsupported.
func (d *Delays) Count() (<-chan Delayed, error) {
	if d.tree == nil {
		return nil, fmt.Errorf("count run-queue delays: this machine has no usable cgroups: %w", d.noTree)
	}
	p, err := rqdelay.Open(rqdelay.Options{CgroupVersion: d.tree.Version(), Alarm: alarm})
	if err != nil {
		return nil, err
	}
	return d.start(p)
}

// Counts reports whether counting is on.
func (d *Delays) Counts() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counter != nil
}

func (d *Delays) start(c counter) (<-chan Delayed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counter != nil {
		return nil, errors.Join(errors.New("run-queue delays are counted already"), c.Close())
	}
	d.counter, d.why, d.stale, d.slotTable, d.now, d.recent = c, nil, true, newSlotTable(), rqdelay.Reading{}, nil
	alarms := make(chan Delayed, alarmsKept)
	go d.forward(c.Events(), alarms)
	return alarms, nil
}

// Stop turns counting off.
func (d *Delays) Stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.why = nil
	return d.end()
}

// end turns counting off. The caller holds d.mu.
func (d *Delays) end() error {
	c := d.counter
	if d.counter = nil; c == nil {
		return nil
	}
	d.slotTable = slotTable{}
	return c.Close()
}

// Trouble returns the reason why the delays of some workloads are not counted,
// or not separately, or "". The text changes only if the reason changes.
func (d *Delays) Trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.why != nil:
		return fmt.Sprintf("run-queue delays are no longer counted by BPF: %v", d.why)
	case d.counter == nil:
		return ""
	}
	return d.slotTable.trouble()
}

// Expire makes the next snapshot assign slots again, because workloads came or
// went.
func (d *Delays) Expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale = true
}

// Fill adds the counted delays to a snapshot. After an error it counts no more,
// and Trouble returns the error.
func (d *Delays) Fill(s *node.Snapshot, inode func(node.CgroupPath) (uint64, error)) {
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
	clear(d.here[:])
	for i := range s.Workloads {
		w := &s.Workloads[i]
		at := d.assigned[w.ID]
		if at == nil || at.shared {
			continue
		}
		d.here[at.slot] = true
		if at.class != rqdelay.LS {
			continue
		}
		waited := d.now.Delays[at.slot].Since(d.base.Delays[at.slot])
		w.Usage.Delay = node.RunQueueDelay{Sum: node.Some(waited.Sum), Counts: slices.Clone(waited.Counts[:])}
		if w.Usage.PerCPU == nil {
			w.Usage.PerCPU = d.ranOn(at.slot, s.Topology)
		}
	}
	named := map[rqdelay.Slot]int{}
	for i := range s.Workloads {
		if at := d.assigned[s.Workloads[i].ID]; at != nil && s.Workloads[i].Objective != (node.Objective{}) {
			named[at.slot] = namedForObjective
		}
	}
	s.Waits = d.listWaits(named)
}

// ranOn returns how long the workload in a slot ran on each CPU of the node.
func (d *Delays) ranOn(slot rqdelay.Slot, t node.Topology) map[unit.CPU]time.Duration {
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

// listWaits returns how long each workload (waiter) waited while another one
// (runner) had the CPU. It gives the workloads' names in place of slots. names has
// the number of runners with a name for each waiter that has more than namedRunners.
// A runner whose cgroup has just gone is not in the snapshot, but still has its slot. It
// counts with the rest of its class, as it will without the slot.
func (d *Delays) listWaits(names map[rqdelay.Slot]int) []node.Wait {
	for pair, t := range d.now.Waits {
		if t -= d.base.Waits[pair]; t > 0 && d.names[pair.Waiter] != "" && d.names[pair.Runner] != "" {
			d.containers[pair.Waiter] = append(d.containers[pair.Waiter], container{runner: pair.Runner, time: t})
		}
	}
	var all []node.Wait
	for slot := range d.containers {
		waiter := rqdelay.Slot(slot)
		parts := d.containers[slot]
		d.containers[slot] = parts[:0]
		if names[waiter] > 0 {
			d.rank(waiter, parts, names[waiter])
		}
		slices.SortFunc(parts, func(a, b container) int {
			return cmp.Or(cmp.Compare(b.lately, a.lately), cmp.Compare(b.time, a.time), cmp.Compare(a.runner, b.runner))
		})
		named, most := 0, max(names[waiter], namedRunners)
		rest := d.left[waiter]
		for _, p := range parts {
			class := d.classes[p.runner]
			if class != "" && (named == most || !d.here[p.runner]) {
				rest.add(class, p.time)
				continue
			}
			if class != "" {
				named++
			}
			all = append(all, node.Wait{Waiter: d.names[waiter], Runner: d.names[p.runner], Time: p.time})
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

// rank sets how long a waiter waited lately for each runner, if there are more runners than
// names. The first time, that is not known.
func (d *Delays) rank(waiter rqdelay.Slot, parts []container, names int) {
	candidates := 0
	for _, p := range parts {
		if d.classes[p.runner] != "" && d.here[p.runner] {
			candidates++
		}
	}
	if candidates <= names {
		delete(d.recent, waiter)
		return
	}
	was, ranked := d.recent[waiter]
	now := make(map[rqdelay.Slot]recentWaits, len(parts))
	for i, p := range parts {
		r, known := was[p.runner]
		switch {
		case known && p.time >= r.total:
			r.lately = r.lately*7/8 + p.time - r.total
		case ranked: // its first waits, or the slot has another workload
			r.lately = p.time
		}
		r.total, parts[i].lately = p.time, r.lately
		now[p.runner] = r
	}
	if d.recent == nil {
		d.recent = map[rqdelay.Slot]map[rqdelay.Slot]recentWaits{}
	}
	d.recent[waiter] = now
}
