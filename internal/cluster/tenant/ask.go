package tenant

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
)

// An ask is one thing for which a pod asks.
type ask struct {
	right Right
	// field is the path of the field by which the pod asks.
	field string
	// text is the value of the field. amount is how much of it the pod asks for, in
	// a unit of the field, or 0 where nothing is counted. A pod that had the same
	// text, or as much, asks for nothing new.
	text   string
	amount int64
	// what names the thing for a message, and instead what to write without it.
	what, instead string
}

// isIn reports whether a is no more than b, for which the pod asked before.
func (a ask) isIn(b ask) bool {
	return a.right == b.right && a.field == b.field && (a.text == b.text || 0 < a.amount && a.amount <= b.amount)
}

// overrides are the annotations that change the settings of the class for one
// pod, or the order of evictions.
var overrides = []string{
	kube.AnnotationCPUBurst, kube.AnnotationCPUQOS, kube.AnnotationMemoryQOS, kube.AnnotationBlkIOQOS, kube.AnnotationNetworkQOS, kube.AnnotationResctrl,
	kube.AnnotationEvictionPolicy, kube.AnnotationEvictionPriority, kube.AnnotationACKCPUBurst, kube.AnnotationACKMemoryQOS,
}

func label(key string) string      { return "metadata.labels[" + key + "]" }
func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// asksOf lists that for which a pod asks. A pod that is left alone asks for that
// only: where it may be left alone, no webhook sees it.
func asksOf(p *corev1.Pod) []ask {
	if kube.IsIgnored(p) {
		return []ask{{right: Ignore, field: label(kube.LabelIgnore), text: p.Labels[kube.LabelIgnore], what: "pods that Tenon leaves alone", instead: "leave the label out"}}
	}
	all := append([]ask{classOf(p)}, prioritiesOf(p)...)
	if d, demands, _ := kube.DemandOf(p); demands && d.Policy == cpus.Exclusive {
		field := annotation(kube.AnnotationCPUSetScheduler)
		if c := kube.Class(p); c == node.LSE || c == node.LSR {
			field = all[0].field
		}
		all = append(all, ask{right: OwnCPUs, field: field, text: fmt.Sprint(d.CPUs), amount: int64(d.CPUs), what: fmt.Sprintf("own CPUs (%d)", d.CPUs), instead: "want class LS without " + kube.AnnotationCPUSetScheduler})
	}
	if text, given := p.Annotations[kube.AnnotationObjective]; given {
		all = append(all, ask{right: Objectives, field: annotation(kube.AnnotationObjective), text: text, what: "objectives", instead: "leave the annotation out"})
	}
	for _, key := range overrides {
		if text, given := p.Annotations[key]; given {
			all = append(all, ask{right: Overrides, field: annotation(key), text: text, what: "settings of its own", instead: "leave the annotation out"})
		}
	}
	if text, given := p.Labels[kube.LabelSubPriority]; given {
		all = append(all, ask{right: Overrides, field: label(kube.LabelSubPriority), text: text, what: "an order of evictions of its own", instead: "leave the label out"})
	}
	if kube.ClassWithDefault(p) == node.BE {
		if number := p.Spec.Priority; number != nil && *number > kube.Bands[kube.PriorityBatch].Highest && kube.PriorityOfNumber(p) == "" {
			all = append(all, ask{
				right: Overrides, field: "spec.priorityClassName", text: fmt.Sprint(*number), amount: int64(*number),
				what: fmt.Sprintf("a priority above that of batch work (%d)", *number), instead: "want the priority class koord-batch, or none",
			})
		}
		all = append(all, aboveRequests(p)...)
	}
	return all
}

// prioritiesOf returns an ask for the priority class in the label, and one for
// the class to which the pod's number belongs. Tenon reads the label first, but
// the schedulers order and preempt by the number.
func prioritiesOf(p *corev1.Pod) []ask {
	var all []ask
	of := func(class kube.PriorityClass, field string) {
		all = append(all, ask{right: Right(class), field: field, text: string(class), what: "the priority " + string(class), instead: "want another priority class, or none"})
	}
	number := kube.PriorityOfNumber(p)
	if class := kube.Priority(p); class != "" && class == kube.PriorityClass(p.Labels[kube.LabelPriorityClass]) {
		of(class, label(kube.LabelPriorityClass))
	}
	if number != "" {
		of(number, "spec.priorityClassName")
	}
	return all
}

// classOf returns the ask for the class of a pod. A pod without a class asks for
// the class that it gets.
func classOf(p *corev1.Pod) ask {
	field, class := label(kube.LabelQOSClass), kube.Class(p)
	if _, labelled := p.Labels[kube.LabelQOSClass]; !labelled && class != "" {
		field = annotation(kube.AnnotationACKQOSClass)
	}
	after, instead := "", "want another class"
	if class == "" {
		class = kube.ClassWithDefault(p)
		after, instead = ", which this pod gets because it names no class", "want this label with another class"
	}
	return ask{right: Right(class), field: field, text: string(class), what: "class " + string(class) + after, instead: instead}
}

// aboveRequests returns an ask for each container of a BE pod that may use more
// than it requests. A container with batch resources is bounded by these, also
// beside cpu and memory that a LimitRange imposes. A container that keeps cpu and
// memory is bounded by these.
func aboveRequests(p *corev1.Pod) []ask {
	var all []ask
	each := func(list string, of []corev1.Container) {
		for i := range of {
			for _, n := range []struct{ batch, native corev1.ResourceName }{{kube.BatchCPU, corev1.ResourceCPU}, {kube.BatchMemory, corev1.ResourceMemory}} {
				if a, above := aboveRequest(of[i].Resources, n.batch, n.native); above {
					a.field = fmt.Sprintf("%s[%.63s].%s", list, of[i].Name, a.field)
					if kube.Class(p) == "" {
						a.what += ", which a pod without a class and without requests is"
						a.instead = fmt.Sprintf("request cpu or memory, or write the label %s: BE and requests equal to limits for %s", kube.LabelQOSClass, n.batch)
					}
					all = append(all, a)
				}
			}
		}
	}
	each("spec.initContainers", p.Spec.InitContainers)
	each("spec.containers", p.Spec.Containers)
	return all
}

// aboveRequest reports whether a container may use more of one resource than it
// requests. The resource has a name for batch work and its native name.
func aboveRequest(r corev1.ResourceRequirements, batch, native corev1.ResourceName) (ask, bool) {
	name := batch
	if asked, limit, kept := r.Requests[batch], r.Limits[batch], r.Limits[native]; asked.Sign() <= 0 && limit.Sign() <= 0 && kept.Sign() > 0 {
		name = native
	}
	request, requested := r.Requests[name]
	limit := r.Limits[name]
	if !requested && name == native {
		request = limit // the API server fills in this default
	}
	if limit.Sign() > 0 && request.Cmp(limit) == 0 {
		return ask{}, false
	}
	a := ask{
		right: BatchAboveRequests, field: fmt.Sprintf("resources.limits[%s]", name), text: request.String() + " of " + limit.String(),
		what: "batch work above its requests", instead: fmt.Sprintf("want requests equal to limits for %s", name),
	}
	a.amount = math.MaxInt64 // without a limit
	if above := limit.DeepCopy(); limit.Sign() > 0 {
		above.Sub(request)
		if above.Value() < math.MaxInt64/1000 {
			a.amount = above.MilliValue()
		}
	}
	return a, true
}
