package nri

import (
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/api"
)

// adjustment returns a change that gives a new container the values of want, or
// nil if the container has them already.
func adjustment(c *api.Container, want Limits) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	if !set(a, differingValues(c.GetLinux().GetResources(), want)) {
		return nil
	}
	return a
}

// appendUpdate appends an update that gives a container the values of want. If
// the container has them already, it appends nothing.
func appendUpdate(updates []*api.ContainerUpdate, c *api.Container, want Limits) []*api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	if !set(u, differingValues(c.GetLinux().GetResources(), want)) {
		return updates
	}
	u.SetContainerId(c.GetId())
	u.SetIgnoreFailure() // the container may have ended
	return append(updates, u)
}

// differingValues returns the values of want that the container does not have.
func differingValues(have *api.LinuxResources, want Limits) Limits {
	cpu, memory := have.GetCpu(), have.GetMemory()
	if sameQuota(cpu, want) {
		want.Quota, want.Period = nil, nil
	}
	if want.Memory != nil && (memory.GetLimit().GetValue() == *want.Memory || *want.Memory < 0 && memory.GetLimit().GetValue() <= 0) {
		want.Memory = nil
	}
	want.Unified = maps.Clone(want.Unified)
	maps.DeleteFunc(want.Unified, func(file, value string) bool { return have.GetUnified()[file] == value })
	return want
}

// sameQuota compares quota and period as one value. If there is no quota, the
// period does not matter.
func sameQuota(cpu *api.LinuxCPU, want Limits) bool {
	if want.Quota == nil {
		return want.Period == nil || cpu.GetPeriod().GetValue() == *want.Period
	}
	have := cpu.GetQuota().GetValue()
	if *want.Quota < 0 {
		return have <= 0
	}
	return have == *want.Quota && (want.Period == nil || cpu.GetPeriod().GetValue() == *want.Period)
}

// changedValues returns those values of want that the request asked would
// overwrite, because it sets the same files.
func changedValues(want Limits, asked *api.LinuxResources) Limits {
	cpu := asked.GetCpu()
	if cpu.GetQuota() == nil && cpu.GetPeriod() == nil {
		want.Quota, want.Period = nil, nil
	}
	if asked.GetMemory().GetLimit() == nil {
		want.Memory = nil
	}
	want.Unified = maps.Clone(want.Unified)
	maps.DeleteFunc(want.Unified, func(file, _ string) bool {
		_, asks := asked.GetUnified()[file]
		return !asks
	})
	return want
}

// A change is an adjustment or an update of a container.
type change interface {
	SetLinuxCPUQuota(int64)
	SetLinuxCPUPeriod(int64)
	SetLinuxMemoryLimit(int64)
	AddLinuxUnified(file, value string)
}

// set writes values into a change. If there are none, it returns false.
func set(c change, l Limits) bool {
	if l.Quota != nil {
		c.SetLinuxCPUQuota(*l.Quota)
	}
	if l.Period != nil {
		c.SetLinuxCPUPeriod(int64(*l.Period))
	}
	if l.Memory != nil {
		c.SetLinuxMemoryLimit(*l.Memory)
	}
	for _, file := range slices.Sorted(maps.Keys(l.Unified)) {
		c.AddLinuxUnified(file, l.Unified[file])
	}
	return l.Quota != nil || l.Period != nil || l.Memory != nil || len(l.Unified) > 0
}
