package nodepages

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

// BenchmarkNodes joins the nodes and the reports of a large cluster. The API server sorts
// both by name.
func BenchmarkNodes(b *testing.B) {
	const count = 5000
	nodes, reports := make([]corev1.Node, count), make([]v1alpha1.NodeReport, count)
	for i := range count {
		nodes[i].Name = fmt.Sprintf("ip-10-20-%d-%d.region.compute.internal", i/256, i%256)
		reports[i].Name = nodes[i].Name
	}
	for b.Loop() {
		if all := Nodes(nodes, reports); len(all) != count || all[count-1].Report == nil {
			b.Fatal("a node has no report")
		}
	}
}
