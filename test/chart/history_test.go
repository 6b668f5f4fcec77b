package chart

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTheHistoryIsMountedWhereTheConfigurationSays renders the chart with the history: the
// agent has its folder, the configuration names it, and the notes say what an uninstall
// leaves. Without it, the chart has none of that.
func TestTheHistoryIsMountedWhereTheConfigurationSays(t *testing.T) {
	const place = "/data/tenon"
	history := map[string]any{"enabled": true, "size": "64Mi", "hostPath": place}
	for name, agent := range map[string]map[string]any{
		"alone":             {"history": history},
		"beside other keys": {"history": history, "config": "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nperiod: 2s"},
	} {
		all := mustRender(t, map[string]any{"agent": agent})
		var file map[string]any
		if err := yaml.Unmarshal([]byte(all["ConfigMap tenond"].str("data", "tenon.yaml")), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := map[string]any{"apiVersion": "tenon.sh/v1alpha1", "kind": "NodeConfig", "history": map[string]any{"directory": place, "size": "64Mi"}}
		if agent["config"] != nil {
			want["period"] = "2s"
		}
		if asJSON(t, file) != asJSON(t, want) {
			t.Errorf("%s: the file is %v, want %v", name, file, want)
		}
		tenond := all["DaemonSet tenond"]
		mounts := asJSON(t, containers(tenond)[0].value("volumeMounts"))
		volumes := asJSON(t, tenond.value("spec", "template", "spec", "volumes"))
		for _, c := range []struct{ text, part string }{
			{mounts, `{"mountPath":"` + place + `","name":"history"}`}, {mounts, `"name":"config"`},
			{volumes, `{"hostPath":{"path":"` + place + `","type":"DirectoryOrCreate"},"name":"history"}`}, {volumes, `{"configMap":{"name":"tenond"},"name":"config"}`},
		} {
			if !strings.Contains(c.text, c.part) {
				t.Errorf("%s: want %s in %s", name, c.part, c.text)
			}
		}
		if text := notes(t, map[string]any{"agent": agent}); !strings.Contains(text, place) {
			t.Errorf("%s: the notes do not name the folder:\n%s", name, text)
		}
	}
	// helm upgrade --reuse-values has no other keys of it if the older chart had none.
	bare := mustRender(t, map[string]any{"agent": map[string]any{"history": map[string]any{"enabled": true, "hostPath": nil, "size": nil}}})
	if mounts := asJSON(t, containers(bare["DaemonSet tenond"])[0].value("volumeMounts")); !strings.Contains(mounts, `{"mountPath":"/var/lib/tenon/history","name":"history"}`) {
		t.Errorf("without a folder: %s", mounts)
	}
	if file := bare["ConfigMap tenond"].str("data", "tenon.yaml"); !strings.Contains(file, "directory: \"/var/lib/tenon/history\"\n  size: 32Mi\n") {
		t.Errorf("without a folder and a size: %s", file)
	}
	none := mustRender(t, nil)
	if _, is := none["ConfigMap tenond"]; is || slices.ContainsFunc(containers(none["DaemonSet tenond"]), func(c document) bool { return strings.Contains(asJSON(t, c.object), "history") }) {
		t.Error("there is a history by default")
	}
	for name, config := range map[string]string{"twice": "history: {directory: /x}", "JSON": `{"kind": "NodeConfig"}`} {
		if _, err := render(t, map[string]any{"agent": map[string]any{"history": history, "config": config}}); err == nil || !strings.Contains(err.Error(), "agent.history.enabled") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
