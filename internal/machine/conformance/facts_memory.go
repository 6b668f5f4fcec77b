package conformance

import (
	"fmt"
	"syscall"

	"tenon.sh/tenon/internal/model/unit"
)

func memoryFacts() []Fact {
	return []Fact{
		{
			Name: "memory limits are rounded down to pages",
			Check: func(b *Bench) error {
				file := b.pick("memory.limit_in_bytes", "memory.max")
				page := b.kernel.PageSize
				return b.mustBecome(b.cgroup, file, (1000*page + page - 1).String(), (1000 * page).String())
			},
		},
		{
			Name: "memory protection is rounded down to pages", Version: 2,
			Check: func(b *Bench) error {
				page := b.kernel.PageSize
				for _, file := range []string{"memory.min", "memory.low", "memory.high"} {
					if err := b.mustBecome(b.cgroup, file, (1000*page + 1).String(), (1000 * page).String()); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{
			Name: "no memory limit reads as the largest whole page", Version: 1,
			Check: func(b *Bench) error {
				largest := unit.MaxBytes / b.kernel.PageSize * b.kernel.PageSize
				return b.mustBecome(b.cgroup, "memory.limit_in_bytes", "-1", largest.String())
			},
		},
		{
			Name: "a memory limit below what is in use is refused", Version: 1,
			Check: func(b *Bench) error {
				if _, err := b.task(b.cgroup, 16<<20); err != nil {
					return err
				}
				return b.mustRefuse(b.cgroup, "memory.limit_in_bytes", []string{"4194304"}, syscall.EBUSY)
			},
		},
		{
			Name: "a file of the other cgroup version does not exist",
			Check: func(b *Bench) error {
				if b.kernel.CgroupVersion == 1 {
					return firstOf(
						func() error { return b.mustRefuse(b.cgroup, "memory.min", []string{"0"}, syscall.ENOENT) },
						func() error { return b.mustRefuse(b.cgroup, "memory.low", []string{"0"}, syscall.ENOENT) },
						func() error { return b.mustRefuse(b.cgroup, "memory.high", []string{"max"}, syscall.ENOENT) },
						func() error { return b.mustRefuse(b.cgroup, "cpu.weight", []string{"100"}, syscall.ENOENT) },
					)
				}
				return firstOf(
					func() error { return b.mustRefuse(b.cgroup, "cpu.shares", []string{"1024"}, syscall.ENOENT) },
					func() error { return b.mustRefuse(b.cgroup, "memory.limit_in_bytes", []string{"-1"}, syscall.ENOENT) },
				)
			},
		},
	}
}

func pidsFacts() []Fact {
	return []Fact{
		{
			Name: "a negative or huge number of tasks is refused",
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.mustRefuse(b.cgroup, "pids.max", []string{"-1", "4194305"}, syscall.EINVAL) },
					func() error { return b.mustBecome(b.cgroup, "pids.max", "4194304", "4194304") },
				)
			},
		},
		{
			Name: "no fork beyond pids.max",
			Check: func(b *Bench) error {
				pid, err := b.task(b.cgroup, 0)
				if err != nil {
					return err
				}
				return firstOf(
					// A limit below the present number of tasks ends no process.
					func() error { return b.mustBecome(b.cgroup, "pids.max", "0", "0") },
					func() error {
						if err := mustFail(b.Fork(pid), syscall.EAGAIN); err != nil {
							return fmt.Errorf("fork in %s with pids.max 0: %w", b.cgroup, err)
						}
						return nil
					},
					func() error { return b.set(b.cgroup, "pids.max", "max") },
					func() error { return b.Fork(pid) },
				)
			},
		},
	}
}
