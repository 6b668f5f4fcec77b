package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// nodesOnly is a cluster with some nodes and no other objects.
type nodesOnly struct{ client *fake.FakeDynamicClient }

func (n nodesOnly) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	resource := strings.ToLower(kind) + "s"
	if strings.HasSuffix(kind, "s") {
		resource = strings.ToLower(kind) + "es"
	}
	return n.client.Resource(gv.WithResource(resource)), kind != "Node" && kind != "PriorityClass", err
}

// TestTheOnlyNodeCanBeDrained checks the disruption budgets of the manager and
// the scheduler. There must be budgets only if an evicted replica can start on
// another node.
func TestTheOnlyNodeCanBeDrained(t *testing.T) {
	for nodes, budget := range []bool{true, false, true, true} { // 0: helm template knows no cluster
		var objects []runtime.Object
		for i := range nodes {
			n := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": fmt.Sprintf("node-%d", i)}}}
			objects = append(objects, n)
		}
		cluster := nodesOnly{fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			{Version: "v1", Resource: "nodes"}:                                       "NodeList",
			{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}: "PriorityClassList",
		}, objects...)}
		for _, scheduler := range []bool{false, true} {
			want := []string{}
			if budget {
				want = append(want, "tenon-manager")
			}
			if budget && scheduler {
				want = append(want, "tenon-scheduler")
			}
			if got := budgets(t, cluster, set(scheduler, "scheduler", "enabled")); !slices.Equal(got, want) {
				t.Errorf("%d nodes, with a scheduler: %t: the disruption budgets are %v, want %v", nodes, scheduler, got, want)
			}
		}
	}
}

// budgets returns the names of the disruption budgets that an installation in
// the cluster makes, in order.
func budgets(t *testing.T, cluster nodesOnly, values map[string]any) []string {
	t.Helper()
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities("v1.37.0"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.RenderWithClientProvider(c, all, cluster)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, d := range documentsOf(t, files) {
		if d.str("kind") == "PodDisruptionBudget" {
			names = append(names, d.str("metadata", "name"))
		}
	}
	slices.Sort(names)
	return names
}
