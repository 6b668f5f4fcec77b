package manager

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/cluster/webhooks"
)

// TestThePageNamesEveryStateMetricAndWebhook checks that docs/manager.md and, for
// the states of a node, docs/troubleshoot.md are complete.
func TestThePageNamesEveryStateMetricAndWebhook(t *testing.T) {
	var text string
	for _, page := range []string{"manager", "operate", "troubleshoot"} {
		read, err := os.ReadFile("../../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text += string(read)
	}
	words := []string{"tenon_manager_nodes", "tenon_manager_certificate_expiry_timestamp_seconds", "tenon_manager_certificate_renewal_timestamp_seconds", "tenon_manager_missed_pods", "tenon_manager_config_missing", "tenon_manager_scheduler_expected", "tenon_manager_prometheus_answers_total"}
	n := &nodes{metrics: newMetrics(), of: map[string]*nodeMemory{}}
	registry := prometheus.NewRegistry()
	gates := opener.NewMetrics()
	registry.MustRegister(collector{n.metrics, n})
	if err := gates.Register(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		words = append(words, f.GetName())
		for _, m := range f.Metric {
			for _, l := range m.Label {
				words = append(words, l.GetValue())
			}
		}
	}
	alerts, err := os.ReadFile("../../../deploy/prometheus/cluster-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`tenon_manager_[a-z_]+`).FindAllString(string(alerts), -1) {
		if !slices.Contains(words, name) {
			t.Errorf("an alert asks for %s, which does not exist", name)
		}
	}
	// The other direction: each state of the page's table has a series.
	_, table, _ := strings.Cut(text, "| state | the node status has |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if f := strings.Split(line, "`"); strings.HasPrefix(line, "| `") && !slices.Contains(words, f[1]) {
			t.Errorf("the metric tenon_manager_nodes has no series for the state %s", f[1])
		}
	}
	m, v := webhooks.Configurations("x", webhooks.Service{}, client.ObjectKey{})
	for _, w := range m.Webhooks {
		words = append(words, strings.TrimSuffix(w.Name, ".tenon.sh"))
	}
	for _, w := range v.Webhooks {
		words = append(words, strings.TrimSuffix(w.Name, ".tenon.sh"))
	}
	for _, w := range words {
		if !strings.Contains(text, "`"+w+"`") {
			t.Errorf("none of docs/manager.md, docs/operate.md and docs/troubleshoot.md names %s", w)
		}
	}
}
