package conformance

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// runFacts returns the facts about freezing a cgroup, and about killing all its
// processes (Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze and
// cgroup.kill; cgroup-v1/freezer-subsystem.rst).
func runFacts() []Fact {
	facts := []Fact{
		{Name: "freeze is 0 or 1", Version: 2, Check: func(b *Bench) error {
			return firstOf(
				func() error { return b.mustRefuse(b.cgroup, "cgroup.freeze", []string{"2", "-1"}, syscall.ERANGE) },
				func() error { return b.mustRefuse(b.cgroup, "cgroup.freeze", []string{"frozen"}, syscall.EINVAL) },
				func() error { return b.mustBecome(b.cgroup, "cgroup.freeze", "1", "1") },
				func() error { return b.mustBecome(b.cgroup, "cgroup.freeze", "0", "0") },
			)
		}},
		{Name: "the freezer state is FROZEN or THAWED", Version: 1, Check: func(b *Bench) error {
			return b.mustRefuse(b.cgroup, "freezer.state", []string{"frozen", "1", "FREEZING"}, syscall.EINVAL)
		}},
		{Name: "a frozen group shows that it is frozen", Check: frozenGroupSaysSo},
		{Name: "a child of a frozen group is frozen with it", Check: childIsFrozen},
		{Name: "a frozen task does not die before it is thawed", Version: 1, Check: frozenTaskLives},
		{Name: "a frozen task dies of a signal that ends it", Version: 2, Check: frozenTaskDies},
		{Name: "a workload is frozen until it is released", Check: frozenUntilReleased},
		{Name: "a frozen workload that is asked to end is thawed", Check: frozenIsAskedToEnd},
	}
	for i := range facts {
		facts[i].Needs = node.FeatureCgroupFreezer
	}
	return append(facts,
		Fact{Name: "kill is 1", Version: 2, Check: func(b *Bench) error {
			return b.mustRefuse(b.cgroup, "cgroup.kill", []string{"0", "2", "-1"}, syscall.ERANGE)
		}},
		Fact{Name: "killing a group ends all in it and below it", Version: 2, Check: killEndsAll},
		Fact{Name: "an empty group shows that it is empty", Version: 2, Check: emptyGroupSaysSo},
		Fact{Name: "a workload that is asked to end ends", Check: func(b *Bench) error { return endsBy(b, node.AskedToEnd) }},
		Fact{Name: "a workload is ended with all below it, and no value is left to restore", Check: func(b *Bench) error { return endsBy(b, node.Ended) }},
	)
}

// waitUntil waits until the function so returns true, because some effects come
// with a delay. It does not wait on a node with AtOnce (the simulator).
func (b *Bench) waitUntil(what string, so func() bool) error {
	patience := 5 * time.Second
	if n, tells := b.Node.(interface{ AtOnce() bool }); tells && n.AtOnce() {
		patience = 0
	}
	for end := time.Now().Add(patience); !so(); time.Sleep(2 * time.Millisecond) {
		if !time.Now().Before(end) {
			return fmt.Errorf("%s: did not happen within %v", what, patience)
		}
	}
	return nil
}

// freeze freezes a cgroup if still is true, and otherwise thaws it. After a
// freeze it waits until the kernel shows all processes as frozen.
func (b *Bench) freeze(p node.CgroupPath, still bool) error {
	file, on, off := b.pick("freezer.state", "cgroup.freeze"), b.pick("FROZEN", "1"), b.pick("THAWED", "0")
	if !still {
		return b.set(p, file, off)
	}
	return b.waitUntil(string(p)+" is frozen", func() bool {
		// On cgroup v1, the first write may miss some tasks. A second write
		// freezes them, too.
		return b.WriteFile(p, file, on) == nil && b.isShownFrozen(p)
	})
}

// isShownFrozen reports whether the kernel shows a group as frozen.
func (b *Bench) isShownFrozen(p node.CgroupPath) bool {
	text, err := b.ReadFile(p, b.pick("freezer.state", "cgroup.events"))
	return err == nil && strings.Contains(text, b.pick("FROZEN", "frozen 1"))
}

func frozenGroupSaysSo(b *Bench) error {
	if _, err := b.task(b.cgroup, 0); err != nil {
		return err
	}
	return firstOf(
		func() error { return b.freeze(b.cgroup, true) },
		func() error { return b.freeze(b.cgroup, false) },
		func() error { return b.waitUntil("it is thawed", func() bool { return !b.isShownFrozen(b.cgroup) }) },
	)
}

func childIsFrozen(b *Bench) error {
	child, err := b.child("child")
	if err != nil {
		return err
	}
	if _, err := b.task(child, 0); err != nil {
		return err
	}
	defer func() { _ = b.freeze(b.cgroup, false) }()
	return firstOf(
		func() error { return b.freeze(b.cgroup, true) },
		func() error { return b.waitUntil("the child is frozen", func() bool { return b.isShownFrozen(child) }) },
		// When the parent is frozen, the state file of the child does not change.
		func() error { return b.mustShow(child, b.pick("freezer.self_freezing", "cgroup.freeze"), "0") },
		func() error { return b.set(child, b.pick("freezer.state", "cgroup.freeze"), b.pick("THAWED", "0")) },
		func() error {
			if !b.isShownFrozen(child) {
				return fmt.Errorf("%s runs below a frozen group", child)
			}
			return nil
		},
	)
}

func frozenTaskLives(b *Bench) error {
	pid, err := b.task(b.cgroup, 0)
	if err != nil {
		return err
	}
	defer func() { _ = b.freeze(b.cgroup, false) }()
	return firstOf(
		func() error { return b.freeze(b.cgroup, true) },
		func() error { return b.Signal(pid, syscall.SIGKILL) },
		func() error {
			time.Sleep(20 * time.Millisecond)
			if !b.Alive(pid) {
				return fmt.Errorf("task %d died of SIGKILL in a frozen group", pid)
			}
			return nil
		},
		func() error { return b.freeze(b.cgroup, false) },
		func() error { return b.waitUntil("it dies", func() bool { return !b.Alive(pid) }) },
	)
}

func frozenTaskDies(b *Bench) error {
	pid, err := b.task(b.cgroup, 0)
	if err != nil {
		return err
	}
	defer func() { _ = b.freeze(b.cgroup, false) }()
	return firstOf(
		func() error { return b.freeze(b.cgroup, true) },
		func() error { return b.Signal(pid, syscall.SIGKILL) },
		func() error { return b.waitUntil("it dies", func() bool { return !b.Alive(pid) }) },
	)
}

func killEndsAll(b *Bench) error {
	child, err := b.child("child")
	if err != nil {
		return err
	}
	pid, err := b.task(child, 0)
	if err != nil {
		return err
	}
	return firstOf(
		func() error { return b.set(b.cgroup, "cgroup.kill", "1") },
		func() error { return b.waitUntil("it dies", func() bool { return !b.Alive(pid) }) },
	)
}

func emptyGroupSaysSo(b *Bench) error {
	says := func(want string) error {
		return b.waitUntil(want, func() bool {
			text, err := b.ReadFile(b.cgroup, "cgroup.events")
			return err == nil && strings.Contains(text, want)
		})
	}
	if err := says("populated 0"); err != nil {
		return err
	}
	if _, err := b.task(b.cgroup, 0); err != nil {
		return err
	}
	return says("populated 1")
}

func (b *Bench) run(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileRun} }

// becomesRun waits until a snapshot shows the state want for workload p.
func (b *Bench) becomesRun(p node.CgroupPath, want node.Run) error {
	return b.waitUntil(fmt.Sprintf("%s is %v", p, want), func() bool { return b.checkSnapshot(b.run(p), want) == nil })
}

func frozenUntilReleased(b *Bench) error {
	if _, err := b.task(b.cgroup, 0); err != nil {
		return err
	}
	defer b.manage(b.cgroup)()
	k := b.run(b.cgroup)
	return firstOf(
		func() error { return b.checkSnapshot(k, node.Running) },
		func() error { return b.want(set(b.cgroup, k.File, node.Frozen)) },
		func() error { return b.checkSnapshot(k, node.Frozen) },
		func() error { return b.waitUntil("it is frozen", func() bool { return b.isShownFrozen(b.cgroup) }) },
		func() error { return b.want(release(k)) },
		func() error { return b.checkSnapshot(k, node.Running) },
		func() error { return b.waitUntil("it is thawed", func() bool { return !b.isShownFrozen(b.cgroup) }) },
		func() error { return b.requireForgotten(k) },
	)
}

// requireForgotten requires that the journal has no value for a knob.
func (b *Bench) requireForgotten(k node.Knob) error {
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	if v, kept := s.Knobs.Before[k]; kept {
		return fmt.Errorf("%v has the journaled value %v", k, v)
	}
	return nil
}

func frozenIsAskedToEnd(b *Bench) error {
	if _, err := b.task(b.cgroup, 0); err != nil {
		return err
	}
	defer b.manage(b.cgroup)()
	k := b.run(b.cgroup)
	return firstOf(
		func() error { return b.want(set(b.cgroup, k.File, node.Frozen)) },
		func() error { return b.want(set(b.cgroup, k.File, node.AskedToEnd)) },
		func() error { return b.becomesRun(b.cgroup, node.Ended) },
		func() error { return b.requireForgotten(k) },
		func() error {
			return b.mustShow(b.cgroup, b.pick("freezer.self_freezing", "cgroup.freeze"), "0")
		},
	)
}

func endsBy(b *Bench, v node.Run) error {
	child, err := b.child("child")
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := b.task(child, 0); err != nil {
			return err
		}
	}
	defer b.manage(b.cgroup)()
	return firstOf(
		func() error { return b.checkSnapshot(b.run(b.cgroup), node.Running) },
		func() error { return b.want(set(b.cgroup, node.FileRun, v)) },
		func() error { return b.becomesRun(b.cgroup, node.Ended) },
		func() error { return b.requireForgotten(b.run(b.cgroup)) },
	)
}
