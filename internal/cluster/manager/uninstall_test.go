package manager

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
)

// agents creates a DaemonSet with a finalizer. The returned function removes
// the finalizer. Then the DaemonSet disappears, as it would at the end of its
// pods.
func (s *scene) agents() (client.ObjectKey, func()) {
	labels := map[string]string{"app": "tenond"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "tenond", Finalizers: []string{"tenon.sh/test"}}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "tenond", Image: "tenond"}}}},
	}}
	s.must(s.client.Create(s.ctx, set))
	key := client.ObjectKeyFromObject(set)
	gone := func() {
		s.must(s.client.Get(s.ctx, key, set))
		set.Finalizers = nil
		s.must(s.client.Update(s.ctx, set))
	}
	return key, gone
}

func TestUninstallWaitsForTheAgentsAndThenClearsTheNodes(t *testing.T) {
	s := newScene(t)
	key, gone := s.agents()
	batch := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), kube.BatchCPU: resource.MustParse("1500"), kube.BatchMemory: resource.MustParse("4Gi")}
	s.must(s.client.Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Capacity: batch, Allocatable: batch}}))
	s.must(s.client.Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{config.LabelRollout: config.RolloutOff}}}))
	s.must(s.client.Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{config.LabelRollout: config.RolloutNever}}}))
	s.must(s.client.Create(s.ctx, &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	gated := s.pod("BE", listOf("kubernetes.io/batch-cpu", "1k"))
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kube.BatchGate}, {Name: "example.com/quota"}}
	s.must(s.client.Create(s.ctx, gated))
	log := slog.New(slog.DiscardHandler)

	short, stop := context.WithTimeout(s.ctx, time.Second)
	defer stop()
	if err := Uninstall(short, s.rc, key, log); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with agents that do not end: %v", err)
	}
	var set appsv1.DaemonSet
	s.must(s.client.Get(s.ctx, key, &set))
	if set.DeletionTimestamp == nil {
		t.Fatal("the DaemonSet stays")
	}
	var report v1alpha1.NodeReport
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "a"}, &report)) // the report stays as long as agents run
	gone()
	for range 2 { // the second call finds nothing to do
		s.must(Uninstall(s.ctx, s.rc, key, log))
		var n corev1.Node
		s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "a"}, &n))
		if offersBatch(&n) || n.Status.Capacity.Cpu().Value() != 4 {
			t.Errorf("node a has %v of %v", n.Status.Allocatable, n.Status.Capacity)
		}
		for name, want := range map[string]string{"b": "", "c": config.RolloutNever} {
			var other corev1.Node
			s.must(s.client.Get(s.ctx, client.ObjectKey{Name: name}, &other))
			if got := other.Labels[config.LabelRollout]; got != want {
				t.Errorf("node %s is left with the label %q", name, got)
			}
		}
		s.must(s.client.Get(s.ctx, client.ObjectKeyFromObject(gated), gated))
		if g := gated.Spec.SchedulingGates; len(g) != 1 || g[0].Name != "example.com/quota" {
			t.Errorf("a batch pod is left with the gates %v", g)
		}
		if err := s.client.Get(s.ctx, client.ObjectKey{Name: "a"}, &report); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the report of node a: %v", err)
		}
	}
}

// TestUninstallDoesNotWaitForLostNodes checks that Uninstall does not wait for
// a pod on a node that has no kubelet, because such a pod never ends.
func TestUninstallDoesNotWaitForLostNodes(t *testing.T) {
	s := newScene(t)
	key, gone := s.agents()
	defer gone()
	batch := corev1.ResourceList{kube.BatchCPU: resource.MustParse("1500"), kube.BatchMemory: resource.MustParse("4Gi")}
	for name, state := range map[string]corev1.ConditionStatus{"lost": corev1.ConditionUnknown, "works": corev1.ConditionTrue} {
		s.must(
			s.client.Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
				Capacity: batch, Allocatable: batch, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: state}}}}),
			s.client.Create(s.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name, Labels: map[string]string{"app": "tenond"}},
				Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "tenond", Image: "tenond"}}}}))
	}
	log := &watchedLog{}
	run := func(limit time.Duration) error {
		ctx, stop := context.WithTimeout(s.ctx, limit)
		defer stop()
		return uninstall(ctx, s.rc, key, 0, slog.New(slog.NewTextHandler(log, nil)))
	}
	if err := run(2 * checkInterval); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with an agent on a node that works: %v", err)
	}
	none := int64(0)
	s.must(s.client.Delete(s.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "works"}}, &client.DeleteOptions{GracePeriodSeconds: &none}))
	s.must(run(soon))
	if log.count("nodes=[lost]") != 1 {
		t.Error("the log does not name the node")
	}
	for _, name := range []string{"lost", "works"} {
		var n corev1.Node
		s.must(s.client.Get(s.ctx, client.ObjectKey{Name: name}, &n))
		if offersBatch(&n) {
			t.Errorf("node %s is left with %v", name, n.Status.Allocatable)
		}
	}
	s.must(s.client.Delete(s.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "lost"}}, &client.DeleteOptions{GracePeriodSeconds: &none}))
}

// TestUninstallNeedsNoReports deletes the CRD of the reports first, as Argo CD does,
// which deletes all objects of the chart before it runs the removal.
func TestUninstallNeedsNoReports(t *testing.T) {
	s := newScene(t)
	batch := corev1.ResourceList{kube.BatchCPU: resource.MustParse("1500"), kube.BatchMemory: resource.MustParse("4Gi")}
	s.must(s.client.Create(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Capacity: batch, Allocatable: batch}}))
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("nodereports.tenon.sh")
	s.must(s.client.Delete(s.ctx, crd))
	t.Cleanup(func() {
		_, err := envtest.InstallCRDs(control.rc, envtest.CRDInstallOptions{Paths: control.env.CRDInstallOptions.Paths, ErrorIfPathMissing: true})
		s.must(err)
	})
	s.waitUntil("the CRD is gone", soon, func() bool {
		return apierrors.IsNotFound(s.client.Get(s.ctx, client.ObjectKeyFromObject(crd), crd))
	})
	s.must(Uninstall(s.ctx, s.rc, client.ObjectKey{Namespace: s.name, Name: "tenond"}, slog.New(slog.DiscardHandler)))
	var n corev1.Node
	s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "a"}, &n))
	if offersBatch(&n) {
		t.Errorf("node a is left with %v", n.Status.Allocatable)
	}
}
