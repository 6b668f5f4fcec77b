package testbed

import (
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Bounds are the CPUs on which one piece of work runs, and its CPU limit.
type Bounds struct {
	CPUs  unit.CPUSet
	Quota unit.MilliCPU // 0: none
}

// WriteQuota writes the quota of a cgroup, if there is one.
func (s *Site) WriteQuota(group node.CgroupPath, b Bounds) error {
	if b.Quota == 0 {
		return nil
	}
	period := node.DefaultPeriod
	quota := max((time.Duration(b.Quota) * period / 1000).Truncate(time.Microsecond), node.MinQuota)
	return s.Tree.WriteCPUMax(string(group), cgroup.CPUMax{Quota: quota, Period: period})
}
