package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOnlyAKubeletCreatesAMirror creates the mirror of a static pod as a kubelet, as an
// administrator and as an ordinary user. Each of them may create any other pod.
func TestOnlyAKubeletCreatesAMirror(t *testing.T) {
	for name, x := range map[string]struct {
		groups []string
		may    bool
	}{
		"a kubelet":        {[]string{"system:nodes", "system:authenticated"}, true},
		"an administrator": {[]string{"system:masters"}, true},
		"a user":           {[]string{"system:authenticated"}, false},
		"a pod":            {[]string{"system:serviceaccounts", "system:serviceaccounts:system:nodes"}, false},
		"no group":         {nil, false},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: "a"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u", Controller: new(true)}},
		}}
		if v := ValidateMirror(p, x.groups); v.Allowed() != x.may {
			t.Errorf("%s: %s", name, v.Message())
		}
		p.OwnerReferences = nil // then it is an ordinary pod, which all checks look at
		if v := ValidateMirror(p, x.groups); !v.Allowed() {
			t.Errorf("%s, a pod that is no mirror: %s", name, v.Message())
		}
	}
}
