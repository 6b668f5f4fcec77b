package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/hold"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// The knobs that the policies of this package own.
var (
	// These knobs are needed in every configuration, for the limits of rules,
	// exclusive CPUs and contention roots.
	ownedAlways   = []node.File{node.FileCPUWeight, node.FileCPUMax, node.FileCPUs}
	ownedByClaims = []node.File{node.FileMems}
	// These knobs are always listed, because any isolation mechanism may be
	// selected. A snapshot omits the knobs of mechanisms that the node lacks.
	ownedByMechanisms = []node.File{node.FileIdentity, node.FileScheduler, node.FilePolicy, node.FileCookie, node.FileSlice}
)

// Files lists the knobs that the policies may set with the configuration c and
// these workloads. A snapshot must contain them. It also contains every knob
// that Tenon has changed, so that Tenon can release it.
func Files(c Config, workloads []node.Workload) []node.File {
	files := slices.Clone(ownedAlways)
	if c.CPUQOS.Enable {
		files = slices.Concat(files, ownedByMechanisms, isolation.Owned)
	}
	if facts.AnyOf(workloads, hold.Demands) {
		files = append(files, ownedByClaims...)
	}
	return slices.Concat(files, c.Memory.Files(workloads), c.Cache.Files(workloads), c.IO.Files(workloads), c.Evict.Files())
}
