package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/history"
)

// TestTenondMakesAnOutlookOfItsHistory gives tenond a history of two days that ended with
// the last hour, in which batch work could have had 1.5 CPUs. tenond goes on with the same
// files meanwhile.
func TestTenondMakesAnOutlookOfItsHistory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	s := plantSite(t, `apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 500ms
history: {directory: `+dir+`}
rules:
- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
`)
	minutes, err := history.Open(dir, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	const count = 2 * 24 * 60
	end := time.Now().Unix() / 60 / 60 * 60
	for i := end - count; i < end; i++ {
		m := history.Minute{At: i}
		row := history.Row{Values: make([]int64, len(history.Columns[history.Node]))}
		for c := range row.Values {
			row.Values[c] = history.Absent
		}
		row.Values[history.Column(history.Node, "room_cpu_mcpu")] = 1500
		m.Rows[history.Node] = []history.Row{row}
		if err := minutes.Append(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := minutes.Close(); err != nil {
		t.Fatal(err)
	}
	metrics := metricsShown(s.listenFor(t))
	d := s.tenond()
	eventually(t, "tenond shows what its history says", func() bool {
		return metrics.have(`tenon_outlook_cpu_cores{quantile="0.05"} 1.5`) && metrics.have("tenon_outlook_mean_cpu_cores 1.5")
	})
	if metrics.have("tenon_outlook_mean_memory_bytes") {
		t.Error("memory that nobody measured is known")
	}
	d.stop()
	s.restore()
}
