package manifest

import (
	"strings"
	"testing"
)

func TestManifestsWithoutPodsAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a: b":                             "document 1: kind: ",
		"kind: Pod\n---\nkind: [":          "document 2: ",
		"kind: Pod\nspec: {containers: 1}": "document 1: spec.containers: its type is number, which does not belong there",
		"hello, world":                     "document 1: its type is string: want an object with the keys kind and spec",
		"[1]":                              "document 1: its type is array: want an object with the keys kind and spec",
		"kind: List\nitems: [{kind: Pod}, {metadata: {}}]": "document 1: items[1]: kind: ",
	} {
		if err := new(Set).Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	text := "kind: Deployment\nspec: {template: {spec: {containers: [{resources: {limits: {cpu: '1e-2147483647'}}}]}}}"
	if err := new(Set).Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), `document 1: "limits.cpu": "1e-2147483647": want a quantity`) {
		t.Errorf("%q: %v", text, err)
	}
	for text, pods := range map[string]int{
		"": 0, "---\n": 0, "kind: Service\nspec: {selector: {a: b}}": 0, "kind: CronJob\nspec: {jobTemplate: {spec: {parallelism: 2, template: {}}}}": 2,
		"kind: Job\nspec: {template: {}}": 1, "kind: List\nitems: [{kind: Pod}, {kind: StatefulSet, spec: {replicas: 3, template: {}}}]": 4,
	} {
		var m Set
		err := m.Read(strings.NewReader(text))
		n := 0
		for _, w := range m.Wanted {
			n += w.Count
		}
		if err != nil || n != pods {
			t.Errorf("%q: %d pods, %v; want %d", text, n, err, pods)
		}
	}
}

// TestADraftIsThePodThatAControllerCreates checks the pod that is sent to the API server.
func TestADraftIsThePodThatAControllerCreates(t *testing.T) {
	var m Set
	err := m.Read(strings.NewReader(`
kind: List
items:
- {kind: Namespace, metadata: {name: new}}
- {kind: ServiceAccount, metadata: {name: db}}
- {kind: Deployment, metadata: {name: d}, spec: {template: {metadata: {labels: {a: b}}, spec: {serviceAccountName: db, containers: [{name: c}]}}}}
- {kind: Pod, metadata: {name: p, namespace: new}, spec: {serviceAccountName: db, containers: [{name: c}]}, status: {phase: Running}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetNamespace("shop", true); err == nil || !strings.Contains(err.Error(), "p is in namespace new, and the flag -n says shop") {
		t.Errorf("another namespace: %v", err)
	}
	if err := m.SetNamespace("shop", false); err != nil {
		t.Fatal(err)
	}
	d, p := m.Draft(&m.Wanted[0]), m.Draft(&m.Wanted[1])
	if d.Name != "" || d.GenerateName != "d-" || d.Namespace != "shop" || d.Labels["a"] != "b" || d.Spec.ServiceAccountName != "" {
		t.Errorf("the pod of the template: %+v", d)
	}
	if p.Name != "p" || p.GenerateName != "" || p.Namespace != "new" || p.Spec.ServiceAccountName != "db" || p.Status.Phase != "" {
		t.Errorf("the pod: %+v", p)
	}
	if m.Wanted[0].Pod.Spec.ServiceAccountName != "db" {
		t.Error("the manifest has changed")
	}
	if got := m.Pending(&m.Wanted[0]) + "|" + m.Pending(&m.Wanted[1]); got != "|Namespace new" {
		t.Errorf("pending: %s", got)
	}
}

// TestANumberOfPodsThatKubernetesRefusesIsRefused checks both ends of the range.
func TestANumberOfPodsThatKubernetesRefusesIsRefused(t *testing.T) {
	for _, x := range []struct {
		text, count string
		ok          bool
	}{
		{"kind: Deployment\nmetadata: {name: d}\nspec: {replicas: COUNT, template: {spec: {containers: [{name: c}]}}}", "-1", false},
		{"kind: Job\nmetadata: {name: d}\nspec: {parallelism: COUNT, template: {spec: {containers: [{name: c}]}}}", "-1", false},
		{"kind: Deployment\nmetadata: {name: d}\nspec: {replicas: COUNT, template: {spec: {containers: [{name: c}]}}}", "2147483647", true},
		{"kind: Deployment\nmetadata: {name: d}\nspec: {replicas: COUNT, template: {spec: {containers: [{name: c}]}}}", "2147483648", false},
		{"kind: Other\nmetadata: {name: d}\nspec: {replicas: COUNT, template: {spec: {containers: [{name: c}]}}}", "9000000000000000000", false},
	} {
		err := new(Set).Read(strings.NewReader("kind: ConfigMap\n---\n" + strings.ReplaceAll(x.text, "COUNT", x.count)))
		if x.ok && err != nil || !x.ok && (err == nil || !strings.Contains(err.Error(), "document 2: ") || !strings.Contains(err.Error(), " d: replicas or parallelism is "+x.count+": want 0 to 2147483647")) {
			t.Errorf("%s: %v", x.text, err)
		}
	}
}
