package grow

import (
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// neighbours returns the other L3 caches in the NUMA node of home. The cache
// with the nearest number comes first. If home is larger than one L3 cache, it
// returns nil.
func neighbours(m *pick.Map, home unit.CPUSet) []unit.CPUSet {
	home = home.Intersect(m.All())
	holds := func(set unit.CPUSet) bool { return set.Contains(home) }
	caches, nodes := m.Domains(cpus.L3), m.Domains(cpus.NUMA)
	at, numa := slices.IndexFunc(caches, holds), slices.IndexFunc(nodes, holds)
	if at < 0 || home.Empty() {
		return nil
	}
	var all []unit.CPUSet
	add := func(i int) {
		if i >= 0 && i < len(caches) && nodes[numa].Contains(caches[i]) {
			all = append(all, caches[i])
		}
	}
	for d := 1; d < len(caches); d++ {
		add(at + d)
		add(at - d)
	}
	return all
}
