package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
)

// annotationLimitRange is an annotation that the API server adds to a pod if
// the pod gets defaults from a LimitRange. It lists these defaults:
// "LimitRanger plugin set: cpu, memory request for container web; cpu limit for
// init container fetch".
const annotationLimitRange = "kubernetes.io/limit-ranger"

// A rangeDefault names an amount that the API server took from a LimitRange.
type rangeDefault struct {
	list, container string
	resource        corev1.ResourceName
}

// givenByRange returns the amounts of cpu and memory that a pod has from a
// LimitRange.
func givenByRange(p *corev1.Pod) map[rangeDefault]bool {
	all := map[rangeDefault]bool{}
	_, text, _ := strings.Cut(p.Annotations[annotationLimitRange], "plugin set: ")
	for item := range strings.SplitSeq(text, "; ") {
		names, rest, _ := strings.Cut(item, " for ")
		container, named := strings.CutPrefix(strings.TrimPrefix(rest, "init "), "container ")
		list := ""
		if s, is := strings.CutSuffix(names, " request"); is {
			names, list = s, "requests"
		} else if s, is := strings.CutSuffix(names, " limit"); is {
			names, list = s, "limits"
		}
		if !named || list == "" {
			continue
		}
		for name := range strings.SplitSeq(names, ", ") {
			all[rangeDefault{list, container, corev1.ResourceName(name)}] = true
		}
	}
	return all
}

// clearDefaults sets the amounts of cpu and memory that a container has from a
// LimitRange to 0. It does not delete them, because the API server applies the
// LimitRange again after the webhooks, and would add a missing amount again. To
// Kubernetes, 0 means no amount.
func (c place) clearDefaults(defaults map[rangeDefault]bool) {
	for _, l := range c.lists() {
		for _, n := range native.both() {
			if defaults[rangeDefault{l.name, c.Name, n}] && l.of != nil {
				l.of[n] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
}

// mayBeDefault returns a hint for a refusal, which says that the amount may
// come from a LimitRange. It returns "" if the pod has no such default.
func mayBeDefault(p *corev1.Pod) string {
	if p.Annotations[annotationLimitRange] == "" || kube.Class(p) == "" {
		return ""
	}
	return " (a LimitRange of the namespace may have put it there)"
}
