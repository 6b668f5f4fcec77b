// Package topology reads which CPUs, cores, caches and NUMA nodes this machine
// has.
package topology

import (
	"maps"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sizedFor is for how long the sizes of NUMA nodes are taken as read: memory is
// added to a running machine, too, but seldom.
const sizedFor = time.Minute

// A Cache reads the topology again only when the set of online CPUs changes,
// because that takes a dozen files for each CPU. It reads the sizes of
// the NUMA nodes again after sizedFor.
type Cache struct {
	fs proc.FS

	mu     sync.Mutex
	online unit.CPUSet
	known  node.Topology
	sized  time.Time
}

// New returns a cache that has read nothing yet.
func New(fs proc.FS) *Cache { return &Cache{fs: fs} }

// Read returns the topology at a time. The caller may change it.
func (c *Cache) Read(now time.Time) (node.Topology, error) {
	online, err := c.fs.OnlineCPUs()
	if err != nil {
		return node.Topology{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if online != c.online || len(c.known.CPUs) == 0 {
		t, err := read(c.fs)
		if err != nil {
			return node.Topology{}, err
		}
		c.online, c.known, c.sized = online, t, time.Time{}
	}
	if now.Sub(c.sized) >= sizedFor {
		memory, err := numaMemory(c.fs)
		if err != nil {
			return node.Topology{}, err
		}
		c.known.Memory, c.sized = memory, now
	}
	return node.Topology{CPUs: slices.Clone(c.known.CPUs), Memory: slices.Clone(c.known.Memory)}, nil
}

// numaMemory returns the NUMA nodes with memory, ascending.
func numaMemory(fs proc.FS) ([]node.NUMAMemory, error) {
	sizes, err := fs.NUMAMemory()
	if err != nil {
		return nil, err
	}
	var memory []node.NUMAMemory
	for _, n := range slices.Sorted(maps.Keys(sizes)) {
		memory = append(memory, node.NUMAMemory{NUMA: node.NUMANode(n), Size: sizes[n]})
	}
	return memory, nil
}

// read numbers cores so that they are unique on the node. The CPUs of a
// core are those that the kernel lists as siblings.
func read(fs proc.FS) (node.Topology, error) {
	cpus, err := fs.Topology()
	if err != nil {
		return node.Topology{}, err
	}
	var t node.Topology
	cores := map[unit.CPUSet]node.CoreID{}
	for _, c := range cpus {
		if _, known := cores[c.Siblings]; !known {
			cores[c.Siblings] = node.CoreID(len(cores))
		}
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: c.ID, Core: cores[c.Siblings], L3: node.CacheID(c.L3), NUMA: node.NUMANode(c.NUMA), Socket: node.SocketID(c.Socket),
		})
	}
	return t, nil
}
