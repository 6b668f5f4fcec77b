package translate

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeyaml "sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
)

var update = flag.Bool("update", false, "rewrite the translated manifests")

// translator returns a Translator with the profiles in a text.
func translator(t *testing.T, profiles string) Translator {
	t.Helper()
	by := Translator{As: admission.Request{PriorityClasses: PriorityClasses()}, Namespace: "default"}
	if err := by.Learn([]byte(profiles)); err != nil {
		t.Fatal(err)
	}
	return by
}

// TestManifestsAreTranslated translates the manifests of testdata. A file has in,
// and may have profiles; out and notes are the result.
func TestManifestsAreTranslated(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string][]byte{}
			for _, f := range a.Files {
				parts[f.Name] = f.Data
			}
			out, notes, err := translator(t, string(parts["profiles"])).Stream(parts["in"])
			var said strings.Builder
			for _, n := range notes {
				fmt.Fprintln(&said, n)
			}
			if err != nil {
				fmt.Fprintf(&said, "error: %v\n", err)
			}
			if *update {
				kept := a.Files[:0]
				for _, f := range a.Files {
					if f.Name != "out" && f.Name != "notes" {
						kept = append(kept, f)
					}
				}
				a.Files = append(kept, txtar.File{Name: "out", Data: out}, txtar.File{Name: "notes", Data: []byte(said.String())})
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(parts["out"]), string(out)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(string(parts["notes"]), said.String()); diff != "" {
				t.Errorf("notes (-want +got)\n%s", diff)
			}
		})
	}
}

// TestTheExampleOfThePage translates the example of docs/workloads.md.
func TestTheExampleOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Translate the manifests\n")
	blocks := strings.Split(section, "```yaml\n")
	if len(blocks) < 3 {
		t.Fatal("docs/workloads.md has no example")
	}
	in, _, _ := strings.Cut(blocks[1], "```")
	want, _, _ := strings.Cut(blocks[2], "```")
	out, notes, err := translator(t, "").Stream([]byte(in))
	if diff := cmp.Diff(want, string(out)); err != nil || len(notes) > 0 || diff != "" {
		t.Errorf("%v, %v (-page +got)\n%s", err, notes, diff)
	}
}

// TestADocumentKeepsItsLines adds blank lines and comments to a translated
// document, and removes what only a translation adds. Translated again, it must
// have them at the same places.
func TestADocumentKeepsItsLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(47, 5))
	a, err := txtar.ParseFile("testdata/comments.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		var in []string
		for line := range strings.Lines(string(a.Files[0].Data)) {
			for rnd.IntN(6) == 0 && !strings.Contains(strings.Join(in, ""), "- |") { // in a text, a blank line is a part of it
				in = append(in, "\n")
			}
			in = append(in, line)
		}
		text := strings.Join(in, "")
		out, _, err := translator(t, "").Stream([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		// What is left without the lines with amounts or annotations is the same.
		others := func(text string) (lines []string) {
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "cpu") && !strings.Contains(line, "memory") && !strings.Contains(line, "annotations:") && !strings.Contains(line, kube.AnnotationScaleUpDelay) {
					lines = append(lines, line)
				}
			}
			return lines
		}
		if diff := cmp.Diff(others(text), others(string(out))); diff != "" {
			t.Fatalf("(-manifest +translated)\n%s", diff)
		}
	}
}

// TestWhatIsNoBatchWorkStaysToTheByte translates manifests of the repository and
// of this test, and compares the bytes.
func TestWhatIsNoBatchWorkStaysToTheByte(t *testing.T) {
	texts := []string{
		"", "\n", "# nothing\n", "---\n---\n", "kind: Service\nspec:   {a:  b}", "kind: ConfigMap\ndata: {a: '---'}\n",
		"--- # first\nkind: Pod\nspec:\n    containers:\n    - name:   a # odd\n\n      resources: {requests: {cpu:   1}}\r\n",
		"---\nkind: Deployment\nspec: {template: {spec: {containers: [{name: a}]}}}\n...\n",
		`{"kind": "Job",   "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}`,
		"kind: Pod\nmetadata: {namespace: kube-system, labels: {koordinator.sh/qosClass: BE, tenon.sh/ignore: 'true'}}\nspec: {containers: [{name: a, resources: {limits: {cpu: 1}}}]}\n",
		"kind: CustomResourceDefinition\nspec: {versions: [{schema: {properties: {template: {properties: {spec: {}}}}}}]}\n",
	}
	var files []string
	for _, pattern := range []string{"../../../examples/*/*.yaml", "../../../examples/*/*/*.yaml", "../../../deploy/chart/tenon/crds/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 5 {
		t.Fatalf("%d files of the repository", len(files))
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("\nkind: ")) && !bytes.Contains(text, []byte("BE")) {
			texts = append(texts, string(text))
		}
	}
	for _, text := range texts {
		out, notes, err := translator(t, "").Stream([]byte(text))
		if err != nil || string(out) != text || len(notes) > 0 {
			t.Errorf("%q became\n%q, %v, %v", text, out, notes, err)
		}
	}
}

// TestErrorsNameTheField translates manifests that the webhook would refuse, or
// that cannot be read.
func TestErrorsNameTheField(t *testing.T) {
	const profile = "kind: ClusterColocationProfile\nmetadata: {name: suffix}\nspec: {qosClass: BE, labelSuffixes: {app: -be}}\n"
	for text, want := range map[string]string{
		"kind: Service\n---\nkind: [":         "document 2: ",
		"kind: Service\n---\n# x\n---\na: b":  "document 2: kind: want the kind of an object",
		"[1]":                                 "document 1: want an object with the keys kind and spec",
		"kind: List\nitems: [{kind: Pod}, 3]": "document 1: items[1]: want an object",
		"kind: Job\nmetadata: {name: j, namespace: shop}\nspec: {template: {metadata: {labels: {koordinator.sh/qosClass: BE}}, spec: {containers: [{name: a, resources: {limits: {cpu: 1, kubernetes.io/batch-cpu: 1k}}}]}}}":                     "document 1: Job shop/j: spec.template.spec.containers[a].resources.limits[cpu]: this container also has batch resources",
		"kind: List\nitems:\n- kind: CronJob\n  metadata: {name: j}\n  spec: {jobTemplate: {spec: {template: {metadata: {labels: {koordinator.sh/qosClass: BE}, annotations: {koordinator.sh/memoryQOS: x}}, spec: {containers: [{name: a}]}}}}}": "document 1: CronJob j: items[0].spec.jobTemplate.spec.template.metadata.annotations[koordinator.sh/memoryQOS]",
		"kind: Pod\nmetadata: {name: p}\nspec: {volumes: [{name: v, emptyDir: {sizeLimit: x}}], containers: [{name: a}]}":                                                                                                                         "document 1: Pod p: ",
		"kind: Pod\nmetadata: {name: p, labels: {app: a, koordinator.sh/qosClass: BE}}\nspec: {containers: [{name: a}]}":                                                                                                                          "document 1: Pod p: metadata.labels.app: the webhook would change the translated pod again",
		"kind: Pod\nmetadata: {name: p, labels: {koordinator.sh/qosClass: BE}}\nspec: {Containers: [{name: a, resources: {limits: {cpu: 1}}}]}":                                                                                                   "document 1: spec.containers[0]",
		"kind: Pod\nmetadata: {name: p, labels: {koordinator.sh/qosClass: BE}}\nspec: {containers: [{name: a, resources: {limits: &l {cpu: 1}, requests: *l}}]}":                                                                                  "document 1: spec.containers[0].resources.requests.kubernetes.io/batch-cpu: the document shares values by anchors or merges",
	} {
		if _, _, err := translator(t, profile).Stream([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"kind: Namespace\n---\nkind: Job\n":                                              `document 2: kind: "Job": want ClusterColocationProfile`,
		"kind: ClusterColocationProfile\nmetadata: {name: p}\nspec: {qosclas: BE}\n":     "document 1: ClusterColocationProfile: ",
		"kind: List\nitems: [{kind: Namespace}, 3]\n":                                    "document 1: items[1]: kind: ",
		"kind: List\nitems: {kind: Namespace}\n":                                         "document 1: List: items: want a list of objects",
		"kind: ClusterColocationProfileList\nitem: [{kind: ClusterColocationProfile}]\n": "document 1: ClusterColocationProfileList: items: ",
	} {
		if err := new(Translator).Learn([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// TestAPodThatNeedsNoTranslationIsChecked translates objects in which nothing is
// translated, and which the webhook would refuse.
func TestAPodThatNeedsNoTranslationIsChecked(t *testing.T) {
	const (
		namespaces = "kind: Namespace\nmetadata: {name: shop, labels: {allow.tenon.sh/objectives: 'false'}}\n---\nkind: Namespace\nmetadata: {name: kube-system}\n---\nkind: Namespace\nmetadata: {name: tenon}\n"
		job        = "kind: Job\nmetadata: {name: encode, namespace: %s}\nspec: {template: {metadata: %s, spec: {containers: [{name: a, resources: {limits: %s}}]}}}\n"
	)
	translate := func(namespace, metadata, limits string) ([]Note, error) {
		by := translator(t, namespaces)
		by.Home = "tenon"
		in := fmt.Sprintf(job, namespace, metadata, limits)
		out, notes, err := by.Stream([]byte(in))
		if err == nil && string(out) != in {
			t.Errorf("%s became\n%s", in, out)
		}
		return notes, err
	}
	for _, x := range []struct{ namespace, metadata, limits, want string }{
		{"shop", "{labels: {koordinator.sh/qosClass: be}}", "{cpu: 1}", "metadata.labels[koordinator.sh/qosClass]: "},
		{"other", "{labels: {koordinator.sh/qosClass: BF}}", "{cpu: 1}", "metadata.labels[koordinator.sh/qosClass]: "},
		{"other", `{labels: {koordinator.sh/qosClass: LS}, annotations: {tenon.sh/objective: '{"runQueueDelay": "2 ms"}'}}`, "{cpu: 1}", "metadata.annotations[tenon.sh/objective].runQueueDelay: "},
		{"shop", `{annotations: {tenon.sh/objective: '{"runQueueDelay": "2ms"}'}}`, "{cpu: 1}", "metadata.annotations[tenon.sh/objective]: namespace \"shop\" may not have objectives"},
		{"shop", "{labels: {koordinator.sh/qosClass: LSR}}", "{cpu: 1500m}", "spec.containers.resources.requests[cpu]: "},
		{"shop", "{labels: {koordinator.sh/qosClass: LS}}", "{kubernetes.io/batch-cpu: 1k}", "spec.containers[a].resources.limits[kubernetes.io/batch-cpu]: "},
		{"shop", "{labels: {koordinator.sh/qosClass: SYSTEM}}", "{cpu: 1}", "metadata.labels[koordinator.sh/qosClass]: namespace \"shop\" may not have class SYSTEM"},
		{"shop", "{labels: {tenon.sh/ignore: 'true'}}", "{cpu: 1}", "metadata.labels[tenon.sh/ignore]: namespace \"shop\" may not have pods"},
		{"shop", "{}", "{cpu: 5OOm}", `spec.containers[a].resources.limits[cpu]: "5OOm": want a quantity`},
	} {
		want := fmt.Sprintf("document 1: Job %s/encode: spec.template.%s", x.namespace, x.want)
		if _, err := translate(x.namespace, x.metadata, x.limits); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	for namespace, unknown := range map[string]int{"kube-system": 0, "tenon": 0, "other": 1} {
		for _, labels := range []string{"{labels: {koordinator.sh/qosClass: SYSTEM}}", "{labels: {tenon.sh/ignore: 'true'}}"} {
			notes, err := translate(namespace, labels, "{cpu: 1}")
			if err != nil || len(notes) != unknown || unknown > 0 && notes[0].Warning.Code != admission.Undecided {
				t.Errorf("%s in %s: %v, %v", labels, namespace, notes, err)
			}
		}
	}
	if notes, err := translate("shop", "{labels: {koordinator.sh/qosclass: BE}}", "{cpu: 1}"); err != nil || len(notes) != 1 || notes[0].Warning.Code != admission.Ignored {
		t.Errorf("a misspelt key: %v, %v", notes, err)
	}
}

// kinds are the forms of objects that make pods.
var kinds = []string{
	`{"kind": "Pod", "apiVersion": "v1", "metadata": %[1]s, "spec": %[2]s}`,
	`{"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"replicas": 2, "template": {"metadata": %[1]s, "spec": %[2]s}}}`,
	`{"kind": "CronJob", "apiVersion": "batch/v1", "spec": {"jobTemplate": {"spec": {"template": {"metadata": %[1]s, "spec": %[2]s}}}}}`,
	`{"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2", "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"metadata": %[1]s, "spec": %[2]s}}}}]}}`,
	`{"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"metadata": %[1]s, "spec": %[2]s}}}}}`,
	`{"kind": "PodTemplate", "apiVersion": "v1", "template": {"metadata": %[1]s, "spec": %[2]s}}`,
	`{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Service"}, {"kind": "StatefulSet", "spec": {"template": {"metadata": %[1]s, "spec": %[2]s}}}]}`,
}

// TestATranslatedPodPassesTheWebhookUnchanged translates random pods in objects
// of several kinds, as JSON and as YAML. The template must be the pod that the
// webhook makes of the pod as it was, and the webhook of a manager, with its seal,
// must leave the template as it is but for its own list of profiles.
func TestATranslatedPodPassesTheWebhookUnchanged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(47, 4))
	const profiles = `kind: ClusterColocationProfile
metadata: {name: spark}
spec: {selector: {matchLabels: {app: spark}}, qosClass: BE, priorityClassName: koord-batch, koordinatorPriority: 7, labels: {a: b}, patch: {spec: {terminationGracePeriodSeconds: 3}}}
---
kind: ClusterColocationProfile
metadata: {name: half}
spec: {selector: {matchLabels: {app: half}}, probability: 50%, qosClass: BE}
`
	by := translator(t, profiles)
	translated, kept, refused := 0, 0, 0
	for range 2000 {
		p := randomPod(rnd)
		metadata, _ := json.Marshal(map[string]any{"labels": p.Labels, "annotations": p.Annotations})
		spec, _ := json.Marshal(p.Spec)
		text := fmt.Appendf(nil, kinds[rnd.IntN(len(kinds))], metadata, spec)
		if rnd.IntN(2) == 0 {
			text, _ = kubeyaml.JSONToYAML(text)
		}
		want, verdict := by.mutate(p)
		p.Namespace = "default"
		out, _, err := by.Stream(text)
		if judged := admission.ValidateCreate(want, tenant.Namespace{Name: "default"}, false, nil); !verdict.Allowed() || !judged.Allowed() {
			if refused++; err == nil {
				t.Fatalf("the webhook refuses the pod (%s), and translate does not:\n%s", judged.Message(), text)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !isBatch(want) {
			if kept++; !bytes.Equal(out, text) {
				t.Fatalf("a pod that is no batch work\n%s\nbecame\n%s", text, out)
			}
			continue
		}
		translated++
		object, err := read(out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found := 0
		err = eachTemplate(object, nil, func(at template) error {
			found++
			got, err := at.pod()
			if err != nil {
				return err
			}
			if diff := comparePods(asWritten(p, want), got); diff != "" {
				t.Fatalf("%s\nbecame\n%s\nwhich is not what the webhook makes of its pod (-want +got):\n%s", text, out, diff)
			}
			again := by.As
			again.Pod, again.Namespace, again.Now = by.created(got), nil, time.Unix(1e9, 0)
			again.Draw = func() float64 { return 0.99 }
			again.Seal = func(string) string { return "seal" }
			admitted, v := admission.Mutate(again)
			delete(admitted.Annotations, admission.AnnotationProfiles)
			delete(admitted.Annotations, admission.AnnotationSeal)
			admitted.Spec.Priority = got.Spec.Priority
			if diff := comparePods(got, admitted); diff != "" || !v.Allowed() {
				t.Fatalf("the webhook changes what is translated: %s\n%s\n%s", v.Message(), out, diff)
			}
			return nil
		})
		if err != nil || found != 1 {
			t.Fatalf("%d templates, %v\n%s", found, err, out)
		}
		if twice, notes, err := by.Stream(out); err != nil || !bytes.Equal(twice, out) {
			t.Fatalf("translated twice: %v, %v\n%s\n%s", err, notes, out, twice)
		}
	}
	if translated < 400 || kept < 100 || refused < 200 {
		t.Errorf("%d pods were translated, %d kept and %d refused: the test tries too little", translated, kept, refused)
	}
}

func comparePods(a, b *corev1.Pod) string {
	x, _ := json.Marshal(map[string]any{"labels": a.Labels, "annotations": a.Annotations, "spec": a.Spec})
	y, _ := json.Marshal(map[string]any{"labels": b.Labels, "annotations": b.Annotations, "spec": b.Spec})
	return cmp.Diff(strings.ReplaceAll(string(x), "{}", "null"), strings.ReplaceAll(string(y), "{}", "null"))
}

// randomPod returns a pod of any class, with all kinds of amounts.
func randomPod(rnd *rand.Rand) *corev1.Pod {
	p := &corev1.Pod{}
	pick := func(all ...string) string { return all[rnd.IntN(len(all))] }
	p.Labels = map[string]string{"app": pick("web", "spark", "half")}
	if class := pick("BE", "BE", "BE", "LS", "LSR", ""); class != "" {
		p.Labels[kube.LabelQOSClass] = class
	}
	if rnd.IntN(8) == 0 {
		p.Annotations = map[string]string{pick("x", "node.koordinator.sh/extended-resource-spec", admission.AnnotationProfiles, "alibabacloud.com/qosClass", "config.koordinator.sh/skip-update-resources"): pick("true", "spark", "BE")}
	}
	if rnd.IntN(3) == 0 {
		p.Spec.PriorityClassName = pick("koord-batch", "koord-mid", "other")
	}
	list := func() corev1.ResourceList {
		l := corev1.ResourceList{}
		for range rnd.IntN(4) {
			n := pick("cpu", "memory", "cpu", "memory", "kubernetes.io/batch-cpu", "koordinator.sh/batch-memory", "nvidia.com/gpu")
			q := pick("1", "500m", "2k", "1Gi", "0.3", "0", "1001u")
			if strings.Contains(n, "gpu") {
				q = "1"
			}
			l[corev1.ResourceName(n)] = resource.MustParse(q)
		}
		return l
	}
	container := func(name string) corev1.Container {
		return corev1.Container{Name: name, Image: "i:1", Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}}
	}
	for i := range 1 + rnd.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("c", i)))
	}
	if rnd.IntN(3) == 0 {
		p.Spec.InitContainers = append(p.Spec.InitContainers, container("init"))
	}
	return p
}
