package chart

import (
	"errors"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/client-go/dynamic"
)

// A silentCluster answers no template, and fails the test if one asks.
type silentCluster struct{ *testing.T }

func (s silentCluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	s.Errorf("a template asks the cluster for %s %s", apiVersion, kind)
	return nil, false, errors.New("no cluster")
}

// TestNoTemplateAsksTheCluster renders the chart with a cluster that templates may
// ask. None may, because helm template, Argo CD and others render without one: they
// must get what helm install gets.
func TestNoTemplateAsksTheCluster(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": nil, "everything": allOptions(), "nothing": noOptions()} {
		c := load(t, dir)
		all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities("v1.37.0"))
		if err != nil {
			t.Fatal(err)
		}
		with, err := engine.RenderWithClientProvider(c, all, silentCluster{t})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		without, err := renderFiles(t, dir, values)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text(documentsOf(t, with)) != text(documentsOf(t, without)) {
			t.Errorf("%s: with a cluster and without one, the chart renders different objects", name)
		}
	}
}
