package podpages

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// partly returns the scene as a user sees it who may not read some of it.
func partly(t *testing.T, lacks Lacks) *Cluster {
	t.Helper()
	c := scene(t)
	nodes := make([]nodepages.Node, 0, len(c.nodes))
	for _, n := range c.nodes {
		switch {
		case lacks.Reports != "":
			n.Node.Report, n.Node.Unread = nil, "its report is not known: "+lacks.Reports
		case lacks.Nodes != "":
			n.Node.Node = &corev1.Node{ObjectMeta: corev1.Node{}.ObjectMeta}
			if n.Node.Report == nil {
				continue
			}
			n.Node.Name = n.Node.Report.Name
		}
		nodes = append(nodes, n.Node)
	}
	pods := c.pods
	if lacks.Nodes != "" && lacks.Reports != "" {
		nodes = nil
	}
	return NewPartly(nodes, pods, lacks, c.now)
}

// TestAnswersSayWhatCouldNotBeRead gives the user only some of the rights.
func TestAnswersSayWhatCouldNotBeRead(t *testing.T) {
	const noNodes, noReports, noPods = "you may not list nodes", "you may not list nodereports.tenon.sh", "you may not list pods of all namespaces"
	nodes, reports, pods := Lacks{Nodes: noNodes}, Lacks{Reports: noReports}, Lacks{Pods: noPods}
	none := Lacks{Nodes: noNodes, Reports: noReports, Pods: noPods}
	for name, x := range map[string]struct {
		lacks  Lacks
		pod    string
		state  PodState
		want   []string
		absent string
	}{
		"own CPUs without nodes":   {nodes, "db-0", PodHolds, []string{"It has 4 CPUs (0-1,8-9) of node-1 for itself"}, "Not looked at"},
		"own CPUs without reports": {reports, "db-0", PodUnreported, []string{"It is on node-1: its report is not known: " + noReports + "; its scheduler chose the CPUs 0-1,8-9.\n", "Not looked at: reports of nodes (" + noReports + ").\n"}, "no agent"},
		"own CPUs without both":    {none, "db-0", PodUnreported, []string{"It is on node-1: on which CPUs it runs is not known; its scheduler chose the CPUs 0-1,8-9.\n", "Not looked at: nodes (" + noNodes + ").\n"}, "does not exist"},
		"no CPUs without reports":  {reports, "report-0", PodUnreported, []string{"so it is not known on which CPUs the pod runs"}, "no agent"},
		"no CPUs without both":     {none, "report-0", PodUnreported, []string{"It is on node-4: on which CPUs it runs is not known.\n"}, "does not exist"},
		"it waits, without nodes":  {nodes, "db-2", PodWaits, []string{"It has no node, and which nodes would take it is not known.\nNot looked at: nodes ("}, "would take it now"},
		"and without reports":      {reports, "db-2", PodWaits, []string{"which nodes would take it is not known.\nNot looked at: reports of nodes ("}, "would take it now"},
		"and without pods":         {pods, "db-2", PodWaits, []string{"It has no node; at most ", "Not looked at: pods of other namespaces, with what they request (" + noPods + ").\n"}, "is not known"},
	} {
		page, found := partly(t, x.lacks).ExplainPod("shop", x.pod, schedulers.Seen{})
		if !found || page.State != x.state {
			t.Fatalf("%s: %v %+v", name, found, page)
		}
		for _, want := range x.want {
			if text := page.Text(); !strings.Contains(text, want) || strings.Contains(text, x.absent) {
				t.Errorf("%s: want %q and not %q in\n%s", name, want, x.absent, text)
			}
		}
	}
	for name, x := range map[string]struct {
		lacks Lacks
		want  []string
	}{
		"without nodes":   {nodes, []string{"not known\n\nWhether shop/p would find a place is not known: " + noNodes + "\n", "0 of 1 pod would find a place now; of 1 it is not known.\n", "Not looked at: nodes"}},
		"without reports": {reports, []string{"Whether shop/p would find a place is not known: " + noReports}},
		"without pods":    {pods, []string{"At most 1 of 1 pod would find a place now.\n", "Not looked at: pods of other namespaces"}},
	} {
		out, _ := fit(partly(t, x.lacks), manifests(t, ownPod).Wanted, Webhook{})
		for _, want := range x.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: want %q in\n%s", name, want, out)
			}
		}
	}
	if _, err := partly(t, nodes).Map("node-4"); err == nil || !strings.Contains(err.Error(), `there is no report of a node "node-4", and `+noNodes) {
		t.Error(err)
	}
}

// TestFitEndsForAnyNumberOfPods places as many pods as Kubernetes can count. The
// scene has room for some hundred of them. On a node with room for all of them,
// fit stops and says so.
func TestFitEndsForAnyNumberOfPods(t *testing.T) {
	m := manifests(t, "kind: Deployment\nmetadata: {name: d, namespace: shop}\nspec: {replicas: 2147483647, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}}")
	page := scene(t).Fit(m.Wanted, Webhook{}, nil)
	last := page.Pods[len(page.Pods)-1]
	if page.Total != math.MaxInt32 || page.Fits == 0 || last.Answer != FitWaits || last.Count != math.MaxInt32-page.Fits-maxAlike || !strings.HasSuffix(last.Pod, " to 2147483647") {
		t.Errorf("%d of %d fit, and last %+v", page.Fits, page.Total, last)
	}
	if text := page.Text(); !strings.Contains(text, " to 2147483647 would wait:\n") {
		t.Errorf("the text does not name the rest:\n%.2000s", text)
	}
	c := scene(t)
	c.nodes = c.nodes[3:]
	for _, name := range []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU} {
		q := c.nodes[0].free[name]
		q.Set(math.MaxInt32)
		c.nodes[0].free[name] = q
	}
	page = c.Fit(m.Wanted, Webhook{}, nil)
	last = page.Pods[len(page.Pods)-1]
	if page.Fits != maxPods || page.Total != math.MaxInt32 || last.Answer != FitUnchecked || last.Count != math.MaxInt32-maxPods || !strings.Contains(page.Text(), "is not known: kubectl tenon fit places at most 10000 pods\n") {
		t.Errorf("%d of %d fit, and last %+v", page.Fits, page.Total, last)
	}
}

// TestFitPlacesEachPodOnTheBestNode compares many pods that are placed together
// with the same pods placed one by one, for which every node is asked anew.
func TestFitPlacesEachPodOnTheBestNode(t *testing.T) {
	for name, pod := range map[string]string{
		"no CPUs of their own": "spec: {containers: [{name: c, resources: {requests: {cpu: 700m}}}]}",
		"own CPUs":             "metadata: {annotations: {cpuset-scheduler: 'true'}}, spec: {containers: [{name: c, resources: {limits: {cpu: 1}}}]}",
		"seats":                "metadata: {annotations: {cpuset-scheduler: 'true'}}, spec: {containers: [{name: c, resources: {requests: {cpu: 300m}, limits: {cpu: 2}}}]}",
	} {
		deployment := func(name string, replicas int) string {
			return fmt.Sprintf("kind: Deployment\nmetadata: {name: %s, namespace: shop}\nspec: {replicas: %d, template: {%s}}\n---\n", name, replicas, pod)
		}
		all := scene(t).Fit(manifests(t, deployment("d", 60)).Wanted, Webhook{}, nil)
		var single strings.Builder
		for i := range 60 {
			single.WriteString(deployment(fmt.Sprintf("d%d", i), 1))
		}
		each := scene(t).Fit(manifests(t, single.String()).Wanted, Webhook{}, nil)
		for i, got := range all.Pods {
			if want := each.Pods[i]; got.Answer != want.Answer || got.Node != want.Node || got.CPUs != want.CPUs {
				t.Fatalf("%s: pod %d: together %+v, one by one %+v", name, i, got, want)
			}
		}
		if all.Fits < 3 {
			t.Errorf("%s: only %d fit", name, all.Fits)
		}
	}
}
