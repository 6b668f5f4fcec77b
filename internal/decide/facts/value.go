package facts

import (
	"math"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// LongestGap is the longest time between two snapshots that counts in full:
// after a longer pause of the agent, the node's state in between is unknown.
const LongestGap = 5 * time.Second

// Original returns the value that a knob had before Tenon's first write; nil if
// it is unknown.
func Original(k node.Knobs, knob node.Knob) node.Value {
	if v, touched := k.Before[knob]; touched {
		return v
	}
	return k.Now[knob]
}

// IsQuota reports whether v is a quota: not "max", and read from the kernel.
func IsQuota(v node.CPUMax) bool { return v.Period > 0 && v.Quota != node.NoQuota }

// MilliOf returns how many CPUs a quota allows, in thousandths, rounded.
func MilliOf(v node.CPUMax) unit.MilliCPU { return unit.MilliCPU(math.Round(v.Cores() * 1000)) }

// MemoryOf returns the memory that the end of a workload frees: its working
// set, because the kernel can reclaim page cache that was not used lately in any
// case. Where the working set is unknown it is all memory, page cache included;
// such an amount cannot be compared with a working set.
func MemoryOf(w node.Workload) node.Maybe[unit.Bytes] {
	if w.Usage.WorkingSet.Known() {
		return w.Usage.WorkingSet
	}
	return w.Usage.Memory
}

// NUMAMemory returns the memory of a NUMA node: 0 of one without, and unknown
// where the kernel shows no NUMA nodes.
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
