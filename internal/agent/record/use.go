package record

import (
	"maps"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// EqualButUse reports whether two workloads are equal in all fields except
// Usage.
func EqualButUse(a, b *node.Workload) bool {
	return a.ID == b.ID && a.Class == b.Class && a.Rule == b.Rule && a.Pod == b.Pod && a.Owner == b.Owner && a.Container == b.Container &&
		a.Cgroup == b.Cgroup && a.ContentionRoot == b.ContentionRoot && a.IdleCgroup == b.IdleCgroup && a.CPULimit == b.CPULimit && a.MemoryLimit == b.MemoryLimit && a.StartLimit == b.StartLimit &&
		a.CPUManagedExternally == b.CPUManagedExternally && a.MemoryManagedExternally == b.MemoryManagedExternally &&
		a.CPURequest == b.CPURequest && a.MemoryRequest == b.MemoryRequest && a.Weight == b.Weight && a.Priority == b.Priority &&
		a.EvictionPriority == b.EvictionPriority && a.SubPriority == b.SubPriority && a.DefaultPriority == b.DefaultPriority &&
		a.Unlabelled == b.Unlabelled && a.Daemon == b.Daemon && a.Mid == b.Mid && a.Starting == b.Starting && a.Passing == b.Passing && a.Objective == b.Objective &&
		a.Grace == b.Grace && a.Ending == b.Ending && a.EvictionExempt == b.EvictionExempt && slices.Equal(a.Containers, b.Containers) && a.Overrides.Equal(b.Overrides)
}

// sameUse reports whether two workloads have the same resource usage. It runs
// for each workload in each tick. It compares field by field, because
// reflection would take a tenth of the time of recording.
func sameUse(a, b *node.Usage) bool {
	return a.CPU == b.CPU && a.Throttled == b.Throttled && a.Periods == b.Periods && a.ThrottledPeriods == b.ThrottledPeriods &&
		a.Threads == b.Threads && a.Runnable == b.Runnable &&
		a.Steal == b.Steal && a.Delay.Sum == b.Delay.Sum && a.Delay.Timeslices == b.Delay.Timeslices &&
		a.Memory == b.Memory && a.WorkingSet == b.WorkingSet && a.Refaults == b.Refaults && a.Free == b.Free && a.Reclaim == b.Reclaim &&
		a.Read == b.Read && a.Written == b.Written && a.Pressure == b.Pressure && a.SlowAt.Equal(b.SlowAt) &&
		slices.Equal(a.Delay.Counts, b.Delay.Counts) && maps.Equal(a.PerCPU, b.PerCPU) && a.Requests.Equal(b.Requests)
}
