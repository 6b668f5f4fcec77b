package telemetry

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestCachesAreShownByClassAsFarAsTheyAreCounted(t *testing.T) {
	m := New("test")
	m.Observe(tick.Tick{Snapshot: node.Snapshot{At: time.Unix(5, 0), Cache: map[node.Class]node.CacheUse{
		node.BE:  {Occupancy: node.Some(unit.Bytes(4096)), Traffic: node.Some(unit.Bytes(1 << 40))},
		node.LSR: {Occupancy: node.Some(unit.Bytes(0))},
	}}}, nil, time.Second)
	_, text := scrape(t, m, "/metrics")
	for _, line := range []string{
		`tenon_l3_occupancy_bytes{class="BE"} 4096`, `tenon_l3_occupancy_bytes{class="LSR"} 0`,
		"# TYPE tenon_memory_bandwidth_bytes_total counter", `tenon_memory_bandwidth_bytes_total{class="BE"} 1.099511627776e+12`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(text, `tenon_memory_bandwidth_bytes_total{class="LSR"}`) {
		t.Error("a metric exists for a value that is not counted")
	}
}
