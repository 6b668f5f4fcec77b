package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
)

// annotationLimitRange is an annotation by which the API server lists the
// amounts that a LimitRange gave a pod: "LimitRanger plugin set: cpu, memory
// request for container web; cpu limit for init container fetch".
const annotationLimitRange = "kubernetes.io/limit-ranger"

// A rangeDefault identifies an amount that comes from a LimitRange.
type rangeDefault struct {
	list, container string
	resource        corev1.ResourceName
}

// givenByRange returns the amounts of cpu and memory that come from a
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

// clearDefaults sets the amounts of cpu and memory that come from a LimitRange
// to 0, which means no amount to Kubernetes. It does not delete them: the API
// server applies the LimitRange again after the webhooks, and would add them
// again.
func (c place) clearDefaults(defaults map[rangeDefault]bool) {
	for _, l := range c.lists() {
		for _, n := range native.both() {
			if defaults[rangeDefault{l.name, c.Name, n}] && l.of != nil {
				l.of[n] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
}

// mayBeDefault returns a hint for a refusal: the amount may come from a
// LimitRange. It returns "" for a pod without amounts from a LimitRange.
func mayBeDefault(p *corev1.Pod) string {
	if p.Annotations[annotationLimitRange] == "" || kube.Class(p) == "" {
		return ""
	}
	return " (a LimitRange of the namespace may have put it there)"
}
