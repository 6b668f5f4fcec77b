package usage

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
)

// A slotTable assigns each workload a slot of the counter, first to
// latency-sensitive ones. If there are more workloads than slots, some
// workloads of a class share a slot and are counted together.
type slotTable struct {
	assigned map[node.WorkloadID]*assignment
	// names and classes describe the slots. A slot is for one workload, for
	// several that share it, or for threads outside all workloads, which have
	// no class. A free slot has no name.
	names   [rqdelay.Slots]node.WorkloadID
	classes [rqdelay.Slots]node.Class
	free    []rqdelay.Slot // in the order of use
	shared  map[rqdelay.Class]rqdelay.Slot
	sharing map[rqdelay.Class]int // number of workloads in the shared slot
	// base holds the counters of each slot at the time of its last assignment. left
	// holds how long each waiter waited for workloads that have lost their slots since.
	base  rqdelay.Reading
	left  map[rqdelay.Slot]byClass
	limit map[rqdelay.Slot]time.Duration // limits that the counter has
	// refused is the reason why some workloads are not counted, or nil if all
	// are. uncounted is their number.
	refused   error
	uncounted int
}

// An assignment is a workload with its slot, which it may share.
type assignment struct {
	id     node.WorkloadID
	of     node.Class
	class  rqdelay.Class
	inode  uint64
	slot   rqdelay.Slot
	shared bool
}

// byClass holds one time for each class, in the order of node.Classes.
type byClass [5]time.Duration

func (b *byClass) add(c node.Class, t time.Duration) {
	for i, class := range node.Classes {
		if class == c {
			b[i] += t
		}
	}
}

func newSlotTable() slotTable {
	s := slotTable{
		assigned: map[node.WorkloadID]*assignment{}, shared: map[rqdelay.Class]rqdelay.Slot{}, sharing: map[rqdelay.Class]int{},
		left: map[rqdelay.Slot]byClass{}, limit: map[rqdelay.Slot]time.Duration{},
		base: rqdelay.Reading{Delays: map[rqdelay.Slot]rqdelay.Histogram{}, Waits: map[rqdelay.Pair]time.Duration{}, Run: map[rqdelay.Slot][]time.Duration{}},
	}
	s.names[rqdelay.Untracked], s.names[rqdelay.Kernel] = node.RunnerOthers, node.RunnerKernel
	s.names[rqdelay.Idle], s.names[rqdelay.Elsewhere] = node.RunnerIdle, node.RunnerElsewhere
	next := rqdelay.First
	for _, c := range []struct {
		class rqdelay.Class
		of    node.Class
	}{{rqdelay.LS, node.LS}, {rqdelay.System, node.System}, {rqdelay.BE, node.BE}} {
		s.shared[c.class], s.names[next], s.classes[next] = next, node.RestOf(c.of), c.of
		next++
	}
	for ; next < rqdelay.Last; next++ {
		s.free = append(s.free, next)
	}
	s.free = append(s.free, rqdelay.Last)
	return s
}

// counterClass returns the class of package rqdelay for a QoS class.
func counterClass(c node.Class) rqdelay.Class {
	switch {
	case c.Sensitive():
		return rqdelay.LS
	case c == node.BE:
		return rqdelay.BE
	}
	return rqdelay.System
}

// follow assigns a slot to each workload, and frees the slots of workloads that
// no longer exist. now must be a reading that was just made. After an error, do
// not use the counter any more.
func (s *slotTable) follow(c counter, now *rqdelay.Reading, all []node.Workload, inode func(node.CgroupPath) (uint64, error)) error {
	inodes := make(map[node.WorkloadID]uint64, len(all))
	classes := make(map[node.WorkloadID]node.Class, len(all))
	for _, w := range all {
		if id, err := inode(w.Cgroup); err == nil {
			inodes[w.ID], classes[w.ID] = id, w.Class
		}
	}
	for id, at := range s.assigned {
		if inodes[id] != at.inode || classes[id] != at.of {
			if err := c.Forget(at.inode); err != nil {
				return err
			}
			s.leave(at, now)
		}
	}
	if len(s.free) > 0 {
		for _, at := range s.assigned {
			if at.shared {
				s.leave(at, now) // assign gives it a free slot of its own, if one is left
			}
		}
	}
	s.refused, s.uncounted = nil, 0
	limits := map[rqdelay.Slot]time.Duration{}
	for _, sensitive := range []bool{true, false} {
		for _, w := range all {
			if w.Class.Sensitive() != sensitive || inodes[w.ID] == 0 {
				continue
			}
			at, err := s.assign(c, now, w, inodes[w.ID])
			if errors.Is(err, rqdelay.ErrClosed) {
				return err
			}
			if err != nil {
				s.refused, s.uncounted = err, s.uncounted+1
				continue
			}
			if wait := limitOf(w); sensitive && (limits[at.slot] == 0 || wait < limits[at.slot]) {
				limits[at.slot] = wait
			}
		}
	}
	for slot, wait := range limits {
		if s.limit[slot] != wait {
			if err := c.Limit(slot, wait); err != nil {
				return err
			}
			s.limit[slot] = wait
		}
	}
	return nil
}

// assign returns the assignment of a workload. It makes one if there is none.
func (s *slotTable) assign(c counter, now *rqdelay.Reading, w node.Workload, inode uint64) (*assignment, error) {
	if at := s.assigned[w.ID]; at != nil {
		return at, nil
	}
	at := &assignment{id: w.ID, of: w.Class, class: counterClass(w.Class), inode: inode}
	if err := s.takeSlot(c, now, at); err != nil {
		return nil, err
	}
	if err := c.Track(at.slot, inode, at.class); err != nil {
		s.freeSlot(at)
		return nil, err
	}
	s.assigned[w.ID] = at
	return at, nil
}

// takeSlot gives a new assignment a slot, whose counts start at 0.
func (s *slotTable) takeSlot(c counter, now *rqdelay.Reading, at *assignment) error {
	if len(s.free) == 0 && at.class == rqdelay.LS {
		if err := s.shareSlot(c, now); err != nil {
			return err
		}
	}
	if len(s.free) == 0 {
		at.slot, at.shared = s.shared[at.class], true
		s.sharing[at.class]++
		return nil
	}
	at.slot, s.free = s.free[0], s.free[1:]
	s.names[at.slot], s.classes[at.slot] = at.id, at.of
	s.base.Delays[at.slot] = now.Delays[at.slot]
	s.base.Run[at.slot] = append([]time.Duration(nil), now.Run[at.slot]...)
	for pair, t := range now.Waits {
		if pair.Waiter == at.slot || pair.Runner == at.slot {
			s.base.Waits[pair] = t
		}
	}
	return nil
}

// shareSlot frees a slot for a latency-sensitive workload. It moves a workload
// of another class from its own slot into the shared slot of that class.
func (s *slotTable) shareSlot(c counter, now *rqdelay.Reading) error {
	for slot := rqdelay.Last; slot >= rqdelay.First; slot-- {
		at := s.assigned[s.names[slot]]
		if at == nil || at.class == rqdelay.LS {
			continue
		}
		if err := c.Track(s.shared[at.class], at.inode, at.class); err != nil {
			return err
		}
		s.leave(at, now)
		moved := *at
		moved.slot, moved.shared = s.shared[at.class], true
		s.sharing[at.class]++
		s.assigned[at.id] = &moved
		return nil
	}
	return nil
}

// leave ends an assignment. It adds the waits of other workloads for this one
// to the sums of its class.
func (s *slotTable) leave(at *assignment, now *rqdelay.Reading) {
	delete(s.assigned, at.id)
	if !at.shared {
		for pair, t := range now.Waits {
			if pair.Runner == at.slot && pair.Waiter != at.slot && s.names[pair.Waiter] != "" {
				sum := s.left[pair.Waiter]
				sum.add(at.of, max(t-s.base.Waits[pair], 0))
				s.left[pair.Waiter] = sum
			}
		}
	}
	s.freeSlot(at)
}

// freeSlot frees the slot of an assignment, or leaves the shared slot.
func (s *slotTable) freeSlot(at *assignment) {
	if at.shared {
		s.sharing[at.class]--
		return
	}
	delete(s.left, at.slot)
	delete(s.limit, at.slot)
	s.names[at.slot], s.classes[at.slot] = "", ""
	s.free = append(s.free, at.slot)
}

// trouble returns which workloads are counted together or not at all, or "".
func (s *slotTable) trouble() string {
	var all []string
	for _, c := range []rqdelay.Class{rqdelay.LS, rqdelay.System, rqdelay.BE} {
		if n := s.sharing[c]; n > 1 {
			all = append(all, fmt.Sprintf("%d workloads of class %v", n, c))
		}
	}
	var text []string
	if len(all) > 0 {
		text = append(text, "more workloads than slots: run-queue delays are counted together for "+strings.Join(all, ", "))
	}
	switch {
	case errors.Is(s.refused, rqdelay.ErrFull):
		text = append(text, fmt.Sprintf("the table of cgroups of the tracing program is full: it has %d entries; run-queue delays of %d workloads are not counted, "+
			"and waits of others for them count as %s", rqdelay.Groups, s.uncounted, node.RunnerOthers))
	case s.refused != nil:
		text = append(text, fmt.Sprintf("run-queue delays of %d workloads are not counted: %v", s.uncounted, s.refused))
	}
	return strings.Join(text, "; ")
}
