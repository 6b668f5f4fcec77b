package scx

import (
	"errors"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// cpus returns a machine with the given number of caches, cores in each cache,
// and threads in each core. Siblings have consecutive numbers.
func cpus(caches, cores, threads int) []CPU {
	var all []CPU
	for cache := range caches {
		for core := range cores {
			for thread := range threads {
				all = append(all, CPU{ID: unit.CPU(len(all)), Core: cache*cores + core, Thread: thread, LLC: cache, Node: cache})
			}
		}
	}
	return all
}

func TestShardsAreCachesOrEqualPartsOfThem(t *testing.T) {
	for name, c := range map[string]struct {
		caches, cores, threads int
		shards, size           int
	}{
		"one core":                  {1, 1, 2, 1, 2},
		"two caches":                {2, 8, 2, 2, 16},
		"a cache that is too large": {2, 26, 2, 4, 26},
		"without siblings":          {1, 64, 1, 2, 32},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := newLayout(cpus(c.caches, c.cores, c.threads))
			if err != nil {
				t.Fatal(err)
			}
			if len(l.shards) != c.shards {
				t.Fatalf("%d shards, want %d", len(l.shards), c.shards)
			}
			for i := range l.shards {
				r := l.ranges[i]
				if int(r.Cpus) != c.size || int(r.Cores) != c.size/c.threads {
					t.Errorf("shard %d: %+v, want %d CPUs", i, r, c.size)
				}
				for n := range r.Cpus {
					id := l.cpus[r.FirstCpu+n]
					place := l.places[id]
					if int(place.Shard) != i || l.siblings[place.Core].Cpu[place.Thread] != id {
						t.Errorf("CPU %d of shard %d has place %+v", id, i, place)
					}
				}
			}
		})
	}
}

func TestTopologyThatCannotBeIsRefused(t *testing.T) {
	many := cpus(1, 1025, 1)
	for name, c := range map[string]struct {
		cpus        []CPU
		unsupported bool
	}{
		"no CPUs":        {nil, false},
		"a CPU twice":    {[]CPU{{ID: 1}, {ID: 1, Thread: 1}}, false},
		"a thread twice": {[]CPU{{ID: 1}, {ID: 2}}, false},
		"too many CPUs":  {many, true},
		"a thread more":  {[]CPU{{ID: 1, Thread: 8}}, true},
	} {
		if _, err := newLayout(c.cpus); err == nil || errors.Is(err, ErrUnsupported) != c.unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}
