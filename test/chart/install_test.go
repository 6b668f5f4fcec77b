package chart

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTheValuesOfTheInstallPage renders the chart with the values of
// docs/install.md: agents on the labelled nodes only, and no trials. All else of
// the strategies must be as without these values.
func TestTheValuesOfTheInstallPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	isolation := func(values map[string]any) (strategy map[string]any, others map[string]any) {
		others, _ = mustRender(t, values)["ConfigMap slo-controller-config"].value("data").(map[string]any)
		var content struct {
			ClusterStrategy map[string]any `json:"clusterStrategy"`
		}
		key, _ := others["resource-qos-config"].(string)
		if err := json.Unmarshal([]byte(key), &content); err != nil {
			t.Fatalf("%v in\n%s", err, key)
		}
		delete(others, "resource-qos-config")
		return content.ClusterStrategy, others
	}
	got, others := isolation(values)
	if policies, _ := got["policies"].(map[string]any); len(policies) != 1 || policies["cpuIsolationTrials"] != false {
		t.Errorf("the policies are %v", policies)
	}
	delete(got, "policies")
	if want, wantOthers := isolation(map[string]any{}); asJSON(t, got) != asJSON(t, want) || asJSON(t, others) != asJSON(t, wantOthers) {
		t.Errorf("the strategies are\n%v\n%v\nand without the values\n%v\n%v", got, others, want, wantOthers)
	}
	selector := mustRender(t, values)["DaemonSet tenond"].value("spec", "template", "spec", "nodeSelector")
	if want := map[string]any{"kubernetes.io/os": "linux", "tenon": "test"}; asJSON(t, selector) != asJSON(t, want) {
		t.Errorf("the agents run on the nodes with %v, want %v", selector, want)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestStrategiesAreWrittenAsYAML renders strategies in the form of values. Each key
// of the ConfigMap must have them as JSON, and keep what they do not mention.
func TestStrategiesAreWrittenAsYAML(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(`strategies:
  colocation-config:
    cpuReclaimThresholdPercent: 70
    resourceDiffThreshold: 0.05
    nodeConfigs:
      - name: big
        nodeSelector: {matchLabels: {size: big}}
        cpuReclaimThresholdPercent: 80
  resource-threshold-config: null
  cpu-burst-config:
    clusterStrategy: {policy: auto}
`), &values); err != nil {
		t.Fatal(err)
	}
	data, _ := mustRender(t, values)["ConfigMap slo-controller-config"].value("data").(map[string]any)
	for key, want := range map[string]string{
		"colocation-config":         `{"cpuReclaimThresholdPercent":70,"enable":true,"metricAggregateDurationSeconds":60,"nodeConfigs":[{"cpuReclaimThresholdPercent":80,"name":"big","nodeSelector":{"matchLabels":{"size":"big"}}}],"resourceDiffThreshold":0.05}`,
		"resource-threshold-config": "null",
		"cpu-burst-config":          `{"clusterStrategy":{"policy":"auto"}}`,
		"resource-qos-config":       `{"clusterStrategy":{"beClass":{"cpuQOS":{"enable":true}},"lsClass":{"cpuQOS":{"enable":true}}}}`,
	} {
		var got any
		if text, is := data[key].(string); is {
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Errorf("%s: %v in\n%s", key, err, text)
			}
		}
		if asJSON(t, got) != want {
			t.Errorf("%s is %s, want %s", key, asJSON(t, got), want)
		}
	}
}
