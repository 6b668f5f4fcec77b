package nodepages

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestANodeWithoutItsAgentIsNamed shows a node whose agent was removed for good.
func TestANodeWithoutItsAgentIsNamed(t *testing.T) {
	nodes := scene(t)
	s := &nodes[1].Report.Status
	*s = v1alpha1.NodeReportStatus{Reported: s.Reported, Agent: s.Agent, Published: s.Published,
		Conditions: []metav1.Condition{{Type: v1alpha1.AgentRuns, Status: metav1.ConditionFalse, Reason: v1alpha1.AgentLeft}}}
	for _, at := range []time.Time{noon, noon.Add(time.Hour)} {
		text, healthy := diagnose(nodes, nil, nil, at)
		alike(t, text, `
2 nodes, 0 with a report
  no report: node-0 (kubectl -n tenon-system get pods -o wide)
  tenond was removed from the node: node-1 (kubectl -n tenon-system get pods -o wide)
`)
		if healthy {
			t.Error("the result is healthy")
		}
	}
	if text := Top(nodes, noon); !strings.HasSuffix(text, "  4s        no agent\n") {
		t.Error(text)
	}
	alike(t, Explain(nodes[1], noon), `
node-1, as reported 4s ago by tenond v1
  no agent runs there: tenond was removed from the node, so no pod has CPUs of its own there (kubectl -n tenon-system get pods -o wide)

The scheduler sees batch-cpu 7200m, batch-memory 8192Mi, written 30s ago: as the agent reports
`)
}
