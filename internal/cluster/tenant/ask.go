package tenant

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/node"
)

// An ask is one thing for which a pod asks.
type ask struct {
	right Right
	// field is the path of the field by which the pod asks.
	field string
	// text is the value of the field, and cpus the number of own CPUs. A pod that
	// had the same text, or as many CPUs, asks for nothing new.
	text string
	cpus int
	// what names the thing for a message, and instead what to write without it.
	what, instead string
}

// isIn reports whether a is no more than b, for which the pod asked before.
func (a ask) isIn(b ask) bool {
	return a.right == b.right && a.field == b.field && (a.text == b.text || 0 < a.cpus && a.cpus <= b.cpus)
}

// overrides are the annotations that change the settings of the class for one
// pod, or the order of evictions.
var overrides = []string{
	kube.AnnotationCPUBurst, kube.AnnotationCPUQOS, kube.AnnotationMemoryQOS, kube.AnnotationBlkIOQOS, kube.AnnotationNetworkQOS, kube.AnnotationResctrl,
	kube.AnnotationEvictionPolicy, kube.AnnotationEvictionPriority, kube.AnnotationACKCPUBurst, kube.AnnotationACKMemoryQOS,
}

func label(key string) string      { return "metadata.labels[" + key + "]" }
func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// asksOf lists that for which a pod asks.
func asksOf(p *corev1.Pod) []ask {
	all := []ask{classOf(p)}
	if priority := kube.Priority(p); priority != "" {
		field := "spec.priorityClassName"
		if _, labelled := p.Labels[kube.LabelPriorityClass]; labelled {
			field = label(kube.LabelPriorityClass)
		}
		all = append(all, ask{right: Right(priority), field: field, text: string(priority), what: "the priority " + string(priority), instead: "want another priority class, or none"})
	}
	if d, demands, _ := kube.DemandOf(p); demands && d.Grade == pick.Own {
		field := annotation(kube.AnnotationCPUSetScheduler)
		if c := kube.Class(p); c == node.LSE || c == node.LSR {
			field = all[0].field
		}
		all = append(all, ask{right: OwnCPUs, field: field, text: fmt.Sprint(d.CPUs), cpus: d.CPUs, what: fmt.Sprintf("own CPUs (%d)", d.CPUs), instead: "want class LS without " + kube.AnnotationCPUSetScheduler})
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
	if kube.Class(p) == node.BE {
		all = append(all, aboveRequests(p)...)
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
// batch resources than it requests. A container that keeps cpu and memory is
// bounded by these.
func aboveRequests(p *corev1.Pod) []ask {
	var all []ask
	each := func(list string, of []corev1.Container) {
		for i := range of {
			c := &of[i]
			for _, n := range []struct{ batch, native corev1.ResourceName }{{kube.BatchCPU, corev1.ResourceCPU}, {kube.BatchMemory, corev1.ResourceMemory}} {
				request, limit := c.Resources.Requests[n.batch], c.Resources.Limits[n.batch]
				native := c.Resources.Limits[n.native]
				if native.Sign() > 0 || limit.Sign() > 0 && request.Cmp(limit) == 0 {
					continue
				}
				field := fmt.Sprintf("%s[%.63s].resources.limits[%s]", list, c.Name, n.batch)
				all = append(all, ask{
					right: BatchAboveRequests, field: field, text: request.String() + " of " + limit.String(),
					what: "batch work above its requests", instead: fmt.Sprintf("want requests equal to limits for %s", n.batch),
				})
			}
		}
	}
	each("spec.initContainers", p.Spec.InitContainers)
	each("spec.containers", p.Spec.Containers)
	return all
}
