package host

import (
	"slices"
	"sync"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A topologyCache reads the topology again only when the set of online CPUs
// has changed: all of it takes a dozen files for each CPU.
type topologyCache struct {
	mu     sync.Mutex
	online unit.CPUSet
	known  node.Topology
}

func (c *topologyCache) read(fs proc.FS) (node.Topology, error) {
	online, err := fs.OnlineCPUs()
	if err != nil {
		return node.Topology{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if online != c.online || len(c.known.CPUs) == 0 {
		t, err := topologyOf(fs)
		if err != nil {
			return node.Topology{}, err
		}
		c.online, c.known = online, t
	}
	return node.Topology{CPUs: slices.Clone(c.known.CPUs)}, nil
}

// topologyOf numbers cores so that they are unique on the node.
func topologyOf(fs proc.FS) (node.Topology, error) {
	cpus, err := fs.Topology()
	if err != nil {
		return node.Topology{}, err
	}
	var t node.Topology
	cores := map[[2]int]node.CoreID{}
	for _, c := range cpus {
		key := [2]int{c.Socket, c.CoreID}
		if _, known := cores[key]; !known {
			cores[key] = node.CoreID(len(cores))
		}
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: c.ID, Core: cores[key], L3: node.CacheID(c.L3), NUMA: node.NUMANode(c.NUMA), Socket: node.SocketID(c.Socket),
		})
	}
	return t, nil
}
