package stored

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

// TestARunningPodCanBeCreatedAgain creates a copy of a pod of the API server.
func TestARunningPodCanBeCreatedAgain(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"c": "d"}, Annotations: map[string]string{
		kube.AnnotationCPUs: "{}", kube.AnnotationCPUSet: "{}", corev1.LastAppliedConfigAnnotation: "{}", "a": "b",
	}}}
	if Exists(p) {
		t.Error("a pod of a manifest exists")
	}
	p.UID, p.ResourceVersion, p.Finalizers, p.Spec.NodeName, p.Status.Phase = "u", "7", []string{"x"}, "n", corev1.PodRunning
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	again := Again(p)
	if !Exists(p) || Exists(again) || again.Spec.NodeName != "" || len(again.Finalizers)+len(again.Spec.EphemeralContainers) > 0 || again.Status.Phase != "" {
		t.Errorf("%+v", again)
	}
	if again.Name != p.Name || len(again.Annotations) != 1 || again.Annotations["a"] != "b" || len(again.Labels) != len(p.Labels) {
		t.Errorf("%+v", again.ObjectMeta)
	}
	if len(p.Annotations) != 4 {
		t.Error("the pod was changed")
	}
}
