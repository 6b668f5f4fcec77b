package podpages

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/schedulers"
)

// TestPagesSayThatAllCPUsAreReserved reserves all CPUs of a node, by its
// annotation or by its kubelet.
func TestPagesSayThatAllCPUsAreReserved(t *testing.T) {
	const why = "no CPU is left for pods that ask for CPUs: all 16 are reserved, by the annotation node.koordinator.sh/reservation"
	c := scene(t)
	n := c.node("node-2")
	n.Annotations = map[string]string{"node.koordinator.sh/reservation": `{"reservedCPUs": "0-15"}`}
	n.Report.Status.CPUs.Reserved = "0-15"
	c.learn(n.Node, noon)
	n.report.Reserved = setOf("0-15")
	page, _ := c.ExplainPod("shop", "db-2", schedulers.Seen{})
	m, err := c.Map("node-2")
	if err != nil {
		t.Fatal(err)
	}
	placed, _ := fit(c, manifests(t, strings.ReplaceAll(ownPod, "cpu: 2", "cpu: 3")).Wanted, Webhook{})
	for name, text := range map[string]string{"explain pod": page.Text(), "map": strings.Join(strings.Fields(m.Text()), " "), "map as data": m.Page().Fault, "fit": placed} {
		if !strings.Contains(text, why) {
			t.Errorf("%s: want %q in\n%s", name, why, text)
		}
	}
	c = scene(t)
	for _, n := range c.nodes {
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")}
		n.Status.Allocatable[corev1.ResourceCPU] = resource.Quantity{}
		n.free[corev1.ResourceCPU] = resource.Quantity{}
	}
	page, _ = c.ExplainPod("shop", "db-2", schedulers.Seen{})
	if text := page.Text(); !strings.Contains(text, ": no CPU is left for pods: the kubelet reserves all 16 (reservedSystemCPUs, systemReserved or kubeReserved)") {
		t.Error(text)
	}
}
