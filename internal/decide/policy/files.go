package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// The knobs that the policies of this package own.
var (
	// Limits of rules, exclusive CPUs and contention roots matter whatever is
	// enabled.
	ownedAlways   = []node.File{node.FileCPUWeight, node.FileCPUMax, node.FileCPUs}
	ownedByClaims = []node.File{node.FileMems}
	// Any isolation mechanism may be selected. A snapshot cannot show knobs
	// of mechanisms that the node lacks.
	ownedByMechanisms = []node.File{node.FileIdentity, node.FileScheduler, node.FilePolicy, node.FileCookie, node.FileSlice}
)

// Files lists the knobs of a cgroup that the policies may want under c for such
// workloads, and that a snapshot must therefore show. A snapshot shows knobs
// that Tenon has changed in any case, so that they can be released.
func Files(c Config, workloads []node.Workload) []node.File {
	files := slices.Clone(ownedAlways)
	if c.CPUQOS.Enable {
		files = slices.Concat(files, ownedByMechanisms, isolation.Owned)
	}
	if slices.ContainsFunc(workloads, claims) {
		files = append(files, ownedByClaims...)
	}
	return slices.Concat(files, c.Memory.Files(workloads), c.Cache.Files(workloads), c.IO.Files(workloads), c.Evict.Files())
}
