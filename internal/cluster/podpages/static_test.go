package podpages

import (
	"strings"
	"testing"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// TestAStaticPodIsShownOnce makes the pod of a node the mirror of a static pod.
// The node reports the static pod under the hash of its file.
func TestAStaticPodIsShownOnce(t *testing.T) {
	text := strings.NewReplacer(
		"RESERVED", "",
		"uid: uid-own, labels", "uid: mirror, ownerReferences: [{apiVersion: v1, kind: Node, name: node-9, uid: n, controller: true}], labels",
		`annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"1"}'}`, "annotations: {kubernetes.io/config.mirror: uid-own}",
	).Replace(smallNode)
	for name, x := range map[string]struct {
		change func(*v1alpha1.CPUs)
		state  PodState
		open   int
		owners []string
	}{
		"it has a CPU": {
			func(c *v1alpha1.CPUs) {
				c.Pods = []v1alpha1.PodCPUs{{UID: "uid-own", Policy: "exclusive", CPUs: "0", By: "node"}}
			}, PodHolds, 1, []string{"default/own"},
		},
		"it has none": {nil, PodRefused, 2, nil},
	} {
		c := clusterOf(t, text, x.change)
		page, _ := c.ExplainPod("default", "own", schedulers.Seen{})
		if page.State != x.state {
			t.Errorf("%s: explain says %s, want %s", name, page.State, x.state)
		}
		drawn, err := c.Map("node-9")
		if err != nil {
			t.Fatal(err)
		}
		m := drawn.Page()
		var owners []string
		for _, o := range m.Owners {
			owners = append(owners, o.Pod)
		}
		if m.Open != x.open || strings.Join(owners, " ") != strings.Join(x.owners, " ") || len(m.Refused) != 1-len(x.owners) {
			t.Errorf("%s: %d CPUs are open, %q own CPUs, and %+v have none; want %d, %q", name, m.Open, owners, m.Refused, x.open, x.owners)
		}
	}
}
