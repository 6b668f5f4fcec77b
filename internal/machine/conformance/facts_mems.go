package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// withMems calls check with a child of the fact's cgroup, all memory nodes that
// the child may use, and the first of these nodes.
func (b *Bench) withMems(check func(child node.CgroupPath, all, first string) error) error {
	text, err := b.ReadFile(b.cgroup, b.pick("cpuset.mems", "cpuset.mems.effective"))
	if err != nil {
		return err
	}
	set, err := unit.ParseCPUSet(text)
	if err != nil {
		return err
	}
	for n := range set.All() {
		child, err := b.child("child")
		if err != nil {
			return err
		}
		return check(child, strings.TrimSpace(text), strconv.Itoa(int(n)))
	}
	return fmt.Errorf("%s may use no memory node", b.cgroup)
}

func memsFacts() []Fact {
	return []Fact{
		{
			Name: "a parent cannot lose memory nodes that a child has", Version: 1,
			Check: func(b *Bench) error {
				return b.withMems(func(child node.CgroupPath, all, first string) error {
					return firstOf(
						func() error { return b.set(child, "cpuset.mems", first) },
						func() error { return b.mustRefuse(b.cgroup, "cpuset.mems", []string{emptyText}, syscall.EBUSY) },
						func() error { return b.mustBecome(b.cgroup, "cpuset.mems", first, first) },
						func() error { return b.mustBecome(b.cgroup, "cpuset.mems", all, all) },
					)
				})
			},
		},
		{
			Name: "no task enters a group without memory nodes", Version: 1,
			Check: func(b *Bench) error {
				pid, err := b.task("", 0)
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.set(b.cgroup, "cpuset.mems", emptyText) },
					func() error { return attachFails(b, b.cgroup, pid, syscall.ENOSPC) },
				)
			},
		},
		{
			Name: "an empty set of memory nodes means the parent's", Version: 2,
			Check: func(b *Bench) error {
				return b.withMems(func(child node.CgroupPath, all, first string) error {
					return firstOf(
						func() error { return b.mustShow(child, "cpuset.mems", "") },
						func() error { return b.mustShow(child, "cpuset.mems.effective", all) },
						func() error { return b.mustBecome(b.cgroup, "cpuset.mems", first, first) },
						func() error { return b.mustShow(child, "cpuset.mems.effective", first) },
						func() error { return b.mustBecome(child, "cpuset.mems", all, all) },
						func() error { return b.mustShow(child, "cpuset.mems.effective", first) },
						func() error { return b.mustBecome(b.cgroup, "cpuset.mems", emptyText, "") },
						func() error { return b.mustBecome(child, "cpuset.mems", emptyText, "") },
						func() error { return b.mustShow(child, "cpuset.mems.effective", all) },
					)
				})
			},
		},
	}
}
