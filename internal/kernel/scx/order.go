package scx

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"tenon.sh/tenon/internal/model/node"
)

// SetGroup sets the class of one cgroup, with all cgroups below it except those
// that have their own class. A thread that runs now counts in the new class
// after its next context switch. If the table is full, the cgroup keeps the
// class of its parent.
func (s *Scheduler) SetGroup(g Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setGroup(g); err != nil {
		return fmt.Errorf("set the class of cgroup %d: %w", g.Cgroup, err)
	}
	return nil
}

func (s *Scheduler) setGroup(g Group) error {
	class, known := kernelClass[g.Class]
	switch {
	case s.closed:
		return ErrClosed
	case !known || g.Pod < 0 || g.Pod >= Slots:
		return fmt.Errorf("class %q of pod %d: want a class and a slot below %d", g.Class, g.Pod, Slots)
	}
	v := scheduler613ScxGroup{Class: class, Slot: uint32(g.Pod)}
	table := s.kernel.Maps[scheduler613MapGroups]
	if err := table.Put(g.Cgroup, v); err != nil {
		return fmt.Errorf("add it to the table of %d: %w", table.MaxEntries(), err)
	}
	s.known[g.Cgroup] = v
	return s.turnGeneration()
}

// DropGroup removes the class that SetGroup set. It returns nil if the cgroup
// has no class.
func (s *Scheduler) DropGroup(cgroup uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := ErrClosed
	if !s.closed {
		err = s.kernel.Maps[scheduler613MapGroups].Delete(cgroup)
	}
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove cgroup %d: %w", cgroup, err)
	}
	delete(s.known, cgroup)
	return s.turnGeneration()
}

// turnGeneration makes each CPU look up the class of its present thread again.
func (s *Scheduler) turnGeneration() error {
	s.generation++
	return s.kernel.Variables[scheduler613VarGeneration].Set(s.generation)
}

// Group reads the class of a cgroup from the kernel. It returns false if the
// cgroup has none.
func (s *Scheduler) Group(cgroup uint64) (Group, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v scheduler613ScxGroup
	err := ErrClosed
	if !s.closed {
		err = s.kernel.Maps[scheduler613MapGroups].Lookup(cgroup, &v)
	}
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return Group{}, false, nil
	case err != nil:
		return Group{}, false, fmt.Errorf("read the class of cgroup %d: %w", cgroup, err)
	}
	g := Group{Cgroup: cgroup, Pod: int(v.Slot)}
	for _, c := range node.SchedulerClasses {
		if kernelClass[c] == v.Class {
			g.Class = c
		}
	}
	return g, true, nil
}

// SetPod sets the weight and the quota of one slot. Other slots do not change.
func (s *Scheduler) SetPod(p Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := ErrClosed
	if !s.closed {
		err = s.setOnePod(p)
	}
	if err != nil {
		return fmt.Errorf("set the weight and the quota of slot %d: %w", p.Slot, err)
	}
	return nil
}

func (s *Scheduler) setOnePod(p Pod) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.Quota > 0 && uint32(p.Slot) >= s.quotaSlots {
		// Set the number before the quota. It must not decrease, because
		// threads of higher slots may still wait for quota.
		s.quotaSlots = uint32(p.Slot) + 1
		if err := s.kernel.Variables[scheduler613VarQuotaSlots].Set(s.quotaSlots); err != nil {
			return fmt.Errorf("set the number of slots with quotas: %w", err)
		}
	}
	return s.view.setPod(p.Slot, uint32(cmp.Or(p.Weight, usualWeight)), uint64(p.Quota))
}

// check returns an error if a field of the pod is out of range.
func (p Pod) check() error {
	switch {
	case p.Slot < 0 || p.Slot >= Slots:
		return fmt.Errorf("slot %d: want one below %d", p.Slot, Slots)
	case p.Weight < 0 || p.Weight > 10000 || p.Quota < 0:
		return fmt.Errorf("slot %d: weight %d and quota %v: want a weight of at most 10000 and a quota of at least 0", p.Slot, p.Weight, p.Quota)
	}
	return nil
}

// Pod reads the weight and the quota of a slot from the kernel.
func (s *Scheduler) Pod(slot int) (Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Pod{}, fmt.Errorf("read the weight and the quota of slot %d: %w", slot, ErrClosed)
	}
	if err := (Pod{Slot: slot}).check(); err != nil {
		return Pod{}, err
	}
	var p scheduler613QosPod
	if err := element(s.view.pods, slot, &p); err != nil {
		return Pod{}, fmt.Errorf("read the weight and the quota of slot %d: %w", slot, err)
	}
	return Pod{Slot: slot, Weight: int(p.Weight), Quota: time.Duration(p.QuotaNs)}, nil
}
