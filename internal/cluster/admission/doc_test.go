package admission

import (
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// pagesOfManifests are the pages of docs whose manifests a user may apply as they are.
var pagesOfManifests = []string{"workloads", "kubernetes", "objectives", "tenants"}

// readPage returns the text of a page of docs.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// firstYAML returns the first YAML block of a page of docs.
func firstYAML(t *testing.T, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(readPage(t, name), "```yaml\n")
	manifest, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatalf("docs/%s.md has no YAML", name)
	}
	return manifest
}

// TestTheProfileThatLeavesPodsAlone applies the profile of docs/operate.md to a
// BestEffort pod of its namespace and to one of another namespace. The first is LS,
// and the second has no label.
func TestTheProfileThatLeavesPodsAlone(t *testing.T) {
	var profile configv1alpha1.ClusterColocationProfile
	if err := yaml.UnmarshalStrict([]byte(firstYAML(t, "operate")), &profile); err != nil {
		t.Fatal(err)
	}
	if v := ValidateProfile(&profile, map[string]schedulingv1.PriorityClass{}); !v.Allowed() || len(v.Warnings) > 0 {
		t.Errorf("refusals %q, warnings %q of the profile", v.Message(), v.Warnings)
	}
	for namespace, want := range map[string]string{"shop": "LS", "other": ""} {
		home := &corev1.Namespace{}
		home.Name, home.Labels = namespace, map[string]string{corev1.LabelMetadataName: namespace}
		p, v := admit(Request{Pod: pod(t, "", "", ""), Namespace: home, Profiles: []configv1alpha1.ClusterColocationProfile{profile}})
		if got := p.Labels[kube.LabelQOSClass]; !v.Allowed() || got != want {
			t.Errorf("in %s: class %q, want %q; %s", namespace, got, want, v.Message())
		}
	}
}

// TestEveryExampleOfThePagesIsAccepted applies the webhooks to each example of the
// pages. They must accept it without a warning.
func TestEveryExampleOfThePagesIsAccepted(t *testing.T) {
	var examples []string
	for _, name := range pagesOfManifests {
		of := strings.Split(readPage(t, name), "```yaml\n")[1:]
		if len(of) == 0 {
			t.Errorf("docs/%s.md has no example", name)
		}
		examples = append(examples, of...)
	}
	for _, rest := range examples {
		text, _, _ := strings.Cut(rest, "```")
		read := func(v any) {
			if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
		}
		var v Verdict
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch kind.Kind {
		case "Pod":
			var p corev1.Pod
			read(&p)
			_, v = admit(Request{Pod: &p})
		case "Job":
			var j batchv1.Job
			read(&j)
			var p *corev1.Pod
			p, v = admit(Request{Pod: &corev1.Pod{ObjectMeta: j.Spec.Template.ObjectMeta, Spec: j.Spec.Template.Spec}})
			if class := kube.Class(p); class != node.BE {
				t.Errorf("a pod of the Job has class %q, want BE", class)
			}
		case "ConfigMap":
			var m corev1.ConfigMap
			read(&m)
			if v = ValidateConfigMap(m.Data); m.Name == kube.PodConfigMap {
				v = ValidatePodConfigMap(m.Data)
			}
		case "ClusterColocationProfile":
			var p configv1alpha1.ClusterColocationProfile
			read(&p)
			v = ValidateProfile(&p, map[string]schedulingv1.PriorityClass{"koord-batch": {}})
		case "Namespace":
			var n corev1.Namespace
			read(&n)
			v = ValidateNamespace(metav1.ObjectMeta{}, n.ObjectMeta, true)
		case "LimitRange":
			read(&corev1.LimitRange{}) // the API server enforces it: TestWhatBoundsBatchResources
		case "ResourceQuota":
			var q corev1.ResourceQuota
			read(&q)
			v = ValidateQuota(&q)
		case "Node":
			var n corev1.Node
			read(&n)
			c, _ := config.ParseConfigMap(map[string]string{"colocation-config": `{"enable": true}`})
			got, faults := c.Node(n.Labels, n.Annotations)
			for _, f := range faults {
				t.Errorf("%v in\n%s", f, text)
			}
			if o := got.Policy.Overcommit; o.CPU.ThresholdPercent != 70 || o.Memory.ThresholdPercent != 60 || o.ReservedCPU != 2000 {
				t.Errorf("the node reads %+v", o)
			}
		default:
			t.Errorf("no reader for kind %q in\n%s", kind.Kind, text)
		}
		if !v.Allowed() || len(v.Warnings) > 0 {
			t.Errorf("refusals %q, warnings %q, in\n%s", v.Message(), v.Warnings, text)
		}
	}
}

// TestEveryWordIsOnAPage checks that docs/kubernetes.md or docs/workloads.md names
// each label, annotation and resource.
func TestEveryWordIsOnAPage(t *testing.T) {
	words := []string{
		kube.LabelQOSClass, kube.LabelPriorityClass, kube.LabelSubPriority, kube.LabelIgnore,
		kube.AnnotationCPUBurst, kube.AnnotationCPUQOS, kube.AnnotationMemoryQOS, kube.AnnotationBlkIOQOS, kube.AnnotationNetworkQOS, kube.AnnotationEvictionPolicy,
		kube.AnnotationEvictionPriority, kube.AnnotationExtended, kube.AnnotationResctrl, kube.AnnotationResourceSpec, kube.AnnotationResourceStatus,
		kube.AnnotationACKQOSClass, kube.AnnotationACKCPUBurst, kube.AnnotationACKMemoryQOS, AnnotationReplace, configv1alpha1.SkipUpdateResources,
		string(kube.BatchCPU), string(kube.BatchMemory), string(kube.MidCPU), string(kube.MidMemory),
	}
	for _, f := range formerNames {
		words = append(words, string(f.from))
	}
	text := readPage(t, "kubernetes") + readPage(t, "workloads")
	for _, w := range words {
		if !strings.Contains(text, "`"+w+"`") && !strings.Contains(text, "`"+w+":") {
			t.Errorf("neither docs/kubernetes.md nor docs/workloads.md names `%s`", w)
		}
	}
}
