package conformance

import (
	"errors"
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// divisionFacts returns facts about how Tenon divides caches and bandwidth on the kernel.
func divisionFacts() []ControlFact {
	return []ControlFact{
		{Name: "a part of the caches shows as it was applied", Needs: needsL3, Check: partOfCacheShows},
		{Name: "a part of the bandwidth shows as it was rounded", Needs: needsMB, Check: partOfBandwidthShows},
		{Name: "a control group is gone with its last knob", Check: groupGoesWithLastKnob},
		{Name: "the tasks of a workload join its control group and leave it", Check: tasksJoinAndLeave},
		{Name: "a control group that others use is left alone", Check: othersAreLeftAlone},
		{Name: "an empty control group is adopted and given back", Needs: needsL3, Check: emptyGroupIsAdopted},
	}
}

// beGroup is the control group of best-effort work.
const beGroup = string(node.BE)

func inControl(f node.File, v node.Value) plan.Want {
	return plan.Want{Intent: plan.Set, Knob: node.Knob{ControlGroup: beGroup, File: f}, Value: v, Owner: plan.OwnerConformance, Reason: "fact", BE: true}
}

// oneWay returns, for each cache, the smallest mask that the machine accepts.
func (b *ControlGroupBench) oneWay() node.L3 {
	by := node.Ways{}
	for _, id := range b.s.Resctrl.L3.Domains {
		by[id] = 1<<max(b.s.Resctrl.L3.Least, 1) - 1
	}
	return node.L3Of(by)
}

// anyKnob returns a resctrl knob that this machine has, and a value for it.
func (b *ControlGroupBench) anyKnob() (node.File, node.Value) {
	if len(b.s.Resctrl.L3.Domains) > 0 {
		return node.FileL3, b.oneWay()
	}
	by := map[node.CacheID]uint64{}
	for _, id := range b.s.Resctrl.MBDomains {
		by[id] = max(b.s.Knobs.Kernel.MB.Least, 1)
	}
	return node.FileMB, node.MBOf(by)
}

func (b *ControlGroupBench) give(f node.File) error {
	return b.want(release(node.Knob{ControlGroup: beGroup, File: f}))
}

func partOfCacheShows(b *ControlGroupBench) error {
	v := b.oneWay()
	return firstOf(
		func() error { return b.want(inControl(node.FileL3, v)) },
		func() error { return b.checkSnapshot(node.Knob{ControlGroup: beGroup, File: node.FileL3}, v) },
		func() error { return b.mustRead(beGroup, b.l3(), v.Schema) },
		func() error { return b.give(node.FileL3) },
	)
}

func partOfBandwidthShows(b *ControlGroupBench) error {
	by := map[node.CacheID]uint64{}
	rule := b.s.Knobs.Kernel.MB
	for _, id := range b.s.Resctrl.MBDomains {
		by[id] = max(rule.Least, 1) + rule.Step/2
	}
	v := node.MBOf(by)
	want := v.Round(b.s.Knobs.Kernel)
	return firstOf(
		func() error { return b.want(inControl(node.FileMB, v)) },
		func() error { return b.checkSnapshot(node.Knob{ControlGroup: beGroup, File: node.FileMB}, want) },
		func() error { return b.mustRead(beGroup, "MB", want.String()) },
		func() error { return b.give(node.FileMB) },
	)
}

func groupGoesWithLastKnob(b *ControlGroupBench) error {
	f, v := b.anyKnob()
	return firstOf(
		func() error { return b.want(inControl(f, v)) },
		func() error { return b.give(f) },
		func() error {
			if _, err := b.ReadControl(beGroup, "schemata"); err == nil {
				return fmt.Errorf("the control group is still there")
			}
			s, err := b.Snapshot(b.ctx)
			if before := s.Knobs.Before[node.Knob{ControlGroup: beGroup, File: f}]; err == nil && before != nil {
				err = fmt.Errorf("its knob still has the journaled value %v", before)
			}
			return err
		},
	)
}

func tasksJoinAndLeave(b *ControlGroupBench) error {
	pid, forget, err := b.worker(node.BE)
	if err != nil {
		return err
	}
	defer forget()
	f, v := b.anyKnob()
	member := node.Knob{Cgroup: b.cgroup, File: node.FileControlGroup}
	return firstOf(
		func() error { return b.checkSnapshot(member, node.ControlGroupsOf(node.DefaultControlGroup)) },
		func() error {
			return b.want(inControl(f, v), set(b.cgroup, node.FileControlGroup, node.ControlGroupsOf(beGroup)))
		},
		func() error { return b.checkSnapshot(member, node.ControlGroupsOf(beGroup)) },
		func() error { return b.mustHold(beGroup, pid) },
		func() error { return b.want(release(member)) },
		func() error { return b.checkSnapshot(member, node.ControlGroupsOf(node.DefaultControlGroup)) },
		func() error { return b.mustHold(node.DefaultControlGroup, pid) },
		func() error { return b.give(f) },
	)
}

func othersAreLeftAlone(b *ControlGroupBench) error {
	pid, err := b.task(b.cgroup, 0)
	if err != nil {
		return err
	}
	f, v := b.anyKnob()
	return firstOf(
		func() error { return b.control(beGroup) },
		func() error { return b.WriteControl(beGroup, "tasks", fmt.Sprintln(pid)) },
		func() error {
			if err := b.want(inControl(f, v)); err == nil {
				return errors.New("a control group that others use was written to")
			}
			return b.mustHold(beGroup, pid)
		},
	)
}

func emptyGroupIsAdopted(b *ControlGroupBench) error {
	id, full := b.firstCache()
	part := fmt.Sprintf("%d=%x", id, 1)
	before := strings.Replace(uniformLine(b.s.Resctrl.L3.Domains, full), fmt.Sprintf("%d=%s", id, full), part, 1)
	by := node.Ways{}
	for _, id := range b.s.Resctrl.L3.Domains {
		by[id] = b.s.Resctrl.L3.Mask
	}
	return firstOf(
		func() error { return b.control(beGroup) },
		func() error { return b.writeLine(beGroup, b.l3(), part, before) },
		func() error { return b.want(inControl(node.FileL3, node.L3Of(by))) },
		func() error { return b.mustRead(beGroup, b.l3(), uniformLine(b.s.Resctrl.L3.Domains, full)) },
		func() error { return b.give(node.FileL3) },
		func() error { return b.mustRead(beGroup, b.l3(), before) },
	)
}
