package conformance

import (
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// capOfBE is the knob that limits the CPU time of all BE threads together.
var capOfBE = node.Knob{File: node.FileSchedulerCap}

// ordersEnd checks that the snapshot shows an order to the BPF scheduler while
// the scheduler is loaded, and not afterwards. The order must never be in the
// journal.
func ordersEnd(b *Bench) error {
	defer b.manage(b.cgroup)()
	group := node.Knob{Cgroup: b.cgroup, File: node.FileSchedulerGroup}
	order := node.SchedulerGroup{Class: node.SchedulerBE, Slot: 7, Weight: 300, Quota: 1500}
	none := func(k node.Knob, zero node.Value) error {
		s, err := b.Snapshot(b.ctx)
		if err != nil {
			return err
		}
		if v := s.Knobs.Now[k]; v != nil && v != zero {
			return fmt.Errorf("%v is %v after the scheduler was unloaded", k, v)
		}
		return nil
	}
	return firstOf(
		func() error { return b.want(plan.Want{Intent: plan.Set, Knob: scheduler, Value: loaded}) },
		func() error { return b.want(plan.Want{Intent: plan.Set, Knob: group, Value: order}) },
		func() error {
			return b.want(plan.Want{Intent: plan.Set, Knob: capOfBE, Value: node.SchedulerCap{Most: 2500}})
		},
		func() error { return b.checkSnapshot(group, order) },
		func() error { return b.checkSnapshot(capOfBE, node.SchedulerCap{Most: 2500}) },
		func() error {
			s, err := b.Snapshot(b.ctx)
			if _, before := s.Knobs.Before[group]; before {
				return errors.New("an entry has a journaled value")
			}
			return err
		},
		func() error { return b.want(plan.Want{Intent: plan.Release, Knob: scheduler}) },
		func() error { return none(group, node.SchedulerGroup{}) },
		func() error { return none(capOfBE, node.SchedulerCap{}) },
	)
}

func orderNeedsGroup(b *Bench) error {
	k := node.Knob{Cgroup: b.cgroup.Join("missing"), File: node.FileSchedulerGroup}
	return refused(b.Apply(b.ctx, plan.Step{Knob: k, To: node.SchedulerGroup{Class: node.SchedulerLS}}), "an order for a cgroup that is not there")
}

func orderIsValid(b *Bench) error {
	k := node.Knob{Cgroup: b.cgroup, File: node.FileSchedulerGroup}
	v := node.SchedulerGroup{Class: node.SchedulerBE, Slot: node.SchedulerSlots, Weight: 100}
	return refused(b.Apply(b.ctx, plan.Step{Knob: k, To: v}), "an order for a slot that is not there")
}

func refused(err error, what string) error {
	if err == nil {
		return errors.New(what + " was taken")
	}
	return nil
}
