package admission

import (
	"slices"
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

// Ranges are the LimitRanges of a namespace.
type Ranges []corev1.LimitRange

// imposed returns the defaults for an amount in one of the two lists of a
// container, if a LimitRange has a minimum or a ratio for the resource. The API
// server then refuses a pod with 0 in place of the default.
func (r Ranges) imposed(list string, n corev1.ResourceName) []resource.Quantity {
	var defaults []resource.Quantity
	required := false
	for _, one := range r {
		for _, item := range one.Spec.Limits {
			least, ratio, of := item.Min[n], item.MaxLimitRequestRatio[n], item.DefaultRequest
			if list == "limits" {
				of = item.Default
			}
			required = required || item.Type != corev1.LimitTypePersistentVolumeClaim && (least.Sign() > 0 || ratio.Sign() > 0)
			if q, has := of[n]; has && item.Type == corev1.LimitTypeContainer {
				defaults = append(defaults, q)
			}
		}
	}
	if !required {
		return nil
	}
	return defaults
}

// clearDefaults sets the amounts of cpu and memory that come from a LimitRange
// to 0, which means no amount to Kubernetes. It does not delete them: the API
// server applies the LimitRange again after the webhooks, and would add them
// again.
//
// If a namespace has several LimitRanges, the annotation lists the amounts of
// the last one only. In a pod with the annotation, an amount beside the
// resource of k that replaces it therefore counts as a default, too.
//
// A default that a LimitRange imposes stays. The pod then has native cpu or
// memory beside its batch resources, and is outside the best-effort cgroup. Its
// node bounds it there.
func (c place) clearDefaults(k kind, defaults map[rangeDefault]bool, ranges Ranges, v *Verdict) {
	for _, l := range c.lists() {
		if l.of == nil {
			continue
		}
		for i, n := range native.both() {
			q, given := l.of[n]
			instead, imposed := k.both()[i], ranges.imposed(l.name, n)
			switch {
			case given && slices.ContainsFunc(imposed, q.Equal):
				v.warn(Uncounted, l.field(n), "%s stays, because a LimitRange of the namespace imposes a minimum or a ratio: the scheduler counts it beside the batch resources, and the pod is among services on its node", q.String())
				continue
			case !given && len(imposed) > 0:
				continue // the LimitRange adds it again
			case defaults[rangeDefault{l.name, c.Name, n}]:
			case len(defaults) > 0 && q.Sign() > 0 && c.names(instead):
				v.warn(Replaced, l.field(n), "%s beside %s counts as a default of a LimitRange, and is set to 0", q.String(), instead)
			default:
				continue
			}
			l.of[n] = resource.Quantity{Format: resource.DecimalSI}
		}
	}
}

// names reports whether a container has a request or a limit for a resource,
// which may be 0.
func (c place) names(n corev1.ResourceName) bool {
	return slices.ContainsFunc(c.lists(), func(l list) bool { _, has := l.of[n]; return has })
}

// mayBeDefault returns a hint for a refusal: the amount may come from a
// LimitRange. It returns "" for a pod without amounts from a LimitRange.
func mayBeDefault(p *corev1.Pod) string {
	if p.Annotations[annotationLimitRange] == "" || kube.Class(p) == "" {
		return ""
	}
	return " (a LimitRange of the namespace may have put it there)"
}
