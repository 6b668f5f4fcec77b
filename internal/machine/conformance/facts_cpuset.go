package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// emptyText is the text that empties a cpuset. A write of 0 bytes would have no
// effect.
const emptyText = "\n"

// firstTwoCPUs returns the first and the second online CPU.
func (b *Bench) firstTwoCPUs() (first, second string, err error) {
	var cpus []string
	for c := range b.all.All() {
		cpus = append(cpus, strconv.Itoa(int(c)))
	}
	if len(cpus) < 2 {
		return "", "", fmt.Errorf("this node has %d CPU; the facts about CPU sets need 2", len(cpus))
	}
	return cpus[0], cpus[1], nil
}

// withChild gives the fact's cgroup two CPUs, first and second, and calls check
// with a child of this cgroup.
func (b *Bench) withChild(check func(child node.CgroupPath, first, second string) error) error {
	first, second, err := b.firstTwoCPUs()
	if err != nil {
		return err
	}
	if err := b.set(b.cgroup, "cpuset.cpus", first+","+second); err != nil {
		return err
	}
	child, err := b.child("child")
	if err != nil {
		return err
	}
	return check(child, first, second)
}

func both(first, second string) string {
	set, err := unit.ParseCPUSet(first + "," + second)
	if err != nil {
		return err.Error()
	}
	return set.String()
}

func cpusetFacts() []Fact {
	return []Fact{
		{
			Name: "a CPU that does not exist is refused",
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "cpuset.cpus", []string{strconv.Itoa(unit.MaxCPUs - 1)}, syscall.ERANGE, syscall.EINVAL)
			},
		},
		{
			Name: "a text that is not a CPU list is refused",
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "cpuset.cpus", []string{"most", "1-0"}, syscall.EINVAL)
			},
		},
		{
			Name: "a CPU list reads back in its shortest form",
			Check: func(b *Bench) error {
				first, second, err := b.firstTwoCPUs()
				if err != nil {
					return err
				}
				return b.mustBecome(b.cgroup, "cpuset.cpus", second+","+first+","+first, both(first, second))
			},
		},
		{
			Name: "a memory node that does not exist is refused",
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "cpuset.mems", []string{"63"}, syscall.EINVAL, syscall.ERANGE)
			},
		},
		{
			Name: "a child's CPUs outside its parent's are refused", Version: 1,
			Check: func(b *Bench) error {
				return b.withChild(func(child node.CgroupPath, first, second string) error {
					return firstOf(
						func() error { return b.set(child, "cpuset.cpus", first) },
						func() error { return b.set(b.cgroup, "cpuset.cpus", first) },
						func() error {
							return b.mustRefuse(child, "cpuset.cpus", []string{second, first + "," + second}, syscall.EACCES)
						},
					)
				})
			},
		},
		{
			Name: "a parent cannot lose CPUs that a child has", Version: 1,
			Check: func(b *Bench) error {
				return b.withChild(func(child node.CgroupPath, first, second string) error {
					return firstOf(
						func() error { return b.set(child, "cpuset.cpus", first) },
						func() error { return b.mustRefuse(b.cgroup, "cpuset.cpus", []string{second}, syscall.EBUSY) },
					)
				})
			},
		},
		{
			Name: "no task enters a group without CPUs", Version: 1,
			Check: func(b *Bench) error {
				pid, err := b.task("", 0)
				if err != nil {
					return err
				}
				return firstOf(
					func() error { return b.set(b.cgroup, "cpuset.cpus", emptyText) },
					func() error { return attachFails(b, b.cgroup, pid, syscall.ENOSPC) },
				)
			},
		},
		{
			Name: "a group with tasks keeps a CPU and a memory node",
			Check: func(b *Bench) error {
				return b.withMems(func(child node.CgroupPath, _, memory string) error {
					first, _, err := b.firstTwoCPUs()
					if err != nil {
						return err
					}
					if err := b.set(child, "cpuset.cpus", first, "cpuset.mems", memory); err != nil {
						return err
					}
					if _, err := b.task(child, 0); err != nil {
						return err
					}
					return firstOf(
						func() error { return b.mustKeep(child, "cpuset.cpus") },
						func() error { return b.mustKeep(child, "cpuset.mems") },
					)
				})
			},
		},
		{
			Name: "an empty CPU set means the parent's CPUs", Version: 2,
			Check: func(b *Bench) error {
				return b.withChild(func(child node.CgroupPath, first, second string) error {
					return firstOf(
						func() error { return b.mustShow(child, "cpuset.cpus", "") },
						func() error { return b.mustShow(child, "cpuset.cpus.effective", both(first, second)) },
						func() error { return b.mustBecome(child, "cpuset.cpus", first, first) },
						func() error { return b.mustBecome(child, "cpuset.cpus", emptyText, "") },
						func() error { return b.mustShow(child, "cpuset.cpus.effective", both(first, second)) },
					)
				})
			},
		},
		{
			Name: "the effective CPUs follow the parent", Version: 2,
			Check: func(b *Bench) error {
				return b.withChild(func(child node.CgroupPath, first, second string) error {
					return firstOf(
						func() error { return b.set(child, "cpuset.cpus", first+","+second) },
						func() error { return b.set(b.cgroup, "cpuset.cpus", second) },
						func() error { return b.mustShow(child, "cpuset.cpus", both(first, second)) },
						func() error { return b.mustShow(child, "cpuset.cpus.effective", second) },
					)
				})
			},
		},
		{
			Name: "a set without CPUs of the parent means the parent's CPUs", Version: 2,
			Check: func(b *Bench) error {
				return b.withChild(func(child node.CgroupPath, first, second string) error {
					return firstOf(
						func() error { return b.set(child, "cpuset.cpus", first) },
						func() error { return b.set(b.cgroup, "cpuset.cpus", second) },
						func() error { return b.mustShow(child, "cpuset.cpus.effective", second) },
					)
				})
			},
		},
	}
}

func attachFails(b *Bench, p node.CgroupPath, pid int, want error) error {
	if err := mustFail(b.Attach(p, pid), want); err != nil {
		return fmt.Errorf("attach a task to %s: %w", p, err)
	}
	return nil
}

// mustKeep checks that the kernel refuses to empty the set of a cgroup with
// tasks. Kernels from 7.3 on accept this on cgroup v2, and the cgroup then has
// the set of its parent. For these kernels, mustKeep returns errNewer.
func (b *Bench) mustKeep(child node.CgroupPath, file string) error {
	if b.kernel.CgroupVersion == 1 || b.WriteFile(child, file, emptyText) != nil {
		return b.mustRefuse(child, file, []string{emptyText}, syscall.ENOSPC)
	}
	parents, err := b.ReadFile(b.cgroup, file+".effective")
	if err != nil {
		return err
	}
	if err := b.mustShow(child, file+".effective", strings.TrimSpace(parents)); err != nil {
		return err
	}
	return fmt.Errorf("an empty %s means the set of the parent even with tasks: %w", file, errNewer)
}
