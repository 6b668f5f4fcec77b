package pick

import (
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// Domains returns the CPUs of each domain of a level, in the order of the tree.
func (m *Map) Domains(l cpus.Level) []unit.CPUSet {
	var all []unit.CPUSet
	for p := m.first[l]; p < m.first[l+1]; p++ {
		all = append(all, m.setOf(p))
	}
	return all
}

// Cores returns the CPUs of each core of a map, in the order of the tree.
func Cores(m *Map) []unit.CPUSet {
	all := make([]unit.CPUSet, len(m.cores))
	for i, c := range m.cores {
		for _, cpu := range m.cpus[c.lo:c.hi] {
			all[i].Add(cpu.ID)
		}
	}
	return all
}
