package podpages

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
)

// smallNode has two CPUs, and the pod own, whose scheduler chose CPU 1.
const smallNode = `
nodes:
- metadata: {name: node-9, annotations: {node.koordinator.sh/reservation: '{"reservedCPUs":"RESERVED"}'}}
  status: {capacity: {cpu: "2", memory: 4Gi, pods: "10"}, allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
reports:
- metadata: {name: node-9}
  status:
    reported: "2026-03-01T11:59:58.000000Z"
    cpus:
      caches: [{socket: 0, numa: 0, l3: 0, cpus: "0-1"}]
      reserved: "RESERVED"
      keep: 1
      pods: [{uid: uid-own, pod: default/own, why: "requests 1 CPU of its own, has none and is treated as LS: none of 1 open ones can be given, because 1 must stay open"}, {uid: uid-ended, pod: default/ended, why: "requests 1 CPU"}, {uid: uid-gone, pod: default/gone, why: "requests 1 CPU"}]
pods:
- metadata: {name: own, namespace: default, uid: uid-own, labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"1"}'}}
  spec: {nodeName: node-9, containers: [{name: c, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]}
  status: {phase: Running}
- metadata: {name: ended, namespace: default, uid: uid-ended, labels: {koordinator.sh/qosClass: LSR}}
  spec: {nodeName: node-9, containers: [{name: c, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]}
  status: {phase: Succeeded}
`

// small returns a cluster of smallNode with reserved CPUs.
func small(t *testing.T, reserved string, change func(*v1alpha1.CPUs)) *Cluster {
	t.Helper()
	return clusterOf(t, strings.ReplaceAll(smallNode, "RESERVED", reserved), change)
}

// clusterOf returns a cluster of one node that is a text like smallNode.
func clusterOf(t *testing.T, text string, change func(*v1alpha1.CPUs)) *Cluster {
	t.Helper()
	var all struct {
		Nodes   []corev1.Node         `json:"nodes"`
		Reports []v1alpha1.NodeReport `json:"reports"`
		Pods    []corev1.Pod          `json:"pods"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(all.Reports[0].Status.CPUs)
	}
	return New(nodepages.Nodes(all.Nodes, all.Reports), all.Pods, noon)
}

// TestARefusedPodIsShownWithoutCPUs reserves one CPU of a node, and then all.
// The node gives its pod none, so the other CPU is open.
func TestARefusedPodIsShownWithoutCPUs(t *testing.T) {
	seats := strings.NewReplacer("requests: {cpu: 2}", "requests: {cpu: 500m}", "cpu: 2", "cpu: 1").Replace(ownPod)
	again := "kind: Pod\nmetadata: {name: own, namespace: default, labels: {koordinator.sh/qosClass: LSR}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]}\n"
	const none = "- exclusive default/own it requests 1 CPU of its own, has none and is treated as LS: none of 1 open ones can be given, because 1 must stay open"
	for name, x := range map[string]struct {
		reserved  string
		change    func(*v1alpha1.CPUs)
		has, lack []string // of the map
		seats     string   // of fit for a pod with seats
		again     string   // of fit for the pod itself
	}{
		"one CPU is reserved": {
			"0", nil, []string{"node-9: 2 CPUs, 1 open;", "L3 0 0-1 # . 1 of 2 open", none, "At least 1 CPU must stay open"}, []string{"not reported", "ended", "gone", "uid-"},
			"1 of 1 pod would find a place now.", "\ndefault/own runs on node-9 already: what it requests counts as taken, and the answer is for one more pod\n",
		},
		"all CPUs are reserved": {
			"0-1", nil, []string{"node-9: 2 CPUs, 0 open;", "L3 0 0-1 # # 0 of 2 open", none}, []string{"A own", "not reported", "At least"},
			"all 2 are reserved", "what it requests counts as taken",
		},
		"the node has not seen the pod": {
			"0", func(c *v1alpha1.CPUs) { c.Pods = nil }, []string{"node-9: 2 CPUs, 0 open;", "# A 0 of 2 open", "A exclusive default/own 1 CPU: 1; not reported by the node yet"},
			[]string{"gave it none"}, "no room for seats: too few CPUs are open", "its CPU 1 counts as taken",
		},
		"the node has given it a CPU again": {
			"", func(c *v1alpha1.CPUs) {
				c.Pods = []v1alpha1.PodCPUs{{UID: "uid-own", Policy: "exclusive", CPUs: "0", By: "node"}}
			}, []string{"L3 0 0-1 A . 1 of 2 open"}, []string{"gave it none"},
			"1 of 1 pod would find a place now.", "its CPU 0 counts as taken",
		},
	} {
		m, err := small(t, x.reserved, x.change).Map("node-9")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(m.Text()), " ")
		for _, want := range x.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: want %q in\n%s", name, want, m.Text())
			}
		}
		for _, not := range x.lack {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in\n%s", name, not, m.Text())
			}
		}
		if got, _ := fit(small(t, x.reserved, x.change), manifests(t, seats).Wanted, Webhook{}); !strings.Contains(got, x.seats) {
			t.Errorf("%s: want %q in\n%s", name, x.seats, got)
		}
		if got, _ := fit(small(t, x.reserved, x.change), manifests(t, again).Wanted, Webhook{}); !strings.Contains(got, x.again) {
			t.Errorf("%s: want %q in\n%s", name, x.again, got)
		}
	}
	drawn, err := small(t, "0", nil).Map("node-9")
	if err != nil {
		t.Fatal(err)
	}
	page := drawn.Page()
	if page.Open != 1 || len(page.Owners) != 0 {
		t.Errorf("%+v", page)
	}
	data, err := json.Marshal(page.Refused)
	if want := `[{"pod":"default/own","uid":"uid-own","policy":"exclusive","why":"` + strings.TrimPrefix(none, "- exclusive default/own it ") + `"}]`; string(data) != want {
		t.Errorf("%s: %v; want %s", data, err, want)
	}
}
