package scx

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"tenon.sh/tenon/internal/model/node"
)

// A Class says how the scheduler treats the threads of a cgroup. A thread with
// the policy SCHED_EXT is scheduled as BE, even in a cgroup of another class.
// In cgroups of class BE, all threads should have this policy. The scheduler
// reports those that do not have it (Stray).
type Class = node.SchedulerClass

// The classes. Kernel threads, and threads in cgroups without a class, are
// Normal: they are not BE and do not keep BE away. So is the zero Class.
const (
	Normal = node.SchedulerNormal
	BE     = node.SchedulerBE
	LS     = node.SchedulerLS  // runs before BE on its CPU; BE may run on the sibling
	LSX    = node.SchedulerLSX // runs before BE on its CPU, and BE must leave the sibling (Params.SMTRule)
)

// kernelClass holds the number of each class in the BPF program.
var kernelClass = map[Class]scheduler613QosClass{
	"": scheduler613QosClassQOS_NORMAL, Normal: scheduler613QosClassQOS_NORMAL,
	BE: scheduler613QosClassQOS_BE, LS: scheduler613QosClassQOS_LS, LSX: scheduler613QosClassQOS_LSX,
}

// Slots is the number of slots. Each slot has a weight, a quota and a run time.
// All BE threads outside pods share slot 0.
const Slots = 256

// A Group is a cgroup with all cgroups below it, except those that have their
// own Group.
type Group struct {
	Cgroup uint64 // the inode number of its directory
	Class  Class
	Pod    int // slot of its pod, 0 to Slots-1; ignored unless Class is BE
}

// Classify replaces all groups. It writes only the differences, so frequent
// calls are cheap. A thread that runs now counts in its new class after its
// next context switch. If the table is full, Classify returns an error, and the
// last groups of the list stay Normal.
func (s *Scheduler) Classify(groups []Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.classify(groups); err != nil {
		return fmt.Errorf("classify %d groups: %w", len(groups), err)
	}
	return nil
}

func (s *Scheduler) classify(groups []Group) (err error) {
	if s.closed {
		return ErrClosed
	}
	wanted := make(map[uint64]scheduler613ScxGroup, len(groups))
	for _, g := range groups {
		class, known := kernelClass[g.Class]
		if !known || g.Pod < 0 || g.Pod >= Slots {
			return fmt.Errorf("cgroup %d: class %q of pod %d: want a class and a slot below %d", g.Cgroup, g.Class, g.Pod, Slots)
		}
		wanted[g.Cgroup] = scheduler613ScxGroup{Class: class, Slot: uint32(g.Pod)}
	}
	table, changed := s.kernel.Maps[scheduler613MapGroups], false
	defer func() { // also after an error that left some groups added
		if changed {
			s.generation++
			err = errors.Join(err, s.kernel.Variables[scheduler613VarGeneration].Set(s.generation))
		}
	}()
	for id := range s.known {
		if _, stays := wanted[id]; stays {
			continue
		}
		if err := table.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove cgroup %d: %w", id, err)
		}
		delete(s.known, id)
		changed = true
	}
	var full error
	for _, group := range groups { // in the given order, so that the last groups find the table full
		id, g := group.Cgroup, wanted[group.Cgroup]
		if s.known[id] == g {
			continue
		}
		// A group that does not fit into the table stays Normal. The others are
		// still classified.
		if err := table.Put(id, g); err != nil {
			full = fmt.Errorf("add cgroup %d to the table of %d: %w", id, table.MaxEntries(), err)
			continue
		}
		s.known[id] = g
		changed = true
	}
	return full
}
