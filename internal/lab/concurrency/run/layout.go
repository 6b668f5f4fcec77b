package run

import (
	"math/rand/v2"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// The hardware is everything on which the division of CPUs depends.
type hardware struct {
	topology node.Topology
	tested   unit.CPUSet
	memory   unit.Bytes // 0: not known
	uneven   bool       // CPUs share cores, or there are several L3 caches
}

func hardwareOf(t node.Topology, tested unit.CPUSet, memory unit.Bytes) hardware {
	m := hardware{topology: t, tested: tested, memory: memory}
	caches := map[node.CacheID]bool{}
	for _, c := range t.CPUs {
		if tested.Has(c.ID) {
			caches[c.L3] = true
			m.uneven = m.uneven || t.Siblings(c.ID).Intersect(tested).Len() > 1
		}
	}
	m.uneven = m.uneven || len(caches) > 1
	return m
}

// A division is the division of the machine among the jobs of a cell.
type division struct {
	slots []testbed.Bounds
	// waiting is true if there may be fewer slots than jobs. Some jobs then
	// wait for a slot. Otherwise each job has a slot of its own.
	waiting bool
}

// divide divides the machine. seed and block determine all random choices.
func (c Config) divide(cell Cell, m hardware, seed uint64, block int) division {
	all := testbed.Bounds{CPUs: m.tested}
	var d division
	switch cell.Strategy {
	case Quota, Matched:
		all.Quota = cell.Limit
	case Burst:
		all.Quota = c.Burst(cell.Limit)
	case PinnedSlices, PinnedBlind:
		order := rand.New(rand.NewPCG(seed, uint64(block)))
		workers := workers(m, c.slice(cell.Limit), cell.Strategy == PinnedBlind, order)
		for i := range cell.Jobs {
			p := testbed.Bounds{CPUs: workers[i%len(workers)]}
			if c.AsPublished {
				p.Quota = cell.Limit
			}
			d.slots = append(d.slots, p)
		}
		return d
	case Static:
		d.waiting = true
		for _, w := range workers(m, ceil(cell.Limit), false, nil) {
			if len(d.slots) < cell.Jobs {
				d.slots = append(d.slots, testbed.Bounds{CPUs: w})
			}
		}
		return d
	}
	for range cell.Jobs {
		d.slots = append(d.slots, all)
	}
	return d
}

// workers divides the machine into as many sets as possible. The parameter width is the
// number of CPUs of a set. The CPUs of a set are neighbours, or random ones if blind is
// set. The first sets have no core in common, so that a few jobs get whole cores.
func workers(m hardware, width int, blind bool, order *rand.Rand) []unit.CPUSet {
	if blind {
		var cpus []unit.CPU
		for c := range m.tested.All() {
			cpus = append(cpus, c)
		}
		order.Shuffle(len(cpus), func(i, j int) { cpus[i], cpus[j] = cpus[j], cpus[i] })
		sets := make([]unit.CPUSet, m.tested.Len()/width)
		for i := range sets {
			sets[i] = unit.CPUSetOf(cpus[i*width : (i+1)*width]...)
		}
		return sets
	}
	return testbed.Slices(m.topology, m.tested, width)
}
