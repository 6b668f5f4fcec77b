// Package chart tests the Helm chart with Helm's own library. It is a separate
// module, so that the products do not depend on Helm.
package chart

import (
	"bytes"
	"flag"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

const (
	dir       = "../../deploy/chart/tenon"
	release   = "tenon"
	namespace = "tenon-system"
)

var update = flag.Bool("update", false, "rewrite golden files and the chart's README.md")

// A document is one object of the rendered chart.
type document struct {
	file, text string
	object     map[string]any
}

// key names a document, such as DaemonSet tenond.
func (d document) key() string { return d.str("kind") + " " + d.str("metadata", "name") }

// value returns the value at a path of keys, or nil if there is none.
func (d document) value(keys ...string) any {
	var v any = d.object
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func (d document) str(keys ...string) string {
	s, _ := d.value(keys...).(string)
	return s
}

// render runs helm template. values replace those of the chart.
func render(t *testing.T, values map[string]any) ([]document, error) {
	t.Helper()
	return renderChart(t, dir, values)
}

func renderChart(t *testing.T, dir string, values map[string]any) ([]document, error) {
	t.Helper()
	files, err := renderFiles(t, dir, values)
	if err != nil {
		return nil, err
	}
	return documentsOf(t, files), nil
}

// renderFiles returns the rendered templates by their paths.
func renderFiles(t *testing.T, dir string, values map[string]any) (map[string]string, error) {
	t.Helper()
	return renderFor(t, dir, values, "v1.37.0")
}

// renderFor is like renderFiles, for a cluster of a version of Kubernetes.
func renderFor(t *testing.T, dir string, values map[string]any, version string) (map[string]string, error) {
	t.Helper()
	c := load(t, dir)
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities(version))
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// registry is where the tests say that the images are. The chart does not know it.
const registry = "registry.example/tenon"

// load returns a chart whose user has named the registry.
func load(t *testing.T, dir string) *v2.Chart {
	t.Helper()
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if image, is := c.Values["image"].(map[string]any); is {
		image["registry"] = registry
	}
	return c
}

// TestTheChartAsksForARegistry renders the chart as it is. No image has a name before
// its user says where the images are, in one value or for each program.
func TestTheChartAsksForARegistry(t *testing.T) {
	of := func(values map[string]any) error {
		c, err := loader.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities("v1.37.0"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Render(c, all)
		return err
	}
	for name, c := range map[string]struct {
		values  map[string]any
		refused bool
	}{
		"nothing":           {nil, true},
		"one of two images": {set("r.example/a", "agent", "image", "repository"), true},
		"each image":        {map[string]any{"agent": set("r.example/a", "image", "repository"), "manager": set("r.example/b", "image", "repository")}, false},
		"a registry":        {set("r.example", "image", "registry"), false},
	} {
		if err := of(c.values); (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "image.registry: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// notes returns the text that helm install prints.
func notes(t *testing.T, values map[string]any) string {
	t.Helper()
	files, err := renderFiles(t, dir, values)
	if err != nil {
		t.Fatal(err)
	}
	text, is := files["tenon/templates/NOTES.txt"]
	if !is {
		t.Fatal("the chart has no notes")
	}
	return text
}

func documentsOf(t *testing.T, files map[string]string) []document {
	t.Helper()
	var documents []document
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		documents = append(documents, split(t, path.Base(file), files[file])...)
	}
	return documents
}

func split(t *testing.T, file, text string) []document {
	t.Helper()
	var documents []document
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var object map[string]any
		err := decoder.Decode(&object)
		if err == io.EOF {
			return documents
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		if len(object) == 0 {
			continue
		}
		var out bytes.Buffer
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(object); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, document{file: file, text: out.String(), object: object})
	}
}

// mustRender renders the chart. On an error, it fails the test.
func mustRender(t *testing.T, values map[string]any) map[string]document {
	t.Helper()
	documents, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]document{}
	for _, d := range documents {
		if _, twice := of[d.key()]; twice && d.str("metadata", "namespace") == of[d.key()].str("metadata", "namespace") {
			t.Errorf("%s is in the chart twice", d.key())
		}
		of[d.key()] = d
	}
	return of
}

// set returns values that have one value at a path: set(false, "agent", "nri",
// "enabled").
func set(value any, keys ...string) map[string]any {
	for _, k := range slices.Backward(keys) {
		value = map[string]any{k: value}
	}
	return value.(map[string]any)
}

func TestTheChartIsCleanForHelmLint(t *testing.T) {
	for name, values := range map[string]map[string]any{"as it is": nil, "all of it": allOptions(), "as little as can be": noOptions(), "to observe": set("observe", "mode")} {
		result := lint.RunAll(dir, values, namespace)
		for _, m := range result.Messages {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// allOptions returns values that switch on every option that is off by default.
func allOptions() map[string]any {
	return map[string]any{
		"image":            map[string]any{"tag": "v1.2.3"},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"agent": additions(map[string]any{"kubelet": map[string]any{"allowNodesProxy": true, "insecureSkipTLSVerify": true}, "config": "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n",
			"history":  map[string]any{"enabled": true, "size": "64Mi"},
			"sysAdmin": false, "extraArgs": []any{"--log-level=debug"}, "affinity": map[string]any{"nodeAffinity": map[string]any{}}, "image": map[string]any{"repository": "mirror.example:5000/tenon/agent", "digest": "sha256:" + strings.Repeat("0a", 32)}}),
		"manager":        additions(map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}, "extraArgs": []any{"--log-level=debug"}, "topologySpreadConstraints": []any{zones}, "image": map[string]any{"tag": "v1.2.4"}}),
		"config":         map[string]any{"namespace": "koordinator-system"},
		"networkPolicy":  map[string]any{"metricsFrom": []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "monitoring"}}}}},
		"podMonitor":     map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		"prometheusRule": map[string]any{"enabled": true}, "openshift": map[string]any{"enabled": true}, "dashboard": map[string]any{"enabled": true, "annotations": map[string]any{"grafana_folder": "Tenon"}},
		"prometheus":   map[string]any{"url": "https://prometheus.monitoring:9091/prom", "port": 9091, "caConfigMap": "prometheus-ca", "tokenSecret": "prometheus-token", "headers": map[string]any{"X-Scope-OrgID": "team a"}},
		"scheduler":    additions(map[string]any{"enabled": true, "extraArgs": []any{"--v=2"}, "tolerations": []any{map[string]any{"operator": "Exists"}}, "topologySpreadConstraints": []any{zones}}),
		"webhooks":     map[string]any{"excludedNamespaces": []any{"istio-system"}, "translateSchedulers": map[string]any{"koord-scheduler": "default-scheduler"}},
		"commonLabels": map[string]any{"team": "platform"},
	}
}

// zones spreads pods over zones.
var zones = map[string]any{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}

// additions returns the values of a program with what its owner may add to its
// pods.
func additions(values map[string]any) map[string]any {
	maps.Copy(values, map[string]any{
		"serviceAccount": map[string]any{"annotations": map[string]any{"example.com/role": "tenon"}},
		"podAnnotations": map[string]any{"sidecar.istio.io/inject": "false"}, "podLabels": map[string]any{"cost": "platform"},
		"extraEnv":          []any{map[string]any{"name": "GOMAXPROCS", "value": "2"}},
		"extraVolumes":      []any{map[string]any{"name": "authorities", "configMap": map[string]any{"name": "authorities"}}},
		"extraVolumeMounts": []any{map[string]any{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": true}},
	})
	return values
}

// noOptions returns values that switch off every option.
func noOptions() map[string]any {
	off := func() map[string]any { return map[string]any{"enabled": false} }
	return map[string]any{
		"agent":    map[string]any{"nri": off(), "resctrl": off()},
		"webhooks": off(), "admissionPolicy": off(), "networkPolicy": off(), "config": map[string]any{"create": false},
		"manager":         map[string]any{"podDisruptionBudget": off()},
		"priorityClasses": map[string]any{"create": false}, "resourceQuota": map[string]any{"create": false}, "uninstall": map[string]any{"restoreNodes": false},
	}
}

// TestAnUpgradeWithTheValuesOfAnOlderChart renders the chart as helm upgrade
// --reuse-values does: without a section that the older chart did not have.
func TestAnUpgradeWithTheValuesOfAnOlderChart(t *testing.T) {
	documents, err := render(t, map[string]any{"resourceQuota": nil, "prometheus": nil, "agent": map[string]any{"history": nil}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(documents, func(d document) bool { return strings.Contains(d.text, "kind: ResourceQuota") }) {
		t.Error("no ResourceQuota is rendered")
	}
}

// TestManifests compares the rendered manifests with reviewed golden files.
func TestManifests(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": nil, "everything": allOptions(), "nothing": noOptions(), "observe": set("observe", "mode")} {
		documents, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, d := range documents {
			if d.key() == "ConfigMap tenon-dashboard" || d.key() == "PrometheusRule tenon" {
				continue // other tests compare them with their sources
			}
			all.WriteString("---\n# " + d.file + "\n" + d.text)
		}
		golden(t, "testdata/"+name+".yaml", all.String())
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it):\n%s", file, diff)
	}
}

func TestTheSchemaNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		says   []string
	}{
		"an unknown mode":                     {set("watch", "mode"), []string{"/mode", "observe"}},
		"a key that does not exist":           {set(1, "agent", "replicas"), []string{"/agent", "replicas"}},
		"an unknown word":                     {set("sometimes", "image", "pullPolicy"), []string{"/image/pullPolicy", "Always"}},
		"a port out of range":                 {set(99999, "webhooks", "port"), []string{"/webhooks/port", "65,535"}},
		"a text for a switch":                 {set("yes", "agent", "nri", "enabled"), []string{"/agent/nri/enabled", "boolean"}},
		"no replicas":                         {set(0, "manager", "replicas"), []string{"/manager/replicas", "minimum"}},
		"an unknown strategy":                 {set(map[string]any{}, "strategies", "colocation-confg"), []string{"/strategies", "colocation-confg"}},
		"an unknown key of a strategy":        {set(60, "strategies", "resource-threshold-config", "clusterStrategy", "cpuSupressThresholdPercent"), []string{"/strategies/resource-threshold-config/clusterStrategy", "cpuSupressThresholdPercent"}},
		"an unknown key for some nodes":       {set([]any{map[string]any{"nodeSelectr": map[string]any{}}}, "strategies", "colocation-config", "nodeConfigs"), []string{"/strategies/colocation-config/nodeConfigs/0", "nodeSelectr"}},
		"a key in the wrong place":            {set(true, "strategies", "resource-qos-config", "beClass", "cpuQOS", "enable"), []string{"/strategies/resource-qos-config", "beClass"}},
		"more than all of the CPU":            {set(170, "strategies", "resource-threshold-config", "clusterStrategy", "cpuSuppressThresholdPercent"), []string{"cpuSuppressThresholdPercent", "100"}},
		"an unknown policy":                   {set("quota", "strategies", "cpu-burst-config", "clusterStrategy", "policy"), []string{"cpu-burst-config/clusterStrategy/policy", "cfsQuotaBurstOnly"}},
		"JSON in a string":                    {set(`{"enable": true}`, "strategies", "colocation-config"), []string{"/strategies/colocation-config", "object"}},
		"a secret without its key":            {set([]any{"registry"}, "imagePullSecrets"), []string{"/imagePullSecrets/0", "object"}},
		"a digest without its algorithm":      {set(strings.Repeat("0a", 32), "manager", "image", "digest"), []string{"/manager/image/digest"}},
		"a repository without an end":         {set("registry.example/tenond:", "agent", "image", "repository"), []string{"/agent/image/repository"}},
		"no ServiceAccount":                   {set(false, "manager", "serviceAccount", "create"), []string{"/manager/serviceAccount/name"}},
		"the class of Tenon's own pods":       {set("BE", "agent", "podLabels", "koordinator.sh/qosClass"), []string{"koordinator.sh/qosClass"}},
		"a volume without a name":             {set([]any{map[string]any{"emptyDir": map[string]any{}}}, "scheduler", "extraVolumes"), []string{"/scheduler/extraVolumes/0", "name"}},
		"another name of the release":         {set("other", "fullnameOverride"), []string{"fullnameOverride"}},
		"a relative path":                     {set("run/nri", "agent", "nri", "socketDir"), []string{"/agent/nri/socketDir"}},
		"a relative path of the history":      {set("history", "agent", "history", "hostPath"), []string{"/agent/history/hostPath"}},
		"a size without a unit":               {set("32", "agent", "history", "size"), []string{"/agent/history/size"}},
		"an argument without --":              {set([]any{"v=4"}, "agent", "extraArgs"), []string{"/agent/extraArgs"}},
		"the name of the cluster's scheduler": {set("default-scheduler", "scheduler", "name"), []string{"/scheduler/name"}},
		"the name of the manager's Lease":     {set("tenon-manager", "scheduler", "name"), []string{"/scheduler/name"}},
		"a Prometheus without a scheme":       {set("prometheus:9090", "prometheus", "url"), []string{"/prometheus/url"}},
		"a password in a URL":                 {set("https://me:secret@prometheus", "prometheus", "url"), []string{"/prometheus/url"}},
		"a header with an end of line":        {set("a\nb: c", "prometheus", "headers", "X-Scope-OrgID"), []string{"/prometheus/headers"}},
		"more than all of them":               {set("130%", "agent", "maxUnavailable"), []string{"/agent/maxUnavailable"}},
	} {
		_, err := render(t, c.values)
		if err == nil {
			t.Errorf("%s is accepted", name)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message lacks %q: %v", name, word, err)
			}
		}
	}
}
