package manager

import (
	"net/http"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"
)

// mapper returns the API resources that the manager reads and writes, from a fixed list. The
// usual mapper asks the API server at the start. If the API server did not answer, the
// manager would end, and the kubelet would restart it after longer and longer waits.
func mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	for scope, kinds := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeRoot: {
			corev1.SchemeGroupVersion.WithKind("Node"),
			corev1.SchemeGroupVersion.WithKind("Namespace"),
			schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
			authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), // its own rights
			admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
			admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
			v1alpha1.GroupVersion.WithKind("NodeReport"),
			configv1alpha1.GroupVersion.WithKind("ClusterColocationProfile"),
		},
		meta.RESTScopeNamespace: {
			corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			corev1.SchemeGroupVersion.WithKind("Secret"),
			corev1.SchemeGroupVersion.WithKind("LimitRange"),
			corev1.SchemeGroupVersion.WithKind("Pod"),
		},
	} {
		for _, k := range kinds {
			m.Add(k, scope)
		}
	}
	return m, nil
}
