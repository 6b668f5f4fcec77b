package podpages

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// TestABestEffortPodMayUseIdleCPUsOfOwners explains a pod without CPUs beside
// owners of each class.
func TestABestEffortPodMayUseIdleCPUsOfOwners(t *testing.T) {
	const free = "may run on the CPUs that no pod owns"
	for name, x := range map[string]struct{ class, node, owner, want string }{
		"a service":         {"LS", "node-1", "LSR", "runs on the CPUs that no pod owns"},
		"beside no owner":   {"BE", "node-3", "", free},
		"beside LSE":        {"BE", "node-2", "LSE", free},
		"beside LSR":        {"BE", "node-2", "LSR", free + ", and on own CPUs of LSR pods (unless cpuSuppressLendLSR is false) while these leave them idle"},
		"beside LS":         {"BE", "node-2", "LS", free + ", and on own CPUs of LS pods while these leave them idle"},
		"beside LS and LSR": {"BE", "node-1", "LSR", free + ", and on own CPUs of LSR pods (unless cpuSuppressLendLSR is false) and LS pods while these leave them idle"},
	} {
		c := scene(t)
		for i := range c.pods {
			if p := &c.pods[i]; p.Name == "db-0" || p.Name == "db-1" || p.Name == "db-3" {
				p.Labels = map[string]string{kube.LabelQOSClass: x.owner}
			}
		}
		p := c.Pod("shop", "report-0")
		p.Labels, p.Spec.NodeName = map[string]string{kube.LabelQOSClass: x.class}, x.node
		page, _ := c.ExplainPod("shop", "report-0", schedulers.Seen{})
		if want := "shop/report-0 asks for no CPUs of its own.\nIt is on " + x.node + " and " + x.want + ".\n"; page.Text() != want {
			t.Errorf("%s: %q, want %q", name, page.Text(), want)
		}
	}
}

// TestExplainSaysOnWhichCPUsAPodRunsOnlyIfThisIsKnown explains a pod that asks
// for no CPUs. tenond binds neither SYSTEM pods nor pods beside another binder.
func TestExplainSaysOnWhichCPUsAPodRunsOnlyIfThisIsKnown(t *testing.T) {
	const all = " and may run on all CPUs of the node, also those that pods own, because its class is SYSTEM"
	critical := int32(2000001000)
	for name, x := range map[string]struct {
		node   string
		change func(*Cluster, *corev1.Pod)
		state  PodState
		want   string
	}{
		"SYSTEM": {"node-1", func(_ *Cluster, p *corev1.Pod) { p.Labels[kube.LabelQOSClass] = "SYSTEM" }, PodShares, all},
		"left alone": {"node-1", func(_ *Cluster, p *corev1.Pod) {
			p.Labels = map[string]string{kube.LabelQOSClass: "LSR", kube.LabelIgnore: "true"}
		}, PodShares, " and may run on all CPUs of the node, also those that pods own, because Tenon leaves it alone (label tenon.sh/ignore)"},
		"critical, but not in kube-system": {"node-3", func(_ *Cluster, p *corev1.Pod) {
			p.Labels, p.Spec.Priority, p.Spec.Containers[0].Resources = nil, &critical, corev1.ResourceRequirements{}
		}, PodShares, " and runs on the CPUs that no pod owns"},
		"the kubelet binds": {"node-2", func(c *Cluster, _ *corev1.Pod) { bind(c, "node-2", "static") }, PodShares, " and may run on the CPUs that the kubelet's static CPU manager gives it"},
		"a driver binds":    {"node-2", func(c *Cluster, _ *corev1.Pod) { bind(c, "node-2", "dra") }, PodShares, " and may run on the CPUs that a DRA driver gives it"},
		"no report":         {"node-4", nil, PodUnreported, ": no agent has reported the CPUs of the node, so it is not known on which CPUs the pod runs"},
		"an old report":     {"node-1", func(c *Cluster, _ *corev1.Pod) { c.now = c.now.Add(10 * time.Minute) }, PodShares, " and runs on the CPUs that no pod owns, as its node said 4s ago"},
		"no such node":      {"node-9", nil, PodLost, "It names node node-9, which does not exist"},
	} {
		c := scene(t)
		p := c.Pod("shop", "report-0")
		p.Labels, p.Spec.NodeName = map[string]string{kube.LabelQOSClass: "LS"}, x.node
		if x.change != nil {
			x.change(c, p)
		}
		page, _ := c.ExplainPod("shop", "report-0", schedulers.Seen{})
		if page.State != x.state || !strings.HasSuffix(page.Text(), x.want+".\n") {
			t.Errorf("%s: %s, %q, want %q", name, page.State, page.Text(), x.want)
		}
	}
}

// bind makes another component bind the CPUs of a node.
func bind(c *Cluster, name, manager string) {
	n := c.node(name)
	n.report.Manager, n.Report.Status.CPUs.Manager = manager, manager
}

// TestFitSaysOnWhichCPUsAPodRuns places pods that ask for no CPUs.
func TestFitSaysOnWhichCPUsAPodRuns(t *testing.T) {
	for node, want := range map[string]string{"node-1": "all CPUs of the node, also those that pods own, because its class is SYSTEM\n", "node-4": "which CPUs is not known: no agent has reported the CPUs of the node\n"} {
		text := "kind: Pod\nmetadata: {name: p, namespace: shop, labels: {koordinator.sh/qosClass: SYSTEM}}\nspec: {nodeName: " + node + ", containers: [{name: c}]}"
		if out, fits := fit(scene(t), manifests(t, text).Wanted, Webhook{}); !fits || !strings.Contains(out, want) {
			t.Errorf("fits %v, want %q in\n%s", fits, want, out)
		}
	}
}

// TestExplainFollowsTheReportUntilTheNodeHasReadAChange changes pods whose CPUs
// are in the report of their node.
func TestExplainFollowsTheReportUntilTheNodeHasReadAChange(t *testing.T) {
	const (
		own  = "It has 4 CPUs (0-1,8-9) of node-1 for itself: 1 NUMA node, 1 L3 cache.\n"
		note = "It does not ask for these any more: the node follows within seconds, when tenond has read its pods again.\n"
	)
	for name, x := range map[string]struct {
		annotation, cpu string
		changing        bool
		want            string
	}{
		"no change":              {"true", "4", false, "shop/db-0 asks for 4 CPUs of its own.\n" + own + "Its scheduler chose them.\n"},
		"the annotation is gone": {"false", "4", true, "shop/db-0 asks for no CPUs of its own.\n" + own + note},
		"seats now":              {"true", "1500m", true, "shop/db-0 asks for 4 CPUs, shared, for a request of 1500m.\n" + own + note},
		"more than it has":       {"true", "5", false, "shop/db-0 asks for 5 CPUs of its own.\n" + own + "Its scheduler chose them.\n"},
		"fewer than it has":      {"true", "2", true, "shop/db-0 asks for 2 CPUs of its own.\n" + own + note},
	} {
		c := scene(t)
		p := c.Pod("shop", "db-0")
		p.Annotations["cpuset-scheduler"] = x.annotation
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(x.cpu)
		if x.cpu != "1500m" {
			p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse(x.cpu)
		}
		page, _ := c.ExplainPod("shop", "db-0", schedulers.Seen{})
		if page.State != PodHolds || page.Held.Changing != x.changing || !strings.HasPrefix(page.Text(), x.want) {
			t.Errorf("%s: %+v\n%s", name, page.Held, page.Text())
		}
	}
}

// TestTheReasonOfANodeIsOneSentence explains pods to which their node gave other
// CPUs than they ask for. The subject of the reason is the pod, or the CPUs, as its
// code says.
func TestTheReasonOfANodeIsOneSentence(t *testing.T) {
	c := scene(t)
	report := c.node("node-1").Report.Status.CPUs
	report.Pod("uid-old-0").Why = "has no seats and shares all open CPUs: 2 seats for a request of 500m asked, 1 open"
	cache := report.Pod("uid-cache-0")
	cache.Code, cache.Why = "MustStay", "keeps its 1 CPU and requests 2: none of 1 open ones can be given, because 1 must stay open"
	for name, want := range map[string]string{
		"old-0":   "\nOn node-1 it has no seats and shares all open CPUs: 2 seats for a request of 500m asked, 1 open.\n",
		"cache-0": "\nIt keeps its 1 CPU and requests 2: none of 1 open ones can be given, because 1 must stay open.\nThe node said so 4s ago.",
	} {
		if page, _ := c.ExplainPod("shop", name, schedulers.Seen{}); !strings.Contains(page.Text(), want) {
			t.Errorf("%s: want %q in\n%s", name, want, page.Text())
		}
	}
}
