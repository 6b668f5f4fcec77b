package scx

import (
	"cmp"
	"fmt"
	"time"
)

// QuotaPeriod is the period of quotas.
const QuotaPeriod = 100 * time.Millisecond

// A Pod is what the threads of one slot may have together.
type Pod struct {
	Slot int // 0 to Slots-1
	// Weight is its share against other pods, 100 being usual (cpu.weight); 0: 100.
	Weight int
	// Quota is the CPU time in each QuotaPeriod; 0: no limit. A pod gets at
	// least 1 ms, so that its threads never wait for ever.
	Quota time.Duration
}

// usualWeight is that of a pod of which nothing is said.
const usualWeight = 100

// SetPods replaces the weights and quotas of all pods: slots that are not named
// have weight 100 and no quota. The run time of a slot goes on counting.
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
		if p.Slot < 0 || p.Slot >= Slots {
			return fmt.Errorf("slot %d: want one below %d", p.Slot, Slots)
		}
		if p.Weight < 0 || p.Weight > 10000 || p.Quota < 0 {
			return fmt.Errorf("slot %d: weight %d and quota %v: want a weight up to 10000 and a quota from 0 on", p.Slot, p.Weight, p.Quota)
		}
		wanted[p.Slot] = p
		if p.Quota > 0 {
			s.quotaSlots = max(s.quotaSlots, uint32(p.Slot)+1)
		}
	}
	// Before there is a quota; it never falls, as threads may still be parked.
	if err := s.kernel.Variables[scheduler613VarQuotaSlots].Set(s.quotaSlots); err != nil {
		return fmt.Errorf("set how many slots may have quotas: %w", err)
	}
	for slot, p := range wanted {
		if err := s.view.setPod(slot, uint32(cmp.Or(p.Weight, usualWeight)), uint64(p.Quota)); err != nil {
			return err
		}
	}
	return nil
}
