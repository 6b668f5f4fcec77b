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

// TestTheOnlyNodeCanBeDrained checks the disruption budget of the manager.
// There must be one only if an evicted replica can start on another node.
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
		c, err := loader.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		all, err := util.ToRenderValues(c, nil, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, common.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.RenderWithClientProvider(c, all, cluster)
		if err != nil {
			t.Fatal(err)
		}
		has := slices.ContainsFunc(documentsOf(t, files), func(d document) bool { return d.str("kind") == "PodDisruptionBudget" })
		if has != budget {
			t.Errorf("%d nodes: a disruption budget is made: %v, want %v", nodes, has, budget)
		}
	}
}
