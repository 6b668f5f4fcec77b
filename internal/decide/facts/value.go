package facts

import (
	"maps"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// LongestGap is the longest time that a policy counts between two snapshots. If
// the agent pauses for longer, Tenon does not know what the node did.
const LongestGap = 5 * time.Second

// Original returns the value that a knob had before Tenon's first write, or nil
// if it is unknown.
func Original(k node.Knobs, knob node.Knob) node.Value {
	if v, touched := k.Before[knob]; touched {
		return v
	}
	return k.Now[knob]
}

// IsQuota reports whether v limits CPU time. It is false for "max" and for the
// zero CPUMax.
func IsQuota(v node.CPUMax) bool { return v.Period > 0 && v.Quota != node.NoQuota }

// MilliOf returns how much CPU a quota allows, in thousandths of a CPU,
// rounded.
func MilliOf(v node.CPUMax) unit.MilliCPU { return unit.MilliCPU(math.Round(v.Cores() * 1000)) }

// MemoryOf returns how much memory the end of a workload frees. This is its
// working set, because the kernel can reclaim other page cache anyway. If the
// working set is unknown, MemoryOf returns all memory including page cache.
// Such an amount cannot be compared with a working set.
func MemoryOf(w node.Workload) node.Maybe[unit.Bytes] {
	if w.Usage.WorkingSet.Known() {
		return w.Usage.WorkingSet
	}
	return w.Usage.Memory
}

// NUMAMemory returns the memory of a NUMA node. It is 0 if the node has no
// memory, and absent if the kernel shows no NUMA nodes.
func NUMAMemory(t node.Topology, n node.NUMANode) node.Maybe[unit.Bytes] {
	if len(t.Memory) == 0 {
		return node.Maybe[unit.Bytes]{}
	}
	for _, m := range t.Memory {
		if m.NUMA == n {
			return node.Some(m.Size)
		}
	}
	return node.Some(unit.Bytes(0))
}

// Newest removes the oldest entries of a map beyond the given number. It returns nil if none
// is left.
func Newest[K ~string, V any](all map[K]V, most int, at func(V) time.Time) map[K]V {
	for len(all) > most {
		delete(all, slices.MinFunc(slices.Sorted(maps.Keys(all)), func(a, b K) int { return at(all[a]).Compare(at(all[b])) }))
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
