// Package topology reads which CPUs, cores, caches and NUMA nodes this machine
// has.
package topology

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sizedFor is the time for which the sizes of NUMA nodes are cached. A running
// machine rarely gets more memory.
const sizedFor = time.Minute

// A Cache holds the topology. It reads the topology again only when the set of
// online CPUs changes, because there are a dozen files for each CPU. It reads
// the sizes of the NUMA nodes again after sizedFor.
type Cache struct {
	fs proc.FS

	mu     sync.Mutex
	online unit.CPUSet
	known  node.Topology
	sized  time.Time
	// The causes of what could not be read: of the CPUs and of the NUMA nodes.
	damage, unsized error
}

// New returns a cache that has not read anything yet.
func New(fs proc.FS) *Cache { return &Cache{fs: fs} }

// Read returns the topology at the time now. The caller may change the result.
func (c *Cache) Read(now time.Time) (node.Topology, error) {
	online, err := c.fs.OnlineCPUs()
	if err != nil {
		return node.Topology{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	due := now.Sub(c.sized) >= sizedFor
	if online != c.online || len(c.known.CPUs) == 0 || due && c.damage != nil {
		t, damage, err := read(c.fs)
		if err != nil {
			return node.Topology{}, err
		}
		c.online, c.known, c.damage, due = online, t, damage, true
	}
	if due {
		c.known.Memory, c.unsized = numaMemory(c.fs)
		c.sized = now
	}
	t := c.known
	t.CPUs, t.Memory = slices.Clone(t.CPUs), slices.Clone(t.Memory)
	return t, nil
}

// Trouble says which files of the topology cannot be read, and why. It is "" if
// all can.
func (c *Cache) Trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.damage, c.unsized); err != nil {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	return ""
}

// numaMemory returns the NUMA nodes that have memory, in ascending order, as far
// as they can be read.
func numaMemory(fs proc.FS) ([]node.NUMAMemory, error) {
	sizes, err := fs.NUMAMemory()
	var memory []node.NUMAMemory
	for _, n := range slices.Sorted(maps.Keys(sizes)) {
		memory = append(memory, node.NUMAMemory{NUMA: node.NUMANode(n), Size: sizes[n]})
	}
	return memory, err
}

// read reads the topology. CPUs that the kernel lists as siblings are one core,
// and each core gets a number that is unique on the node. damage says what could
// not be read, and is not in the topology.
func read(fs proc.FS) (t node.Topology, damage, err error) {
	cpus, err := fs.Topology()
	if err != nil {
		return t, nil, err
	}
	kinds, unkind := kindsOf(fs, cpus)
	cores := map[unit.CPUSet]node.CoreID{}
	for _, c := range cpus {
		if _, known := cores[c.Siblings]; !known {
			cores[c.Siblings] = node.CoreID(len(cores))
		}
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: c.ID, Core: cores[c.Siblings], L3: node.CacheID(c.L3), NUMA: node.NUMANode(c.NUMA), Socket: node.SocketID(c.Socket),
			Kind: kinds[c.ID],
		})
	}
	isolated, err := fs.IsolatedCPUs()
	t.Isolated = isolated.Intersect(t.All())
	return t, errors.Join(unkind, err), nil
}

// sameKind is a limit in percent: two cores are of the same kind if the slower
// one has at least this percentage of the faster one's capacity. The firmware
// may prefer some cores of one kind, which then differ by a few percent. The
// kernel's scheduler uses the same margin (fits_capacity, kernel/sched/fair.c).
const sameKind = 80

// kindsOf returns the kind of each CPU's core, such as performance or efficiency
// core. It uses the kernel's lists on Intel's processors, and otherwise capacities.
func kindsOf(fs proc.FS, cpus []proc.CPU) (map[unit.CPU]node.CoreKind, error) {
	named, err := fs.CoreKinds()
	kinds := map[unit.CPU]node.CoreKind{}
	if len(named) > 1 {
		for kind, set := range named {
			for c := range set.All() {
				kinds[c] = node.CoreKind(kind)
			}
		}
		return kinds, err
	}
	fastest := slices.Clone(cpus)
	slices.SortStableFunc(fastest, func(a, b proc.CPU) int { return cmp.Compare(b.Capacity, a.Capacity) })
	kind, top := node.CoreKind(0), 0
	for i, c := range fastest {
		switch {
		case i == 0:
			top = c.Capacity
		case c.Capacity*100 < top*sameKind:
			kind, top = kind+1, c.Capacity
		}
		kinds[c.ID] = kind
	}
	return kinds, err
}
