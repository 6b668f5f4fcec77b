package manager

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// spaces is a client of a cluster with one profile, and one namespace or none.
type spaces struct {
	client.Reader
	namespace string // has the label team: batch
	asked     int
}

func (s *spaces) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	s.asked++
	if key.Name != s.namespace {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	to.SetName(key.Name)
	to.SetLabels(map[string]string{"team": "batch"})
	return nil
}

func (s *spaces) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	if list, is := to.(*configv1alpha1.ClusterColocationProfileList); is {
		list.Items = []configv1alpha1.ClusterColocationProfile{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       configv1alpha1.ClusterColocationProfileSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "batch"}}, QoSClass: "BE"},
		}}
	}
	return nil
}

// TestTheFirstPodsOfANamespaceHaveItsProfiles checks that profiles apply to a
// pod although the cache does not have its namespace yet.
func TestTheFirstPodsOfANamespaceHaveItsProfiles(t *testing.T) {
	pod, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		cached, live string
		be           bool
		asked        int // number of reads from the API server
	}{
		"the cache knows it":     {"new", "new", true, 0},
		"it was just made":       {"", "new", true, 1},
		"it is not there at all": {"", "", false, 1},
	} {
		live := &spaces{namespace: x.live}
		h := &hooks{client: &spaces{namespace: x.cached}, live: live, log: slog.New(slog.DiscardHandler)}
		answer := h.mutatePod(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "new", Object: runtime.RawExtension{Raw: pod}}})
		patch, err := json.Marshal(answer.Patches)
		if err != nil {
			t.Fatal(err)
		}
		if be := strings.Contains(string(patch), `"BE"`); !answer.Allowed || be != x.be || live.asked != x.asked {
			t.Errorf("%s: BE %v, asked %d times: %s %v", name, be, live.asked, patch, answer.Result)
		}
	}
}
