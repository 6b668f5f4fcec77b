package tenant

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Uncounted returns the resources of a ResourceQuota that Kubernetes accepts and
// never counts, in alphabetical order. It counts cpu, memory and names outside
// kubernetes.io (k8s.io/kubernetes/pkg/quota/v1/evaluator/core: pods.go). The
// webhook gives pods the names below kubernetes.io, so the former names of these
// resources count nothing either.
func Uncounted(q *corev1.ResourceQuota) []corev1.ResourceName {
	var all []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		of := strings.TrimPrefix(strings.TrimPrefix(string(name), "requests."), "limits.")
		if slices.ContainsFunc(batchPrefixes, func(p string) bool { return strings.HasPrefix(of, p) }) {
			all = append(all, name)
		}
	}
	return all
}

var batchPrefixes = []string{
	"kubernetes.io/batch-", "kubernetes.io/mid-", "koordinator.sh/batch-", "koordinator.sh/mid-", "alibabacloud.com/reclaimed",
}

// InsteadOfQuota says what bounds the batch resources of a namespace.
const InsteadOfQuota = "Kubernetes does not count them: want a LimitRange with max for each container or pod, and pods in this quota"
