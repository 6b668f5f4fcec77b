package report

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Others is what other programs do on a machine before an experiment runs its own.
type Others struct {
	// Watched is how long the machine was watched. Used has the CPUs that were in use
	// meanwhile, on a machine of CPUs CPUs, and Tested those among the tested CPUs.
	Watched time.Duration `json:"watched_ns"`
	CPUs    int           `json:"cpus"`
	Used    Number        `json:"other_cpus_used"`
	Tested  Number        `json:"other_tested_cpus_used"`
	// Programs lists the programs that used most, the largest first.
	Programs []Program `json:"programs,omitempty"`
	// Steal is the share of the tested CPUs' time that the hypervisor kept, and Waited
	// the share of the time in which a task of the machine waited for a CPU.
	Steal  Number `json:"steal_ratio"`
	Waited Number `json:"psi_cpu_some_ratio"`
}

// A Program is the work of all processes with one name.
type Program struct {
	Name string  `json:"name"`
	CPUs float64 `json:"cpus_used"`
}

// programsMost is the number of programs that Largest returns.
const programsMost = 10

// Largest returns the programs that used most, the largest first.
func Largest(used map[string]float64) []Program {
	var list []Program
	for name, cpus := range used {
		if cpus > 0 {
			list = append(list, Program{name, cpus})
		}
	}
	slices.SortFunc(list, func(a, b Program) int {
		return cmp.Or(cmp.Compare(b.CPUs, a.CPUs), strings.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), programsMost)]
}
