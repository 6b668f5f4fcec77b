package scx

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// shardCPUs is the maximum number of CPUs that share queues. With more CPUs,
// the locks of the queues would become a bottleneck.
const shardCPUs = 32

// The limits of the BPF program.
const (
	maxCPUs    = int(scheduler613ScxLimitSCX_CPUS)
	maxShards  = int(scheduler613ScxLimitSCX_SHARDS)
	maxThreads = len(scheduler613ScxSiblings{}.Cpu)
)

// A layout is the topology in the form that the BPF program needs. The CPUs of a
// last-level cache form shards of at most shardCPUs CPUs, and the CPUs of a shard
// share queues. Cores are numbered consecutively within each shard.
type layout struct {
	places   [maxCPUs]scheduler613ScxPlace
	siblings [maxCPUs]scheduler613ScxSiblings // by core
	ranges   [maxShards]scheduler613ScxRange
	cpus     [maxCPUs]uint16 // the CPUs of a shard are adjacent
	near     [maxShards * maxShards]uint8

	shards []shard
	top    int // the highest CPU number plus one
}

type shard struct {
	llc, node int
	cores     [][]CPU
}

func (s shard) size() int {
	n := 0
	for _, c := range s.cores {
		n += len(c)
	}
	return n
}

func newLayout(cpus []CPU) (*layout, error) {
	if err := checkTopology(cpus); err != nil {
		return nil, err
	}
	l := &layout{shards: split(cpus)}
	if len(l.shards) > maxShards {
		return nil, fmt.Errorf("%d groups of CPUs that share a cache: the scheduler supports %d: %w", len(l.shards), maxShards, ErrUnsupported)
	}
	core, next := 0, 0
	for i, s := range l.shards {
		l.ranges[i] = scheduler613ScxRange{FirstCore: uint32(core), Cores: uint32(len(s.cores)), FirstCpu: uint32(next), Cpus: uint32(s.size())}
		for _, threads := range s.cores {
			for _, c := range threads {
				l.places[c.ID] = scheduler613ScxPlace{Core: uint16(core), Shard: uint16(i), Thread: uint8(c.Thread), Node: uint8(c.Node), Known: 1}
				l.siblings[core].Cpu[c.Thread] = uint16(c.ID)
				l.siblings[core].Threads |= 1 << c.Thread
				l.cpus[next] = uint16(c.ID)
				l.top = max(l.top, int(c.ID)+1)
				next++
			}
			core++
		}
		copy(l.near[i*maxShards:], neighbours(l.shards, i))
	}
	return l, nil
}

// neighbours lists all shards except own. Shards of the same NUMA node come first.
func neighbours(shards []shard, own int) []uint8 {
	var others []uint8
	for step := 1; step < len(shards); step++ {
		others = append(others, uint8((own+step)%len(shards)))
	}
	far := func(i uint8) int {
		if shards[i].node != shards[own].node {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(others, func(a, b uint8) int { return cmp.Compare(far(a), far(b)) })
	return others
}

func checkTopology(cpus []CPU) error {
	if len(cpus) == 0 {
		return fmt.Errorf("no CPUs in the topology")
	}
	seen := map[unit.CPU]bool{}
	threads := map[[2]int]bool{}
	for _, c := range cpus {
		switch {
		case c.ID < 0 || int(c.ID) >= maxCPUs:
			return fmt.Errorf("CPU %d: the scheduler supports CPUs below %d: %w", c.ID, maxCPUs, ErrUnsupported)
		case c.Thread < 0 || c.Thread >= maxThreads:
			return fmt.Errorf("CPU %d is thread %d of its core: the scheduler supports %d: %w", c.ID, c.Thread, maxThreads, ErrUnsupported)
		case seen[c.ID]:
			return fmt.Errorf("CPU %d is in the topology twice", c.ID)
		case threads[[2]int{c.Core, c.Thread}]:
			return fmt.Errorf("CPU %d: core %d already has a thread %d", c.ID, c.Core, c.Thread)
		}
		seen[c.ID] = true
		threads[[2]int{c.Core, c.Thread}] = true
	}
	return nil
}

// split makes one shard of each last-level cache, or several equal shards if
// too many CPUs share the cache.
func split(cpus []CPU) []shard {
	cores := map[int][]CPU{}
	for _, c := range cpus {
		cores[c.Core] = append(cores[c.Core], c)
	}
	caches := map[[2]int][][]CPU{}
	for _, threads := range cores {
		slices.SortFunc(threads, func(a, b CPU) int { return cmp.Compare(a.Thread, b.Thread) })
		key := [2]int{threads[0].Node, threads[0].LLC}
		caches[key] = append(caches[key], threads)
	}
	var shards []shard
	for key, of := range caches {
		slices.SortFunc(of, func(a, b []CPU) int { return cmp.Compare(a[0].ID, b[0].ID) })
		whole := shard{llc: key[1], node: key[0], cores: of}
		parts := (whole.size() + shardCPUs - 1) / shardCPUs
		for i := range parts {
			from, to := i*len(of)/parts, (i+1)*len(of)/parts
			shards = append(shards, shard{llc: whole.llc, node: whole.node, cores: of[from:to]})
		}
	}
	slices.SortFunc(shards, func(a, b shard) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.llc, b.llc), cmp.Compare(a.cores[0][0].ID, b.cores[0][0].ID))
	})
	return shards
}
