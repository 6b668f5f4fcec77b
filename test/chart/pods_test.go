package chart

import (
	"slices"
	"strings"
	"testing"
)

// A program is a program of the chart, with the section of its values and the
// workload that runs it.
type program struct{ section, name, workload string }

var programs = []program{
	{"agent", "tenond", "DaemonSet tenond"},
	{"manager", "tenon-manager", "Deployment tenon-manager"},
	{"scheduler", "tenon-scheduler", "Deployment tenon-scheduler"},
}

// withScheduler returns values with the scheduler enabled.
func withScheduler(values map[string]any) map[string]any {
	scheduler, _ := values["scheduler"].(map[string]any)
	if scheduler == nil {
		scheduler = map[string]any{}
		values["scheduler"] = scheduler
	}
	scheduler["enabled"] = true
	return values
}

// initContainers returns the init containers of a document, each as a document.
func initContainers(d document) (all []document) {
	list, _ := d.value("spec", "template", "spec", "initContainers").([]any)
	for _, c := range list {
		all = append(all, document{object: c.(map[string]any)})
	}
	return all
}

// TestAnImageCanBeAMirrorOrADigest renders the images of all programs from a
// registry, a repository, a tag and a digest. All containers of a program have the
// same image.
func TestAnImageCanBeAMirrorOrADigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, p := range programs {
		for name, c := range map[string]struct {
			image, own map[string]any
			want       string
		}{
			"default":                 {nil, nil, registry + "/" + p.name + ":latest"},
			"a registry and a tag":    {map[string]any{"registry": "r.example:5000/a", "tag": "v1"}, nil, "r.example:5000/a/" + p.name + ":v1"},
			"a repository":            {map[string]any{"tag": "v1"}, map[string]any{"repository": "r.example/b"}, "r.example/b:v1"},
			"a tag of its own":        {map[string]any{"tag": "v1"}, map[string]any{"tag": "v2"}, registry + "/" + p.name + ":v2"},
			"a digest":                {map[string]any{"tag": "v1"}, map[string]any{"digest": digest, "tag": "v2"}, registry + "/" + p.name + "@" + digest},
			"a repository and digest": {nil, map[string]any{"repository": "r.example/b", "digest": digest}, "r.example/b@" + digest},
		} {
			values := map[string]any{}
			if c.image != nil {
				values["image"] = c.image
			}
			if c.own != nil {
				values[p.section] = map[string]any{"image": c.own}
			}
			d := mustRender(t, withScheduler(values))[p.workload]
			for _, container := range append(containers(d), initContainers(d)...) {
				if got := container.str("image"); got != c.want {
					t.Errorf("%s of %s, %s: %s, want %s", name, p.name, container.str("name"), got, c.want)
				}
			}
		}
	}
	for key, d := range mustRender(t, allOptions()) {
		if secrets, _ := d.value(append(podSpec(d), "imagePullSecrets")...).([]any); len(containers(d)) > 0 && asJSON(t, secrets) != `[{"name":"registry"}]` {
			t.Errorf("%s pulls its image with the secrets %v", key, secrets)
		}
	}
}

// TestAServiceAccountCanBeOneThatExists gives each program another ServiceAccount.
// Everything that names the account must follow: the pods, the bindings, and the
// policy that knows an agent by its name.
func TestAServiceAccountCanBeOneThatExists(t *testing.T) {
	for _, p := range programs {
		own := map[string]any{"serviceAccount": map[string]any{"create": false, "name": "mine"}}
		all := mustRender(t, withScheduler(map[string]any{p.section: own}))
		if got := all[p.workload].str("spec", "template", "spec", "serviceAccountName"); got != "mine" {
			t.Errorf("the pods of %s have the account %s", p.name, got)
		}
		for _, name := range []string{"mine", p.name} {
			if _, is := all["ServiceAccount "+name]; is {
				t.Errorf("%s: the ServiceAccount %s is made", p.name, name)
			}
		}
		bindings := 0
		for key, d := range all {
			subjects, _ := d.value("subjects").([]any)
			for _, s := range subjects {
				switch subject := (document{object: s.(map[string]any)}); subject.str("name") {
				case "mine":
					bindings++
				case p.name:
					t.Errorf("%s binds %s", key, p.name)
				}
			}
		}
		if bindings < 3 {
			t.Errorf("%s: %d bindings of its account", p.name, bindings)
		}
		policy, user := all["ValidatingAdmissionPolicy tenon-own-report"].text, "system:serviceaccount:"+namespace+":tenond'"
		if p.section == "agent" {
			user = "system:serviceaccount:" + namespace + ":mine'"
		}
		if !strings.Contains(policy, user) {
			t.Errorf("%s: the policy about reports does not name %s", p.name, user)
		}
	}
	for _, p := range programs {
		account := mustRender(t, allOptions())["ServiceAccount "+p.name]
		if account.str("metadata", "annotations", "example.com/role") != "tenon" || account.value("automountServiceAccountToken") != false {
			t.Errorf("the ServiceAccount of %s is\n%s", p.name, account.text)
		}
	}
}

// TestOwnersMayAddToThePods checks the annotations, labels, variables and volumes
// that the values add, and that they replace none of the chart.
func TestOwnersMayAddToThePods(t *testing.T) {
	all, plain := mustRender(t, allOptions()), mustRender(t, withScheduler(map[string]any{}))
	for _, p := range programs {
		d, before := all[p.workload], plain[p.workload]
		template := func(d document, keys ...string) any {
			return d.value(append([]string{"spec", "template"}, keys...)...)
		}
		labels, _ := template(d, "metadata", "labels").(map[string]any)
		if labels["cost"] != "platform" || labels["team"] != "platform" || labels["app.kubernetes.io/name"] != p.name || labels["koordinator.sh/qosClass"] == nil {
			t.Errorf("%s has the labels %v", p.name, labels)
		}
		annotations, _ := template(d, "metadata", "annotations").(map[string]any)
		usual, _ := template(before, "metadata", "annotations").(map[string]any)
		if annotations["sidecar.istio.io/inject"] != "false" || len(annotations) != len(usual)+1 {
			t.Errorf("%s has the annotations %v, and without the values %v", p.name, annotations, usual)
		}
		c := containers(d)[0]
		env, _ := c.value("env").([]any)
		if !slices.ContainsFunc(env, func(e any) bool { return asJSON(t, e) == `{"name":"GOMAXPROCS","value":"2"}` }) {
			t.Errorf("%s has the variables %v", p.name, env)
		}
		mounts, _ := c.value("volumeMounts").([]any)
		volumes, _ := template(d, "spec", "volumes").([]any)
		known := map[any]bool{}
		for _, v := range volumes {
			known[v.(map[string]any)["name"]] = true
		}
		if !known["authorities"] {
			t.Errorf("%s has the volumes %v", p.name, volumes)
		}
		mounted := false
		for _, m := range mounts {
			name := m.(map[string]any)["name"]
			mounted = mounted || name == "authorities"
			if !known[name] {
				t.Errorf("%s mounts the volume %v, which it does not have", p.name, name)
			}
		}
		if !mounted {
			t.Errorf("%s mounts %v", p.name, mounts)
		}
	}
}

// TestPodLabelsGoBeforeCommonLabels gives one label twice. An object with two values
// of a key would be refused.
func TestPodLabelsGoBeforeCommonLabels(t *testing.T) {
	d := mustRender(t, map[string]any{"commonLabels": map[string]any{"team": "a", "app.kubernetes.io/part-of": "b"}, "manager": map[string]any{"podLabels": map[string]any{"team": "c"}}})["Deployment tenon-manager"]
	labels, _ := d.value("spec", "template", "metadata", "labels").(map[string]any)
	if labels["team"] != "c" || labels["app.kubernetes.io/part-of"] != "tenon" {
		t.Errorf("the labels are %v", labels)
	}
}

// TestReplicasAreSpreadAsTheirOwnerSays checks the constraints of the replicas. A
// constraint that does not say which pods it counts, counts these.
func TestReplicasAreSpreadAsTheirOwnerSays(t *testing.T) {
	others := map[string]any{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
	for _, p := range programs[1:] {
		d := mustRender(t, withScheduler(map[string]any{p.section: map[string]any{"topologySpreadConstraints": []any{zones, others}}}))[p.workload]
		got := asJSON(t, d.value("spec", "template", "spec", "topologySpreadConstraints"))
		want := `[{"labelSelector":{"matchLabels":{"app.kubernetes.io/instance":"tenon","app.kubernetes.io/name":"` + p.name + `"}},"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"},` + asJSON(t, others) + `]`
		if got != want {
			t.Errorf("%s: %s\nwant %s", p.name, got, want)
		}
	}
}

// TestADisruptionBudgetIsAValue checks that a cluster of one node can do without the
// budgets: there, a drain would wait for ever.
func TestADisruptionBudgetIsAValue(t *testing.T) {
	for _, p := range programs[1:] {
		for _, enabled := range []bool{true, false} {
			values := withScheduler(map[string]any{p.section: map[string]any{"podDisruptionBudget": map[string]any{"enabled": enabled}}})
			if _, is := mustRender(t, values)["PodDisruptionBudget "+p.name]; is != enabled {
				t.Errorf("%s, enabled %t: there is a budget: %t", p.name, enabled, is)
			}
		}
	}
}
