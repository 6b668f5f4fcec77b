package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/cache"
	"tenon.sh/tenon/internal/model/node"
)

// Files lists the knobs of a cgroup that the policies may want to turn under
// c for such workloads, and that a snapshot must therefore show. What was
// turned before is shown in any case, so that it can be given back.
func Files(c Config, workloads []node.Workload) []node.File {
	// CPU limits of rules, the CPUs to which work is bound, and the place
	// where BE meets LS count whatever is switched on.
	files := []node.File{node.FileCPUWeight, node.FileCPUMax, node.FileCPUs}
	if c.CPUQOS.Enable {
		// Any rung may come into use. What the node has no mechanism for, no
		// snapshot can show.
		files = append(files, node.FileIdentity, node.FileScheduler, node.FilePolicy, node.FileCookie, node.FileSlice,
			node.FileSchedulerGroup, node.FileSchedulerCap)
	}
	limited := func(w node.Workload) bool {
		return w.MemoryLimit.Known() && !w.MemoryKept || w.Asks.Memory != node.MemoryAsk{}
	}
	if slices.ContainsFunc(workloads, claims) {
		files = append(files, node.FileMems)
	}
	if len(c.Memory.Classes) > 0 || slices.ContainsFunc(workloads, limited) {
		files = append(files, node.FileMemory)
	}
	if len(c.Cache.Classes) > 0 || slices.ContainsFunc(workloads, cache.OwnsControl) {
		files = append(files, node.FileControl, node.FileL3, node.FileMB)
	}
	files = append(files, c.IO.Files(workloads)...)
	if c.Evict.On() {
		files = append(files, node.FileRun)
	}
	return files
}
