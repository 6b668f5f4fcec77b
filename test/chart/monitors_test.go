package chart

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEachProgramHasAMonitor renders the PodMonitors and the ServiceMonitors. Each
// must select a port that the pods of its program have, and give the job the name
// that the alerts know.
func TestEachProgramHasAMonitor(t *testing.T) {
	for _, kind := range []struct{ section, kind, endpoints string }{
		{"podMonitor", "PodMonitor", "podMetricsEndpoints"}, {"serviceMonitor", "ServiceMonitor", "endpoints"},
	} {
		all := mustRender(t, withScheduler(map[string]any{kind.section: map[string]any{"enabled": true, "interval": "45s", "labels": map[string]any{"release": "prometheus"}}}))
		for _, p := range programs {
			m := all[kind.kind+" "+p.name]
			endpoints, _ := m.value("spec", kind.endpoints).([]any)
			if len(endpoints) != 1 || m.str("metadata", "labels", "release") != "prometheus" || m.str("spec", "jobLabel") != "app.kubernetes.io/name" {
				t.Fatalf("%s of %s:\n%s", kind.kind, p.name, m.text)
			}
			e := document{object: endpoints[0].(map[string]any)}
			if e.str("interval") != "45s" || e.value("honorLabels") != true {
				t.Errorf("%s of %s: %v", kind.kind, p.name, e.object)
			}
			selector, _ := m.value("spec", "selector", "matchLabels").(map[string]any)
			labels, _ := all[p.workload].value("spec", "template", "metadata", "labels").(map[string]any)
			port := e.str("port")
			if kind.section == "serviceMonitor" {
				s := all["Service "+p.name+"-metrics"]
				if target := portOf(s, port); target["targetPort"] != port || s.value("spec", "clusterIP") != "None" {
					t.Errorf("the Service of %s has the ports %v", p.name, s.value("spec", "ports"))
				}
				of, _ := s.value("spec", "selector").(map[string]any)
				selects(t, p.name+": the Service", of, labels)
				labels, _ = s.value("metadata", "labels").(map[string]any)
				for key, other := range all {
					if others, _ := other.value("metadata", "labels").(map[string]any); strings.HasPrefix(key, "Service ") && other.key() != s.key() && subset(selector, others) {
						t.Errorf("the ServiceMonitor of %s selects %s, too", p.name, key)
					}
				}
			}
			selects(t, p.name+": the "+kind.kind, selector, labels)
			if labels["app.kubernetes.io/name"] != p.name {
				t.Errorf("the job of %s is named %v", p.name, labels["app.kubernetes.io/name"])
			}
			has := false
			ports, _ := containers(all[p.workload])[0].value("ports").([]any)
			for _, of := range ports {
				has = has || of.(map[string]any)["name"] == port
			}
			if !has {
				t.Errorf("%s has no port %s", p.name, port)
			}
			if secret := e.str("authorization", "credentials", "name"); (p.section == "scheduler") != (e.str("scheme") == "https" && all["Secret "+secret].str("type") == "kubernetes.io/service-account-token") {
				t.Errorf("%s of %s reads by %v", kind.kind, p.name, e.object)
			}
		}
		others := mustRender(t, map[string]any{kind.section: map[string]any{"enabled": true}})
		if _, is := others[kind.kind+" tenon-scheduler"]; is {
			t.Errorf("a %s for a scheduler that is not enabled", kind.kind)
		}
	}
	for key := range mustRender(t, withScheduler(map[string]any{})) {
		if strings.Contains(key, "Monitor ") || strings.HasSuffix(key, "-metrics") {
			t.Errorf("%s is rendered by default", key)
		}
	}
	on := map[string]any{"enabled": true}
	if _, err := render(t, map[string]any{"podMonitor": on, "serviceMonitor": on}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("both kinds of monitors: %v", err)
	}
}

func portOf(service document, name string) map[string]any {
	ports, _ := service.value("spec", "ports").([]any)
	for _, p := range ports {
		if port := p.(map[string]any); port["name"] == name {
			return port
		}
	}
	return nil
}

func selects(t *testing.T, name string, selector, labels map[string]any) {
	t.Helper()
	if len(selector) < 2 || !subset(selector, labels) {
		t.Errorf("%s selects %v, and the labels are %v", name, selector, labels)
	}
}

// subset reports whether labels has all that selector asks for.
func subset(selector, labels map[string]any) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// TestTheDashboardOfTheChartIsThatOfTheProject compares the dashboard in the
// ConfigMap with the one that an administrator imports.
func TestTheDashboardOfTheChartIsThatOfTheProject(t *testing.T) {
	source, err := os.ReadFile("../../deploy/grafana/tenon.json")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, dir+"/dashboards/tenon.json", string(source))
	if _, is := mustRender(t, nil)["ConfigMap tenon-dashboard"]; is {
		t.Error("there is a dashboard without dashboard.enabled")
	}
	d := mustRender(t, map[string]any{"dashboard": map[string]any{"enabled": true, "annotations": map[string]any{"grafana_folder": "Tenon"}}})["ConfigMap tenon-dashboard"]
	if d.str("metadata", "labels", "grafana_dashboard") != "1" || d.str("metadata", "annotations", "grafana_folder") != "Tenon" {
		t.Errorf("the sidecar finds the ConfigMap by %v", d.value("metadata"))
	}
	var want, got any
	if err := json.Unmarshal(source, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(d.str("data", "tenon.json")), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Error("the ConfigMap has another dashboard")
	}
}

// TestAnObserverHasOnlyTheAlertsOfNodes renders the alerts. Those of the manager and the
// scheduler would say for ever that they are down.
func TestAnObserverHasOnlyTheAlertsOfNodes(t *testing.T) {
	for mode, want := range map[string]int{"manage": 2, "observe": 1} {
		rule := mustRender(t, map[string]any{"mode": mode, "prometheusRule": map[string]any{"enabled": true}})["PrometheusRule tenon"]
		groups, _ := rule.value("spec", "groups").([]any)
		if len(groups) != want || strings.Contains(rule.text, "TenonManagerDown") != (mode == "manage") || !strings.Contains(rule.text, "TenondDown") {
			t.Errorf("%s: %d groups, want %d", mode, len(groups), want)
		}
	}
}
