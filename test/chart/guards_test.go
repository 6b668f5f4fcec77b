package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
)

// capabilities returns those of a cluster of a version of Kubernetes.
func capabilities(version string) *common.Capabilities {
	c := common.DefaultCapabilities.Copy()
	parsed, err := common.ParseKubeVersion(version)
	if err != nil {
		panic(err) // a fault of the test
	}
	c.KubeVersion = *parsed
	return c
}

// TestTheSchedulerNeedsItsKubernetes renders the chart for clusters of several
// versions. Without the scheduler, the chart needs no new Kubernetes.
func TestTheSchedulerNeedsItsKubernetes(t *testing.T) {
	const refusal = "scheduler.enabled: tenon-scheduler needs Kubernetes 1.37 or later, and this is "
	enabled := func(older bool) map[string]any {
		return map[string]any{"scheduler": map[string]any{"enabled": true, "allowOlderKubernetes": older}}
	}
	for version, refused := range map[string]bool{
		"v1.30.0": true, "v1.36.9": true, "v1.36.99-gke.1": true, "v1.37.0": false, "v1.37.0-rc.1": false, "v1.37.2-gke.100": false, "v1.38.1+k3s1": false, "v2.0.0": false,
	} {
		_, err := renderFor(t, dir, enabled(false), version)
		if is := err != nil && strings.Contains(err.Error(), refusal+version); is != refused || err != nil && !refused {
			t.Errorf("Kubernetes %s: %v", version, err)
		}
		for name, values := range map[string]map[string]any{"not enabled": nil, "allowed": enabled(true)} {
			if _, err := renderFor(t, dir, values, version); err != nil {
				t.Errorf("Kubernetes %s, %s: %v", version, name, err)
			}
		}
	}
}

// TestTheAlertsOfTheChartAreThoseOfTheProject compares the PrometheusRule with
// the rules for a Prometheus without operator.
func TestTheAlertsOfTheChartAreThoseOfTheProject(t *testing.T) {
	var want []any
	for _, name := range []string{"alerts.yaml", "cluster-alerts.yaml"} {
		text, err := os.ReadFile("../../deploy/prometheus/" + name)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, dir+"/alerts/"+name, string(text))
		var rules struct{ Groups []any }
		if err := yaml.Unmarshal(text, &rules); err != nil {
			t.Fatal(err)
		}
		want = append(want, rules.Groups...)
	}
	if _, is := mustRender(t, nil)["PrometheusRule tenon"]; is {
		t.Error("a PrometheusRule without prometheusRule.enabled")
	}
	rule := mustRender(t, map[string]any{"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}}})["PrometheusRule tenon"]
	got, _ := rule.value("spec", "groups").([]any)
	wanted, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	is, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) < 2 || string(is) != string(wanted) {
		t.Errorf("the PrometheusRule has other groups:\n%s", is)
	}
	if rule.str("metadata", "labels", "release") != "prometheus" {
		t.Error("the PrometheusRule lacks its label")
	}
}

// TestViewersMayReadAndNothingElse checks the roles for users of kubectl tenon.
// Neither is bound by the chart, and neither may read pods, Secrets or ConfigMaps.
func TestViewersMayReadAndNothingElse(t *testing.T) {
	all := mustRender(t, map[string]any{"scheduler": map[string]any{"enabled": true, "name": "batch"}})
	for name, want := range map[string][]string{
		"tenon-viewer": {"nodes", "nodereports", "clustercolocationprofiles", "priorityclasses", "configmaps", "leases", "validatingwebhookconfigurations"},
		"tenon-view":   {"nodereports", "clustercolocationprofiles"},
	} {
		var has []string
		rules, _ := all["ClusterRole "+name].value("rules").([]any)
		for _, r := range rules {
			rule := document{object: r.(map[string]any)}
			resources, _ := rule.value("resources").([]any)
			for _, resource := range resources {
				has = append(has, resource.(string))
			}
			verbs, _ := rule.value("verbs").([]any)
			for _, verb := range verbs {
				if verb != "get" && verb != "list" && verb != "watch" {
					t.Errorf("%s may %v", name, verb)
				}
			}
			for resource, want := range map[string][]any{"leases": {"kube-scheduler", "tenon-manager", "batch"}, "configmaps": {"tenon-rollout"}, "validatingwebhookconfigurations": {"tenon-manager"}} {
				if names, _ := rule.value("resourceNames").([]any); slices.Contains(resources, any(resource)) && !slices.Equal(names, want) {
					t.Errorf("%s may read the %s %v", name, resource, names)
				}
			}
		}
		if !slices.Equal(has, want) {
			t.Errorf("%s may read %q, want %q", name, has, want)
		}
	}
	if all["ClusterRole tenon-view"].str("metadata", "labels", "rbac.authorization.k8s.io/aggregate-to-view") != "true" {
		t.Error("tenon-view is no part of view")
	}
	for key, d := range all {
		if name := d.str("roleRef", "name"); name == "tenon-viewer" || name == "tenon-view" {
			t.Errorf("%s binds %s", key, name)
		}
	}
}
