package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

func TestNobodyButAKubeletMovesAPodToAnotherCgroup(t *testing.T) {
	for name, tc := range map[string]struct {
		owner string
		notes map[string]string
		want  string
	}{
		"a hash of a user's":      {"", map[string]string{"kubernetes.io/config.hash": "victim"}, "own"},
		"a file of a user's":      {"", map[string]string{"kubernetes.io/config.hash": "victim", "kubernetes.io/config.source": "file"}, "own"},
		"a mirror of a user's":    {"", map[string]string{corev1.MirrorPodAnnotationKey: "victim"}, "own"},
		"a mirror of a Job's":     {"Job", map[string]string{corev1.MirrorPodAnnotationKey: "victim"}, "own"},
		"a mirror of a kubelet's": {"Node", map[string]string{corev1.MirrorPodAnnotationKey: "8f3e", "kubernetes.io/config.hash": "8f3e", "kubernetes.io/config.source": "file"}, "8f3e"},
	} {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "own", Annotations: tc.notes}}
		if tc.owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: tc.owner, Name: "n", Controller: new(true)}}
		}
		SlimOfAPI(&p)
		if got := kube.UID(&p); got != tc.want {
			t.Errorf("%s: its cgroup is that of %q, want %q", name, got, tc.want)
		}
	}
}
