package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/tenant"
)

// ValidateQuota warns about resources of a ResourceQuota that never count.
func ValidateQuota(q *corev1.ResourceQuota) Verdict {
	var v Verdict
	if names := tenant.Uncounted(q); len(names) > 0 {
		v.warn(Ignored, strings.Join(hardFields(names), ", "), "this quota bounds no batch resources, because %s", tenant.InsteadOfQuota)
	}
	return v
}

func hardFields(names []corev1.ResourceName) []string {
	var all []string
	for _, n := range names {
		all = append(all, "spec.hard["+string(n)+"]")
	}
	return all
}
