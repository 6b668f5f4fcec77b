package podpages

import (
	"testing"

	"tenon.sh/tenon/internal/cluster/kube"
)

// TestABestEffortPodMayUseIdleCPUsOfOwners explains a pod without CPUs beside
// owners of each class.
func TestABestEffortPodMayUseIdleCPUsOfOwners(t *testing.T) {
	const free = "may run on the CPUs that no pod owns"
	for name, x := range map[string]struct{ class, node, owner, want string }{
		"a service":          {"LS", "node-1", "LSR", "runs on the CPUs that no pod owns"},
		"beside no owner":    {"BE", "node-3", "", free},
		"beside LSE":         {"BE", "node-2", "LSE", free},
		"beside LSR":         {"BE", "node-2", "LSR", free + ", and on own CPUs of LSR pods (unless cpuSuppressLendLSR is false) while these leave them idle"},
		"beside LS":          {"BE", "node-2", "LS", free + ", and on own CPUs of LS pods while these leave them idle"},
		"beside LS and LSR":  {"BE", "node-1", "LSR", free + ", and on own CPUs of LSR pods (unless cpuSuppressLendLSR is false) and LS pods while these leave them idle"},
		"on an unknown node": {"BE", "node-4", "", free},
	} {
		c := scene(t)
		for i := range c.pods {
			if p := &c.pods[i]; p.Name == "db-0" || p.Name == "db-1" || p.Name == "db-3" {
				p.Labels = map[string]string{kube.LabelQOSClass: x.owner}
			}
		}
		p := c.Pod("shop", "report-0")
		p.Labels, p.Spec.NodeName = map[string]string{kube.LabelQOSClass: x.class}, x.node
		page, _ := c.ExplainPod("shop", "report-0", Seen{})
		if want := "shop/report-0 asks for no CPUs of its own.\nIt is on " + x.node + " and " + x.want + ".\n"; page.Text() != want {
			t.Errorf("%s: %q, want %q", name, page.Text(), want)
		}
	}
}
