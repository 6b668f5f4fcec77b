package server_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/internal/cluster/kube"
)

// service returns a pod without requests and limits.
func service(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}

// TestOnlyTheBindingBringsAContract checks what the API server does with the
// annotations of a binding. It must write them into the pod together with the
// name of the node, because the scheduler relies on this. With the chart's
// policy, the API server must refuse every other write of these annotations.
func TestOnlyTheBindingBringsAContract(t *testing.T) {
	c := server(t)
	ctx := context.Background()
	make1(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}})
	forbid(t, c)

	bound := service("bound", nil)
	make1(t, c, bound)
	changes, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace("default"), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: bound.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	words := map[string]string{kube.AnnotationCPUs: "{}", kube.AnnotationResourceStatus: `{"cpuset":"0-3"}`, kube.AnnotationCPUSet: "{}"}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: words}, Target: corev1.ObjectReference{Kind: "Node", Name: "anywhere"}}
	if err := c.SubResource("binding").Create(ctx, bound, binding); err != nil {
		t.Fatalf("bind: %v", err)
	}
	for {
		var p *corev1.Pod
		select {
		case e := <-changes.ResultChan():
			p, _ = e.Object.(*corev1.Pod)
		case <-time.After(30 * time.Second):
			t.Fatal("the watch shows no bound pod")
		}
		if p == nil || p.Spec.NodeName == "" {
			continue
		}
		for key, want := range words {
			if got := p.Annotations[key]; got != want {
				t.Errorf("the first change with a node has %s=%q, want %q", key, got, want)
			}
		}
		break
	}

	refused := func(how string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the scheduler writes it") {
			t.Errorf("%s: %v", how, err)
		}
	}
	for key := range words {
		refused("create with "+key, c.Create(ctx, service("forged", map[string]string{key: "{}"})))
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"forged"}}}`))
		for _, p := range []*corev1.Pod{service("bound", nil), service("other", nil)} {
			make1(t, c, p.DeepCopy())
			refused("patch "+key+" of "+p.Name, c.Patch(ctx, p, patch))
			refused("patch the status with "+key+" of "+p.Name, c.Status().Patch(ctx, p, patch))
		}
		refused("remove "+key, c.Patch(ctx, service("bound", nil), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":null}}}`))))
	}
	if err := c.Patch(ctx, service("bound", nil), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"team":"web"}}}`))); err != nil {
		t.Errorf("another annotation: %v", err)
	}
}

// forbid installs the chart's policy about contracts, and waits until the API
// server enforces it.
func forbid(t *testing.T, c client.Client) {
	t.Helper()
	chart, err := os.ReadFile("../../../../test/chart/testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	for doc := range bytes.SplitSeq(chart, []byte("---\n# contractpolicy.yaml\n")) {
		doc, _, _ = bytes.Cut(doc, []byte("\n---\n"))
		var o unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetName() == "tenon-contracts" {
			make1(t, c, &o)
			applied++
		}
	}
	if applied != 2 {
		t.Fatalf("the chart has %d objects of the policy, want the policy and its binding", applied)
	}
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := c.Create(context.Background(), service("forged", map[string]string{kube.AnnotationCPUs: "{}"}), client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return
		}
		if time.Since(begun) > 60*time.Second {
			t.Fatalf("the policy does not hold: %v", err)
		}
	}
}
