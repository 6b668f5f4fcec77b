package policy

import (
	"slices"

	"tenon.sh/tenon/internal/node"
)

// Files lists the knobs of a cgroup that the policies may want to turn under
// c for such workloads, and that a snapshot must therefore show. What was
// turned before is shown in any case, so that it can be given back.
func Files(c Config, workloads []node.Workload) []node.File {
	// CPU limits of rules, the CPUs to which work is bound, and the place
	// where BE meets LS count whatever is switched on.
	files := []node.File{node.FileCPUWeight, node.FileCPUMax, node.FileCPUs}
	limited := func(w node.Workload) bool { return w.MemoryLimit.Known() }
	if len(c.Memory.Classes) > 0 || slices.ContainsFunc(workloads, limited) {
		files = append(files, node.FileMemory)
	}
	return files
}
