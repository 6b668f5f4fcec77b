package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// The knobs of the policies that have no function Files of their own: suppress, burst,
// bind and isolation.
var (
	// These knobs are needed in every configuration, because rules can set
	// limits, and any work can have exclusive CPUs or a contention root.
	ownedAlways   = []node.File{node.FileCPUWeight, node.FileCPUMax, node.FileCPUs}
	ownedByClaims = []node.File{node.FileMems}
	// These knobs are always listed, because any isolation mechanism may be selected.
	// If the node lacks a mechanism, its knobs are not in the snapshot.
	ownedByMechanisms = node.FilesOf(node.CategoryMark, node.CategoryScheduler, node.CategoryThreads)
)

// Files lists the knobs that the policies may set for these workloads if the
// configuration is c. A snapshot must contain them. It also contains every
// other knob that Tenon has changed, so that Tenon can release it.
func Files(c Config, workloads []node.Workload) []node.File {
	files := slices.Clone(ownedAlways)
	if c.CPUQOS.Enable {
		files = slices.Concat(files, ownedByMechanisms, isolation.Owned)
	}
	if facts.AnyOf(workloads, hold.Demands) {
		files = append(files, ownedByClaims...)
	}
	return slices.Concat(files, c.Memory.Files(workloads), c.Reclaim.Files(), c.Cache.Files(workloads), c.IO.Files(workloads), c.Evict.Files())
}
