package conformance

import "syscall"

func weightFacts() []Fact {
	idle := func(b *Bench, text string) error { return b.set(b.cgroup, "cpu.idle", text) }
	return []Fact{
		{
			Name: "the weight of an idle group cannot be written", Needs: "cpu.idle",
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return idle(b, "1") },
					func() error {
						return b.mustRefuse(b.cgroup, b.pick("cpu.shares", "cpu.weight"), []string{"50"}, syscall.EINVAL)
					},
				)
			},
		},
		{
			Name: "clearing idle resets the weight", Needs: "cpu.idle",
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.set(b.cgroup, b.pick("cpu.shares", "cpu.weight"), "333") },
					func() error { return idle(b, "1") },
					func() error { return idle(b, "0") },
					func() error { return b.mustShow(b.cgroup, b.pick("cpu.shares", "cpu.weight"), b.pick("1024", "100")) },
				)
			},
		},
		{
			Name: "an idle group shows the weight of idle", Needs: "cpu.idle",
			Check: func(b *Bench) error {
				if err := idle(b, "1"); err != nil {
					return err
				}
				if b.kernel.CgroupVersion == 1 {
					return b.mustShow(b.cgroup, "cpu.shares", "3")
				}
				// The weight 3/1024 is rounded to 0. Newer kernels raise it to 1.
				if b.mustShow(b.cgroup, "cpu.weight", "0") == nil {
					return nil
				}
				return b.mustShow(b.cgroup, "cpu.weight", "1")
			},
		},
		{
			Name: "idle is 0 or 1", Needs: "cpu.idle",
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "cpu.idle", []string{"2", "-1"}, syscall.EINVAL)
			},
		},
		{
			Name: "shares are clamped to 2 and 262144", Version: 1,
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.mustBecome(b.cgroup, "cpu.shares", "0", "2") },
					func() error { return b.mustBecome(b.cgroup, "cpu.shares", "1", "2") },
					func() error { return b.mustBecome(b.cgroup, "cpu.shares", "262145", "262144") },
				)
			},
		},
		{
			Name: "a weight outside 1 to 10000 is refused", Version: 2,
			Check: func(b *Bench) error {
				return b.mustRefuse(b.cgroup, "cpu.weight", []string{"0", "10001"}, syscall.ERANGE)
			},
		},
		{
			Name: "a text that is not a number is refused",
			Check: func(b *Bench) error {
				file := b.pick("cpu.shares", "cpu.weight")
				return firstOf(
					func() error { return b.mustRefuse(b.cgroup, file, []string{"-5", "much"}, syscall.EINVAL) },
					func() error { return b.mustRefuse(b.cgroup, "pids.max", []string{"many"}, syscall.EINVAL) },
				)
			},
		},
	}
}

// quota returns the files and texts that write a quota and a period.
func (b *Bench) quota(quota, period string) []string {
	if b.kernel.CgroupVersion == 1 {
		return []string{"cpu.cfs_period_us", period, "cpu.cfs_quota_us", quota}
	}
	if quota == "-1" {
		quota = "max"
	}
	return []string{"cpu.max", quota + " " + period}
}

func maxFacts() []Fact {
	quotaFile := func(b *Bench) string { return b.pick("cpu.cfs_quota_us", "cpu.max") }
	burstFile := func(b *Bench) string { return b.pick("cpu.cfs_burst_us", "cpu.max.burst") }
	return []Fact{
		{
			Name: "a quota below 1 ms is refused",
			Check: func(b *Bench) error {
				return firstOf(
					func() error {
						return b.mustRefuse(b.cgroup, quotaFile(b), []string{b.pick("999", "999 100000"), b.pick("0", "0 100000")}, syscall.EINVAL)
					},
					func() error { return b.set(b.cgroup, b.quota("1000", "100000")...) },
				)
			},
		},
		{
			Name: "a period outside 1 ms to 1 s is refused",
			Check: func(b *Bench) error {
				file := b.pick("cpu.cfs_period_us", "cpu.max")
				return firstOf(
					func() error {
						return b.mustRefuse(b.cgroup, file, []string{b.pick("999", "max 999"), b.pick("1000001", "max 1000001")}, syscall.EINVAL)
					},
					func() error { return b.set(b.cgroup, b.quota("-1", "1000000")...) },
					func() error { return b.set(b.cgroup, b.quota("-1", "1000")...) },
				)
			},
		},
		{
			Name: "a burst above the quota is refused", Needs: "cpu.max.burst",
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.set(b.cgroup, b.quota("50000", "100000")...) },
					func() error { return b.mustRefuse(b.cgroup, burstFile(b), []string{"50001"}, syscall.EINVAL) },
					func() error { return b.mustBecome(b.cgroup, burstFile(b), "50000", "50000") },
				)
			},
		},
		{
			Name: "a quota below the burst is refused", Needs: "cpu.max.burst",
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.set(b.cgroup, b.quota("50000", "100000")...) },
					func() error { return b.set(b.cgroup, burstFile(b), "50000") },
					func() error {
						return b.mustRefuse(b.cgroup, quotaFile(b), []string{b.pick("40000", "40000 100000")}, syscall.EINVAL)
					},
				)
			},
		},
		{
			Name: "a negative quota is no quota", Version: 1,
			Check: func(b *Bench) error { return b.mustBecome(b.cgroup, "cpu.cfs_quota_us", "-7", "-1") },
		},
		{
			Name: "a quota without a period keeps the period", Version: 2,
			Check: func(b *Bench) error {
				return firstOf(
					func() error { return b.set(b.cgroup, "cpu.max", "50000 200000") },
					func() error { return b.mustBecome(b.cgroup, "cpu.max", "60000", "60000 200000") },
					func() error { return b.mustBecome(b.cgroup, "cpu.max", "max", "max 200000") },
				)
			},
		},
		{
			Name: "a child's quota above its parent's is refused", Version: 1,
			Check: func(b *Bench) error {
				return b.quotaOver(func(child func() error) error {
					return firstOf(
						func() error { return b.set(b.cgroup, "cpu.cfs_quota_us", "50000") },
						child,
						func() error {
							return b.mustRefuse(b.cgroup.Join("child"), "cpu.cfs_quota_us", []string{"60000"}, syscall.EINVAL)
						},
						// The kernel compares quotas by their ratio to the period.
						func() error {
							return b.set(b.cgroup.Join("child"), "cpu.cfs_period_us", "200000", "cpu.cfs_quota_us", "100000")
						},
					)
				})
			},
		},
		{
			Name: "a parent's quota below its child's is refused", Version: 1,
			Check: func(b *Bench) error {
				return b.quotaOver(func(child func() error) error {
					return firstOf(
						child,
						func() error { return b.set(b.cgroup.Join("child"), "cpu.cfs_quota_us", "50000") },
						func() error { return b.mustRefuse(b.cgroup, "cpu.cfs_quota_us", []string{"40000"}, syscall.EINVAL) },
					)
				})
			},
		},
		{
			Name: "a child's quota may exceed its parent's", Version: 2,
			Check: func(b *Bench) error {
				return b.quotaOver(func(child func() error) error {
					return firstOf(
						func() error { return b.set(b.cgroup, "cpu.max", "50000 100000") },
						child,
						func() error { return b.mustBecome(b.cgroup.Join("child"), "cpu.max", "60000 100000", "60000 100000") },
						func() error { return b.mustBecome(b.cgroup, "cpu.max", "20000 100000", "20000 100000") },
					)
				})
			},
		},
		{
			Name: "the root group has no weight, idle or limit",
			Check: func(b *Bench) error {
				if b.kernel.CgroupVersion == 1 { // the files exist, but refuse every write
					return firstOf(
						func() error { return b.mustRefuse("", "cpu.shares", []string{"500"}, syscall.EINVAL) },
						func() error { return b.mustRefuse("", "cpu.cfs_quota_us", []string{"100000"}, syscall.EINVAL) },
						func() error {
							return b.mustRefuse("", "memory.limit_in_bytes", []string{"100000000000"}, syscall.EINVAL)
						},
						func() error { return b.mustRefuse("", "pids.max", []string{"max"}, syscall.ENOENT) },
					)
				}
				return firstOf(
					func() error { return b.mustRefuse("", "cpu.weight", []string{"100"}, syscall.ENOENT) },
					func() error { return b.mustRefuse("", "cpu.max", []string{"max"}, syscall.ENOENT) },
					func() error { return b.mustRefuse("", "memory.max", []string{"max"}, syscall.ENOENT) },
					func() error { return b.mustRefuse("", "pids.max", []string{"max"}, syscall.ENOENT) },
				)
			},
		},
	}
}

func (b *Bench) quotaOver(check func(child func() error) error) error {
	return check(func() error {
		_, err := b.child("child")
		return err
	})
}
