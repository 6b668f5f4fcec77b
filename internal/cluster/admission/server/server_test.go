// Package server_test checks the assumptions of package admission with a real
// API server. It is a package of its own, so that the other tests of admission
// need no Kubernetes client.
package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
)

// server starts a real API server without webhooks and without nodes.
func server(t *testing.T) client.WithWatch {
	t.Helper()
	home, _ := os.UserCacheDir()
	assets := ""
	for _, dir := range []string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(home, "tenon", "cluster", "bin")} {
		_, server := os.Stat(filepath.Join(dir, "kube-apiserver"))
		_, etcd := os.Stat(filepath.Join(dir, "etcd"))
		if dir != "" && server == nil && etcd == nil && assets == "" {
			assets = dir
		}
	}
	if assets == "" {
		const why = "there is no kube-apiserver and no etcd: set KUBEBUILDER_ASSETS to a folder with both (test/cluster builds them)"
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	rc, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1.AddToScheme, nodev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func make1(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(context.Background(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// pod returns a pod of class BE. It has one container with these resources,
// which are written in YAML.
func pod(t *testing.T, resources string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	text := "metadata: {name: job, labels: {koordinator.sh/qosClass: BE}}\nspec: {containers: [{name: job, image: image, resources: {" + resources + "}}]}\n"
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return &p
}

const two = "limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}, requests: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}"

// TestTheAPIServer checks the assumptions of package admission about the API
// server.
func TestTheAPIServer(t *testing.T) {
	c := server(t)
	ctx := context.Background()
	for _, name := range []string{"jobs", "limited", "web", "minimum", "range", "ratio"} {
		make1(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	try := func(p *corev1.Pod) error {
		p = p.DeepCopy()
		if p.Namespace == "" {
			p.Namespace = "default"
		}
		return c.Create(ctx, p, client.DryRunAll)
	}

	// The golden files contain pods that the webhooks admit.
	t.Run("accepts the pods that the webhooks admit", func(t *testing.T) {
		make1(t, c, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "koord-mid"}, Value: 7000})
		never := corev1.PreemptNever
		make1(t, c, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "koord-batch"}, Value: 5000, PreemptionPolicy: &never})
		files, _ := filepath.Glob("../testdata/*.out.yaml")
		tried := 0
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var p corev1.Pod
			if err := yaml.UnmarshalStrict(text, &p); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if len(p.Spec.Containers) == 0 { // the webhooks refuse it
				continue
			}
			tried++
			if p.Spec.Overhead != nil { // create its RuntimeClass
				name := "sandboxed"
				make1(t, c, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "runc", Overhead: &nodev1.Overhead{PodFixed: p.Spec.Overhead}})
				p.Spec.RuntimeClassName = &name
			}
			if err := try(&p); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if tried < 8 {
			t.Errorf("%d pods were tried; want more", tried)
		}
	})
	t.Run("lets batch requests be below limits, and limits be missing", func(t *testing.T) {
		for _, resources := range []string{
			"requests: {kubernetes.io/batch-cpu: 1k}, limits: {kubernetes.io/batch-cpu: 2k}",
			"requests: {kubernetes.io/batch-cpu: 1k}",
			"requests: {kubernetes.io/batch-cpu: 500m}",
		} {
			if err := try(pod(t, resources)); err != nil {
				t.Errorf("%s: %v", resources, err)
			}
		}
	})
	t.Run("wants extended resources of other names equal and with limits", func(t *testing.T) {
		for _, resources := range []string{
			"requests: {koordinator.sh/batch-cpu: 1k}, limits: {koordinator.sh/batch-cpu: 2k}",
			"requests: {koordinator.sh/batch-cpu: 1k}",
		} {
			if err := try(pod(t, resources)); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v, want it to be invalid", resources, err)
			}
		}
	})
	t.Run("refuses batch resources of a pod as a whole", func(t *testing.T) {
		p := pod(t, two)
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{kube.BatchCPU: resource.MustParse("2k")}}
		if err := try(p); !apierrors.IsInvalid(err) {
			t.Errorf("%v, want it to be invalid", err)
		}
	})
	t.Run("refuses an overhead that is not that of the RuntimeClass", func(t *testing.T) {
		name := "sandboxed"
		make1(t, c, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "runc", Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("50m")}}})
		p := pod(t, two)
		p.Spec.RuntimeClassName, p.Spec.Overhead = &name, corev1.ResourceList{kube.BatchCPU: resource.MustParse("50")}
		if err := try(p); err == nil || !strings.Contains(err.Error(), "Overhead") {
			t.Errorf("%v, want an error about the overhead", err)
		}
	})
	// The namespace has a LimitRange for each resource.
	t.Run("and two LimitRanges leave a BE pod bounded", func(t *testing.T) {
		makeRange(t, c, "limited", "cpu", corev1.LimitRangeItem{DefaultRequest: amount("cpu", "100m"), Default: amount("cpu", "500m")})
		makeRange(t, c, "limited", "memory", corev1.LimitRangeItem{DefaultRequest: amount("memory", "64Mi"), Default: amount("memory", "128Mi")})
		for name, resources := range map[string]string{"batch": two, "native": "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}", "cpu alone": "requests: {cpu: 200m}", "nothing": ""} {
			p, turns := takeTurns(t, c, pod(t, resources), "limited", nil)
			v := admission.ValidateCreate(p, tenant.Namespace{Name: "default"}, false, nil)
			if !v.Allowed() || len(admission.Unbounded(p, false, nil)) > 0 || kube.QOSClass(p) != corev1.PodQOSBestEffort || turns > 3 {
				t.Errorf("%s: after %d turns %v, %s, message %q", name, turns, p.Spec.Containers[0].Resources, kube.QOSClass(p), v.Message())
			}
			t.Logf("%s, after %d turns: %s", name, turns, p.Annotations[kube.AnnotationExtended])
		}
	})
	// The API server refuses 0 where a LimitRange has one of these.
	for name, item := range map[string]corev1.LimitRangeItem{
		"minimum": {Min: amount("cpu", "100m")},
		"range":   {Min: amount("memory", "16Mi"), Default: amount("memory", "128Mi"), DefaultRequest: amount("memory", "64Mi"), Max: amount("memory", "8Gi")},
		"ratio":   {MaxLimitRequestRatio: amount("cpu", "4"), Default: amount("cpu", "400m"), DefaultRequest: amount("cpu", "100m")},
	} {
		t.Run("admits a BE pod beside a LimitRange with a "+name, func(t *testing.T) {
			ranges := admission.Ranges{makeRange(t, c, name, "a", item), makeRange(t, c, name, "b", corev1.LimitRangeItem{Default: amount("ephemeral-storage", "1Gi")})}
			for asked, resources := range map[string]string{"batch": two, "native": "requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"} {
				p, turns := takeTurns(t, c, pod(t, resources), name, ranges)
				v := admission.ValidateCreate(p, tenant.Namespace{Name: "default"}, false, ranges)
				if err := c.Create(ctx, p.DeepCopy(), client.DryRunAll); err != nil || !v.Allowed() || turns > 3 || p.Annotations[kube.AnnotationExtended] == "" {
					t.Errorf("%s: after %d turns %v, error %v, message %q", asked, turns, p.Spec.Containers[0].Resources, err, v.Message())
				}
			}
		})
	}
}

func amount(n corev1.ResourceName, q string) corev1.ResourceList {
	return corev1.ResourceList{n: resource.MustParse(q)}
}

// makeRange makes a LimitRange for containers, and returns it with the defaults
// of the API server.
func makeRange(t *testing.T, c client.Client, namespace, name string, item corev1.LimitRangeItem) corev1.LimitRange {
	t.Helper()
	item.Type = corev1.LimitTypeContainer
	r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	make1(t, c, r)
	return *r
}

// takeTurns applies the webhooks and the LimitRanges in turn, until neither of
// them changes the pod. The API server applies the LimitRanges in a dry run.
func takeTurns(t *testing.T, c client.Client, p *corev1.Pod, namespace string, ranges admission.Ranges) (changed *corev1.Pod, turns int) {
	t.Helper()
	p.Namespace = namespace
	for before := ""; ; turns++ {
		created := p.DeepCopy()
		if err := c.Create(t.Context(), created, client.DryRunAll); err != nil {
			t.Fatalf("%v: %v", p.Spec.Containers[0].Resources, err)
		}
		p.Annotations, p.Spec.Containers = created.Annotations, created.Spec.Containers
		p, _ = admission.Mutate(admission.Request{Pod: p, Ranges: ranges})
		now := p.Spec.Containers[0].Resources.String() + p.Annotations[kube.AnnotationExtended]
		if now == before || turns > 5 {
			return p, turns
		}
		before = now
	}
}
