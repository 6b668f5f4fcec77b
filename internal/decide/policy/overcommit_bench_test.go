package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// BenchmarkOvercommit measures how long the batch resources take in a tick, and
// how large they are in the saved State. Half of the workloads are BE. The
// variant with peaks starts after a day of changing load.
func BenchmarkOvercommit(b *testing.B) {
	for _, workloads := range []int{100, 1000} {
		for _, peaks := range []bool{false, true} {
			b.Run(fmt.Sprintf("workloads=%d/peaks=%v", workloads, peaks), func(b *testing.B) {
				n := busyNode(b, workloads, 104, 2)
				c := colocation()
				c.Peak = overcommit.PeakPrediction{Enable: peaks, MarginPercent: 10, ColdStart: time.Hour}
				rnd := rand.New(rand.NewPCG(1, 1))
				p := spell{every: time.Minute, use: map[node.WorkloadID]unit.MilliCPU{}}
				n.memory = map[node.WorkloadID]unit.Bytes{"node": 60 * gi}
				turns := 10
				if peaks {
					turns = 24 * 60
				}
				var st overcommit.State
				for range turns {
					for _, w := range n.snap.Workloads {
						p.use[w.ID] = unit.MilliCPU(rnd.ExpFloat64() * 100)
						n.memory[w.ID] = unit.Bytes(rnd.ExpFloat64()*1000) << 20
					}
					n.pass(p)
					st = st.Observe(c, facts.NodeCPUs{}, time.Minute, n.snap)
				}
				text, err := json.Marshal(st)
				if err != nil {
					b.Fatal(err)
				}
				p.every = time.Second
				n.pass(p)
				b.ReportAllocs()
				for b.Loop() {
					st.Observe(c, facts.NodeCPUs{}, time.Second, n.snap)
				}
				b.ReportMetric(float64(len(text))/float64(workloads), "B/workload")
			})
		}
	}
}
