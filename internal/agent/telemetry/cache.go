package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/model/node"
)

var (
	descOccupancy = desc("tenon_l3_occupancy_bytes", "How much of the L3 caches holds data of a class; LSR stands for LSE, too.", "class")
	descTraffic   = desc("tenon_memory_bandwidth_bytes_total", "What went between the caches and memory for a class; LSR stands for LSE, too.", "class")
)

// emitCache emits the cache occupancy and the memory traffic of each class. They
// come from the resctrl control group of the class. When that group is made
// again, the traffic starts at 0.
func (e emitter) emitCache(use map[node.Class]node.CacheUse) {
	for _, class := range slices.Sorted(maps.Keys(use)) {
		e.bytes(descOccupancy, use[class].Occupancy, string(class))
		if b, known := use[class].Traffic.Value(); known {
			e <- prometheus.MustNewConstMetric(descTraffic, prometheus.CounterValue, float64(b), string(class))
		}
	}
}
