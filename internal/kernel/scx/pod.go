package scx

import (
	"cmp"
	"fmt"
	"time"
)

// QuotaPeriod is the period over which quotas are enforced.
const QuotaPeriod = 100 * time.Millisecond

// A Pod holds the limits that all threads of one slot share.
type Pod struct {
	Slot int // 0 to Slots-1
	// Weight is the weight of the pod against other pods, like cpu.weight. 0
	// means the default of 100.
	Weight int
	// Quota is the CPU time per QuotaPeriod. 0 means no limit. The minimum is 1
	// ms, so that the threads of a pod do not wait forever.
	Quota time.Duration
}

// usualWeight is the weight of a pod whose Weight is 0.
const usualWeight = 100

// SetPods replaces the weights and quotas of all pods. Slots that are not in
// the list get weight 100 and no quota. The run time of a slot is not reset.
func (s *Scheduler) SetPods(pods []Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := ErrClosed
	if !s.closed {
		err = s.setPods(pods)
	}
	if err != nil {
		return fmt.Errorf("set weights and quotas of %d pods: %w", len(pods), err)
	}
	return nil
}

func (s *Scheduler) setPods(pods []Pod) error {
	wanted := [Slots]Pod{}
	for _, p := range pods {
		if err := p.check(); err != nil {
			return err
		}
		wanted[p.Slot] = p
		if p.Quota > 0 {
			s.quotaSlots = max(s.quotaSlots, uint32(p.Slot)+1)
		}
	}
	// Set the number before the quotas. It must not decrease, because threads
	// of higher slots may still wait for quota.
	if err := s.kernel.Variables[scheduler613VarQuotaSlots].Set(s.quotaSlots); err != nil {
		return fmt.Errorf("set the number of slots with quotas: %w", err)
	}
	for slot, p := range wanted {
		if err := s.view.setPod(slot, uint32(cmp.Or(p.Weight, usualWeight)), uint64(p.Quota)); err != nil {
			return err
		}
	}
	return nil
}
