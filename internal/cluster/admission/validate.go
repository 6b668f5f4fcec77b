package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// kubelets are the groups of users that may create the mirror of a static pod: kubelets
// (admission plugin NodeRestriction), and administrators of the whole cluster.
var kubelets = []string{"system:nodes", "system:masters"}

// ValidateMirror refuses a pod that looks like the mirror of a static pod and that no
// kubelet creates. groups are those of the user. No other check looks at a mirror, and the
// kubelet deletes a false one only after it was bound: until then it takes room.
func ValidateMirror(p *corev1.Pod, groups []string) Verdict {
	var v Verdict
	if isMirror(p) && !slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(kubelets, g) }) {
		v.refuse(annotation(corev1.MirrorPodAnnotationKey), "only a kubelet creates the mirror of a static pod: leave the annotation out")
	}
	return v
}

// ValidateCreate checks a new pod after Mutate and all other webhooks have
// changed it. colocationOff and ranges have the same meaning as in Request. in
// says what the pods of the namespace may ask for, also by a profile.
func ValidateCreate(p *corev1.Pod, in tenant.Namespace, colocationOff bool, ranges Ranges) Verdict {
	var v Verdict
	if isMirror(p) {
		return v
	}
	v.refuseFaults(in.Refuse(nil, p))
	if kube.IsIgnored(p) {
		return v
	}
	v.checkWords(p, nil)
	class := kube.Class(p)
	v.checkPriority(p, class)
	switch class {
	case node.BE:
		v.Refusals = append(v.Refusals, Unbounded(p, colocationOff, ranges)...)
		if keeps := colocationOff && !asksBatch(p); !keeps || kube.QOSClass(p) == corev1.PodQOSBestEffort {
			v.warnUnusual(p)
		}
	case node.LSR, node.LSE:
		v.checkWholeCPUs(p, class)
	}
	if class != node.BE {
		v.refuseBatch(p, class)
	}
	v.checkMid(p)
	return v
}

// ValidateUpdate checks a change of a pod. It checks only the changed values,
// because the pod may be older than a rule. It warns if the change takes CPUs
// away from a running pod. in says what the pods of the namespace may ask for.
func ValidateUpdate(old, p *corev1.Pod, in tenant.Namespace) Verdict {
	var v Verdict
	v.refuseFaults(in.Refuse(old, p))
	if kube.IsIgnored(p) {
		v.warnTaken(old, p)
		return v
	}
	for _, key := range []string{kube.LabelQOSClass, kube.LabelPriorityClass, kube.LabelSubPriority} {
		v.checkUnchanged(label(key), old.Labels, p.Labels, key)
	}
	for _, key := range []string{kube.AnnotationACKQOSClass, kube.AnnotationExtended} {
		v.checkUnchanged(annotation(key), old.Annotations, p.Annotations, key)
	}
	if kube.Priority(old) != kube.Priority(p) && v.Allowed() {
		v.refuse("spec.priority", "%s cannot become %s while the pod lives: create it anew", orNone(string(kube.Priority(old))), orNone(string(kube.Priority(p))))
	}
	v.checkWords(p, old)
	v.warnTaken(old, p)
	return v
}

// checkUnchanged refuses a change of a label or annotation that nodes read only
// when the pod starts.
func (v *Verdict) checkUnchanged(field string, old, now map[string]string, key string) {
	was, had := old[key]
	is, has := now[key]
	if was != is || had != has {
		v.refuse(field, "%s cannot become %s while the pod lives: create it anew", quotedOrNone(was, had), quotedOrNone(is, has))
	}
}

func quotedOrNone(s string, has bool) string {
	if !has {
		return "none"
	}
	return quoteText(s)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// checkWords refuses labels and annotations that Tenon cannot read. It warns
// about those that Tenon reads but ignores. In an update, it refuses only
// changed labels and annotations.
func (v *Verdict) checkWords(p, old *corev1.Pod) {
	_, faults := kube.OverridesOf(p)
	for _, f := range slices.Concat(kube.Faults(p), faults, Advice(p)) {
		text, labelled := p.Labels[f.Key]
		if !labelled {
			text = p.Annotations[f.Key]
		}
		if f.Key == kube.AnnotationExtended && !labelled && old == nil && kube.Class(p) == node.BE {
			continue // Unbounded checks this key
		}
		if old != nil && (old.Labels[f.Key] == text && labelled || old.Annotations[f.Key] == text && !labelled) {
			continue
		}
		if f.Inert {
			v.add(IgnoredIn(p, f))
			continue
		}
		v.refuse(fieldOf(p, f), "%s", f.Problem)
	}
}

// IgnoredIn returns the warning about a fault of a pod that makes Tenon ignore a
// label or annotation, or a part of it.
func IgnoredIn(p *corev1.Pod, f kube.Fault) Warning {
	return Warning{Code: Ignored, Field: fieldOf(p, f), Problem: f.Problem}
}

// fieldOf returns the path of the label or annotation of a fault.
func fieldOf(p *corev1.Pod, f kube.Fault) string {
	field := annotation(f.Key)
	if _, labelled := p.Labels[f.Key]; labelled {
		field = label(f.Key)
	}
	if f.Field != "" {
		field += "." + f.Field
	}
	return field
}

// checkPriority refuses a pod if its class and its priority contradict each
// other. A BE pod may lack a priority, because manifests for ACK have none.
func (v *Verdict) checkPriority(p *corev1.Pod, class node.Class) {
	priority := kube.Priority(p)
	switch {
	case class == node.BE && priority == kube.PriorityProd:
		v.refuse(priorityField(p), "koord-prod and class BE contradict each other: want koord-batch, or no priority class")
	case class == node.LSR && priority != "" && priority != kube.PriorityProd:
		v.refuse(priorityField(p), "%s and class %s contradict each other: want koord-prod, or no priority class", priority, class)
	}
}

func priorityField(p *corev1.Pod) string {
	if _, labelled := p.Labels[kube.LabelPriorityClass]; labelled {
		return label(kube.LabelPriorityClass)
	}
	return "spec.priorityClassName"
}

// checkWholeCPUs refuses an LSR or LSE pod if its CPU request is 0 or not a
// whole number.
func (v *Verdict) checkWholeCPUs(p *corev1.Pod, class node.Class) {
	asked := kube.Native(p).CPURequest.Or(0)
	if asked <= 0 || asked%unit.CPUs(1) != 0 {
		v.refuse("spec.containers.resources.requests[cpu]", "%v in total: a pod of class %s has exclusive CPUs: want a whole number such as 2, or class LS", asked, class)
	}
}

// refuseBatch refuses batch resources in a pod that is not BE. The class must be
// explicit, so that a wrong resource name cannot make a service best-effort.
func (v *Verdict) refuseBatch(p *corev1.Pod, class node.Class) {
	problem := "batch resources are for class BE, and this pod names no class: add the label " + kube.LabelQOSClass + ": BE, or ask for cpu and memory"
	if class != "" {
		problem = "batch resources are for class BE, and this pod is " + string(class) + ": write " + kube.LabelQOSClass + ": BE, or ask for cpu and memory"
	}
	for _, c := range places(p) {
		said := map[corev1.ResourceName]bool{}
		for _, l := range c.lists() {
			for _, n := range l.names() {
				if kube.IsBatch(n) && !said[n] {
					v.refuse(l.field(n), "%s", problem)
					said[n] = true
				}
			}
		}
	}
}

// checkMid warns about mid resources, because no node has any. It also refuses
// invalid amounts of them.
func (v *Verdict) checkMid(p *corev1.Pod) {
	for _, c := range places(p) {
		for _, l := range c.lists() {
			for _, n := range l.names() {
				if n == mid.cpu || n == mid.memory {
					v.checkAmount(l.field(n), n, l.of[n])
					v.warn(Pending, "", "no node offers %s with this version: the pod waits until one does", n)
				}
			}
		}
	}
}

// minCPU is the least CPU that the kernel can enforce: 1 ms in each 100 ms
// (Documentation/scheduler/sched-bwc.rst). With less memory than minMemory, a
// container runtime cannot start any process.
var (
	minCPU    = resource.MustParse("10")
	minMemory = resource.MustParse("6Mi")
)

// warnUnusual warns about values that are allowed but probably not intended.
func (v *Verdict) warnUnusual(p *corev1.Pod) {
	if isSkipped(p) && kube.QOSClass(p) != corev1.PodQOSBestEffort {
		v.warn(Unlimited, "", "the pod keeps its own cpu and memory: it uses no batch resources, and the limits of the best-effort work of its node do not apply to it")
	}
	none := 0
	for _, c := range places(p) {
		v.warnUncounted(c)
		cpu, memory := c.Resources.Limits[batch.cpu], c.Resources.Limits[batch.memory]
		if cpu.IsZero() && memory.IsZero() && !c.hasAny(mid.both()) {
			none++
		}
		if cpu.Sign() > 0 && cpu.Cmp(minCPU) < 0 {
			v.warn(TooSmall, c.amountField("limits", batch.cpu), "%s thousandths of a CPU is less than the kernel can enforce: 1k is one CPU", cpu.String())
		}
		if memory.Sign() > 0 && memory.Cmp(minMemory) < 0 {
			v.warn(TooSmall, c.amountField("limits", batch.memory), "%s bytes is too little to start anything: is a suffix such as Mi missing?", memory.String())
		}
		if (cpu.IsZero() || memory.IsZero()) && !(cpu.IsZero() && memory.IsZero()) {
			n := batch.cpu
			if memory.IsZero() {
				n = batch.memory
			}
			v.warn(Unlimited, c.amountField("limits", n), "missing: only the limit of all best-effort work of the node bounds it")
		}
	}
	if none > 0 && !isSkipped(p) {
		v.warn(Unlimited, "", "%d of %d containers have no batch resources: the scheduler does not count them, and only the limit of all best-effort work of the node bounds them", none, len(places(p)))
	}
}

// warnUncounted warns about requests that the scheduler hardly counts beside
// limits that allow work. Such pods are probably meant to request something.
func (v *Verdict) warnUncounted(c place) {
	for _, x := range []struct {
		n     corev1.ResourceName
		least resource.Quantity
		of    string
	}{{batch.cpu, minCPU, "thousandths of a CPU"}, {batch.memory, minMemory, "bytes"}} {
		request, limit := c.Resources.Requests[x.n], c.Resources.Limits[x.n]
		if limit.Cmp(x.least) >= 0 && request.Sign() >= 0 && request.Cmp(x.least) < 0 {
			v.warn(Uncounted, c.amountField("requests", x.n), "the scheduler counts %s %s for this container, and its limit is %s: want a request of what it uses", request.String(), x.of, limit.String())
		}
	}
}
