package chart

import (
	"slices"
	"strings"
	"testing"
)

// observed returns all values that are not off, in mode observe.
func observed() map[string]any {
	values := allOptions()
	values["mode"] = "observe"
	return values
}

// TestAnObserverMayOnlyReadAndReport renders the chart in mode observe. Whatever else is
// switched on, each role only reads, but for the reports of nodes.
func TestAnObserverMayOnlyReadAndReport(t *testing.T) {
	for _, values := range []map[string]any{set("observe", "mode"), observed()} {
		all := mustRender(t, values)
		roles := 0
		for key, d := range all {
			rules, _ := d.value("rules").([]any)
			for _, r := range rules {
				roles++
				rule := document{object: r.(map[string]any)}
				resources, _ := rule.value("resources").([]any)
				verbs, _ := rule.value("verbs").([]any)
				for _, verb := range verbs {
					reports := !slices.ContainsFunc(resources, func(r any) bool { return !strings.HasPrefix(r.(string), "nodereports") })
					if !slices.Contains([]any{"get", "list", "watch"}, verb) && !(reports && (verb == "create" || verb == "patch")) {
						t.Errorf("%s may %v %v", key, verb, resources)
					}
				}
			}
		}
		if roles == 0 {
			t.Fatal("no role is rendered")
		}
	}
}

// TestAnObserverCannotWriteToTheNode checks the pod of mode observe: no way to a file or
// process of the node but its own two folders.
func TestAnObserverCannotWriteToTheNode(t *testing.T) {
	all := mustRender(t, observed())
	pod := document{object: all["DaemonSet tenond"].value("spec", "template", "spec").(map[string]any)}
	for _, key := range []string{"hostPID", "hostNetwork", "hostIPC", "initContainers", "priorityClassName"} {
		if v := pod.value(key); v != nil {
			t.Errorf("the pod has %s: %v", key, v)
		}
	}
	containers, _ := pod.value("containers").([]any)
	if len(containers) != 1 {
		t.Fatalf("the pod has %d containers", len(containers))
	}
	c := document{object: containers[0].(map[string]any)}
	if got := asJSON(t, c.value("securityContext", "capabilities")); got != `{"add":["BPF","PERFMON"],"drop":["ALL"]}` {
		t.Errorf("its capabilities are %s", got)
	}
	args, _ := c.value("args").([]any)
	if !slices.Contains(args, any("--observe")) || !slices.Contains(args, any("--nri=")) || !slices.Contains(args, any("--kubelet-root=")) {
		t.Errorf("its arguments are %v", args)
	}
	mounts, _ := c.value("volumeMounts").([]any)
	paths := map[string]string{}
	volumes, _ := pod.value("volumes").([]any)
	for _, v := range volumes {
		volume := document{object: v.(map[string]any)}
		paths[volume.str("name")] = volume.str("hostPath", "path")
	}
	var writable []string
	for _, m := range mounts {
		mount := document{object: m.(map[string]any)}
		path := paths[mount.str("name")]
		if path == "/sys/fs/cgroup" && mount.str("recursiveReadOnly") != "IfPossible" {
			t.Errorf("mounts below %s may be written: %s", path, asJSON(t, m))
		}
		if path != "" && mount.value("readOnly") != true {
			writable = append(writable, path)
		}
	}
	slices.Sort(writable)
	if !slices.Equal(writable, []string{"/run/tenon", "/var/lib/tenon/history"}) {
		t.Errorf("it may write to %q", writable)
	}
}

// TestAnObserverMakesWhatTheNotesName lists the objects of mode observe. None of them
// acts on objects of others, and the notes name each kind.
func TestAnObserverMakesWhatTheNotesName(t *testing.T) {
	var keys []string
	for key := range mustRender(t, set("observe", "mode")) {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	want := []string{
		"ClusterRole tenon-view", "ClusterRole tenon-viewer", "ClusterRole tenond", "ClusterRoleBinding tenond", "ConfigMap slo-controller-config",
		"DaemonSet tenond", "NetworkPolicy tenond", "Role tenond", "Role tenond-config", "RoleBinding tenond", "RoleBinding tenond-config", "ServiceAccount tenond",
		"ValidatingAdmissionPolicy tenon-own-report", "ValidatingAdmissionPolicyBinding tenon-own-report",
	}
	if !slices.Equal(keys, want) {
		t.Errorf("the chart makes\n%q, want\n%q", keys, want)
	}
	text := notes(t, set("observe", "mode"))
	for _, key := range keys {
		kind, name, _ := strings.Cut(key, " ")
		if !strings.Contains(text, strings.TrimSuffix(kind, "Binding")) || !strings.Contains(text, strings.TrimSuffix(name, "-config")) {
			t.Errorf("the notes do not name %s", key)
		}
	}
	for _, path := range []string{"/var/lib/tenon/history", "/run/tenon"} {
		if !strings.Contains(text, path) {
			t.Errorf("the notes do not name %s", path)
		}
	}
	// What is off by default is named with its kind and name, if it is there.
	services := observed()
	services["podMonitor"], services["serviceMonitor"] = map[string]any{"enabled": false}, map[string]any{"enabled": true}
	for _, values := range []map[string]any{observed(), services} {
		more, text := 0, notes(t, values)
		for key := range mustRender(t, values) {
			if slices.Contains(want, key) {
				continue
			}
			if more++; !strings.Contains(text, key) {
				t.Errorf("the notes do not name %s", key)
			}
			if strings.Contains(notes(t, set("observe", "mode")), key) {
				t.Errorf("the notes name %s, which is not there", key)
			}
		}
		if more < 5 {
			t.Errorf("only %d objects more with all options", more)
		}
	}
}

// TestTheModeOfAnOlderChartIsToManage renders the chart with values without a mode, as
// helm upgrade --reuse-values does.
func TestTheModeOfAnOlderChartIsToManage(t *testing.T) {
	if _, manages := mustRender(t, map[string]any{"mode": nil})["Deployment tenon-manager"]; !manages {
		t.Error("no manager is rendered")
	}
}
