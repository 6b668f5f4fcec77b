package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// AnnotationDuration says how long a pod runs, such as 90m or 6h.
const AnnotationDuration = "tenon.sh/duration"

// DurationOf returns how long a pod says that it runs. Without the annotation, a pod
// runs at most for its activeDeadlineSeconds. A chart writes an empty annotation if its
// value is not set.
func DurationOf(p *corev1.Pod) (node.Maybe[time.Duration], []Fault) {
	if text := p.Annotations[AnnotationDuration]; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return node.Maybe[time.Duration]{}, faultOf(AnnotationDuration, "%.64q: want a time such as 90m or 6h", text)
		}
		return node.Some(d), nil
	}
	if s := p.Spec.ActiveDeadlineSeconds; s != nil && *s > 0 && *s <= int64(longestDeadline/time.Second) {
		return node.Some(time.Duration(*s) * time.Second), nil
	}
	return node.Maybe[time.Duration]{}, nil
}

// longestDeadline is the longest activeDeadlineSeconds that says something about a pod.
const longestDeadline = 365 * 24 * time.Hour
