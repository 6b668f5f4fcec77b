package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// The knobs that the policies of this package own.
var (
	// CPU limits of rules, the CPUs to which work is bound, and the place
	// where BE meets LS count whatever is switched on.
	ownedAlways   = []node.File{node.FileCPUWeight, node.FileCPUMax, node.FileCPUs}
	ownedByClaims = []node.File{node.FileMems}
	// Any rung may come into use. What the node has no mechanism for, no
	// snapshot can show.
	ownedByRungs = []node.File{node.FileIdentity, node.FileScheduler, node.FilePolicy, node.FileCookie, node.FileSlice}
)

// Files lists the knobs of a cgroup that the policies may want to turn under
// c for such workloads, and that a snapshot must therefore show. What was
// turned before is shown in any case, so that it can be given back.
func Files(c Config, workloads []node.Workload) []node.File {
	files := slices.Clone(ownedAlways)
	if c.CPUQOS.Enable {
		files = slices.Concat(files, ownedByRungs, isolation.Owned)
	}
	if slices.ContainsFunc(workloads, claims) {
		files = append(files, ownedByClaims...)
	}
	return slices.Concat(files, c.Memory.Files(workloads), c.Cache.Files(workloads), c.IO.Files(workloads), c.Evict.Files())
}
