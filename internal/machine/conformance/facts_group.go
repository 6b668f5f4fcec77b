package conformance

import (
	"fmt"
	"syscall"
)

func groupFacts() []Fact {
	return []Fact{
		{
			Name: "a group with tasks cannot be removed",
			Check: func(b *Bench) error {
				if _, err := b.task(b.cgroup, 0); err != nil {
					return err
				}
				if err := mustFail(b.RemoveGroup(b.cgroup), syscall.EBUSY); err != nil {
					return fmt.Errorf("remove %s with a task in it: %w", b.cgroup, err)
				}
				return nil
			},
		},
		{
			Name: "a group with children cannot be removed",
			Check: func(b *Bench) error {
				if _, err := b.child("child"); err != nil {
					return err
				}
				if err := mustFail(b.RemoveGroup(b.cgroup), syscall.EBUSY); err != nil {
					return fmt.Errorf("remove %s with a child: %w", b.cgroup, err)
				}
				return nil
			},
		},
		{
			Name: "a dead process cannot be attached",
			Check: func(b *Bench) error {
				pid, err := b.task(b.cgroup, 0)
				if err != nil {
					return err
				}
				if err := b.Stop(pid); err != nil {
					return err
				}
				return attachFails(b, b.cgroup, pid, syscall.ESRCH)
			},
		},
		{
			Name: "the files of a removed group are gone",
			Check: func(b *Bench) error {
				if err := b.RemoveGroup(b.cgroup); err != nil {
					return err
				}
				return b.mustRefuse(b.cgroup, "pids.max", []string{"5"}, syscall.ENOENT, syscall.ENODEV)
			},
		},
		{
			Name: "a group with tasks cannot give memory to children", Version: 2,
			Check: func(b *Bench) error {
				if _, err := b.task(b.cgroup, 0); err != nil {
					return err
				}
				return b.mustRefuse(b.cgroup, "cgroup.subtree_control", []string{"+memory"}, syscall.EBUSY)
			},
		},
		{
			Name: "no task enters a group that gives memory to children", Version: 2,
			Check: func(b *Bench) error {
				if _, err := b.child("child"); err != nil { // enables the controllers
					return err
				}
				pid, err := b.task("", 0)
				if err != nil {
					return err
				}
				return attachFails(b, b.cgroup, pid, syscall.EBUSY)
			},
		},
		{
			Name: "a controller that is off takes its files away", Version: 2,
			Check: func(b *Bench) error {
				child, err := b.child("child")
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.set(child, "pids.max", "5") },
					func() error { return b.set(b.cgroup, "cgroup.subtree_control", "-pids") },
					func() error { return b.mustRefuse(child, "pids.max", []string{"5"}, syscall.ENOENT) },
				)
			},
		},
		{
			Name: "a controller comes from the parent", Version: 2,
			Check: func(b *Bench) error {
				child, err := b.child("child")
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.set(b.cgroup, "cgroup.subtree_control", "-pids") },
					func() error { return b.mustRefuse(child, "cgroup.subtree_control", []string{"+pids"}, syscall.ENOENT) },
				)
			},
		},
		{
			Name: "a controller that a child passes on cannot be taken", Version: 2,
			Check: func(b *Bench) error {
				if _, err := b.child("child"); err != nil {
					return err
				}
				if _, err := b.child("child/grandchild"); err != nil {
					return err
				}
				return b.mustRefuse(b.cgroup, "cgroup.subtree_control", []string{"-pids"}, syscall.EBUSY)
			},
		},
	}
}
