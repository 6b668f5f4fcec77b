package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/unit"
)

// replace renames resources of the pod as the annotation AnnotationReplace says.
func replace(p *corev1.Pod, v *Verdict) {
	text, asked := p.Annotations[AnnotationReplace]
	if !asked {
		return
	}
	defaults := givenByRange(p)
	for pair := range strings.SplitSeq(text, ",") {
		from, to, cut := strings.Cut(strings.TrimSpace(pair), ":")
		if !cut || from == "" {
			v.refuse(annotation(AnnotationReplace), "%s: want from:to pairs such as cpu:kubernetes.io/batch-cpu, with a comma between them", quoteText(pair))
			return
		}
		for _, c := range places(p) {
			for _, l := range c.lists() {
				l.rename(corev1.ResourceName(from), corev1.ResourceName(to), defaults[rangeDefault{l.name, c.Name, corev1.ResourceName(from)}])
			}
		}
	}
}

// rename moves an amount from one resource (from) to another (to), and converts
// its unit. If to is empty, rename deletes the amount. If the new resource
// already has an amount, rename keeps that amount: an earlier call has renamed
// the resource, and the API server has since added a default under the old
// name. This default becomes 0 (see clearDefaults). A limit of 0 means no limit,
// but a request of 0 is a request.
func (l list) rename(from, to corev1.ResourceName, isDefault bool) {
	of, none := l.of, func(q resource.Quantity) bool { return q.IsZero() && l.name != "requests" }
	q, asked := of[from]
	has, twice := of[to]
	switch {
	case !asked || from == to:
		return
	case to != "" && twice && !none(has):
		if isDefault {
			of[from] = resource.Quantity{Format: resource.DecimalSI}
			return
		}
	case to != "" && none(q):
		return
	case to != "":
		if q.Sign() < 0 || countsCPU(from) && q.Cmp(mostOf(from)) > 0 {
			return // a later check refuses the amount
		}
		of[to] = convertUnit(q, from, to)
	}
	delete(of, from)
}

// isInMilli reports whether amounts of the resource n are in thousandths of a
// CPU.
func isInMilli(n corev1.ResourceName) bool {
	if n == batch.cpu || n == mid.cpu {
		return true
	}
	for _, f := range formerNames {
		if f.from == n {
			return f.to == batch.cpu
		}
	}
	return false
}

func countsCPU(n corev1.ResourceName) bool { return n == native.cpu || isInMilli(n) }

func mostOf(cpu corev1.ResourceName) resource.Quantity {
	if isInMilli(cpu) {
		return maxMilli
	}
	return maxCPUs
}

// convertUnit converts an amount from the unit of one resource to the unit of
// another.
func convertUnit(q resource.Quantity, from, to corev1.ResourceName) resource.Quantity {
	switch {
	case from == native.cpu && isInMilli(to):
		return inBatchUnit(from, q)
	case isInMilli(from) && to == native.cpu:
		return quantity.OfCPU(unit.MilliCPU(quantity.Whole(q, unit.Up)))
	case from == native.memory && to != native.memory:
		return wholeBytes(q) // the API server takes no fractions of other resources
	}
	return q
}
