package stored

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsMadeBy reports whether an object of this kind and name has made a pod. A
// Deployment makes pods by its ReplicaSets, and a CronJob by its Jobs; the names
// of these end with another word after the last hyphen.
func IsMadeBy(p *corev1.Pod, kind, name string) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return false
	}
	if owner.Kind == kind {
		return owner.Name == name
	}
	between := map[string]string{"Deployment": "ReplicaSet", "CronJob": "Job"}[kind]
	at := strings.LastIndex(owner.Name, "-")
	return owner.Kind == between && at > 0 && owner.Name[:at] == name
}
