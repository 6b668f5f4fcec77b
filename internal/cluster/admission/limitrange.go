package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
)

// annotationLimitRange is on pods that got defaults of a LimitRange. The API
// server writes there which: "LimitRanger plugin set: cpu, memory request for
// container web; cpu limit for init container fetch".
const annotationLimitRange = "kubernetes.io/limit-ranger"

// A given amount is one that nobody asked for: the API server put it there.
type given struct {
	list, container string
	resource        corev1.ResourceName
}

// givenByRange returns which amounts of cpu and memory a pod has from a
// LimitRange.
func givenByRange(p *corev1.Pod) map[given]bool {
	all := map[given]bool{}
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
			all[given{list, container, corev1.ResourceName(name)}] = true
		}
	}
	return all
}

// without sets to 0 what a container has of cpu and memory from a LimitRange. To
// take it away would be in vain: the API server puts it back after the webhooks.
// 0 is nothing to Kubernetes, and stays.
func (c place) without(defaults map[given]bool) {
	for _, l := range c.lists() {
		for _, n := range native.both() {
			if defaults[given{l.name, c.Name, n}] && l.of != nil {
				l.of[n] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
}

// mayBeDefault says in a refusal where an amount may come from.
func mayBeDefault(p *corev1.Pod) string {
	if p.Annotations[annotationLimitRange] == "" || kube.Class(p) == "" {
		return ""
	}
	return " (a LimitRange of the namespace may have put it there)"
}
