package podpages

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// TestANodeWithoutItsAgentHasNoOwners takes the agent away from a node on which
// pods had CPUs. Its last report has no CPUs.
func TestANodeWithoutItsAgentHasNoOwners(t *testing.T) {
	const why = "tenond was removed from the node"
	c := scene(t)
	var nodes []nodepages.Node
	for _, n := range c.nodes {
		if n.Name == "node-1" {
			n.Report.Status = v1alpha1.NodeReportStatus{Reported: n.Report.Status.Reported, Conditions: []metav1.Condition{{Type: v1alpha1.AgentRuns, Status: metav1.ConditionFalse}}}
		}
		nodes = append(nodes, n.Node)
	}
	c = New(nodes, c.pods, noon)
	if page, _ := c.ExplainPod("shop", "db-0", schedulers.Seen{}); page.State != PodUnreported || !strings.HasSuffix(page.Text(), "\nIt is on node-1: "+why+", so it has no CPUs of its own there.\n") {
		t.Error(page.Text())
	}
	if page, _ := c.ExplainPod("shop", "db-2", schedulers.Seen{}); !strings.Contains(page.Text(), why) {
		t.Error(page.Text())
	}
	if _, err := c.Map("node-1"); err == nil || err.Error() != "node node-1: "+why {
		t.Error(err)
	}
	const pod = "kind: Pod\nmetadata: {name: p, labels: {koordinator.sh/qosClass: LSR}}\nspec: {nodeName: node-1, containers: [{name: c, resources: {requests: {cpu: 2}}}]}\n"
	if text, _ := fit(c, manifests(t, pod).Wanted, Webhook{}); !strings.Contains(text, "1 node: "+why+"\n") {
		t.Error(text)
	}
}
