package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Workloads returns the workloads of the pods of a node, sorted by name. It also
// returns remarks for the user about values that it could not read, and about
// combinations that Tenon cannot enforce. exists reports whether a cgroup exists: a pod
// without a cgroup has not started yet, or has ended.
//
// Each pod is one workload, except those that Tenon leaves alone. If a BE pod has batch resources, they determine the weight,
// quota and memory limit of its cgroup and of its containers' cgroups, because the
// kubelet does not know these resources. The kubelet enforces all other limits, and
// Tenon only adds to them. A new container gets its limits from the runtime through
// NRI. If NRI is off or missed the container, the loop sets them. The loop raises the
// limit of the pod before those of its containers, and lowers it after them.
func Workloads(pods []corev1.Pod, l Layout, exists func(node.CgroupPath) bool) ([]node.Workload, []string) {
	s := scene{layout: l, exists: exists, named: map[string]bool{}}
	for i := range pods {
		p := &pods[i]
		if HasEnded(p) {
			continue
		}
		if _, hash := p.Annotations[annotationMirror]; !hash || !slices.ContainsFunc(pods, func(o corev1.Pod) bool { return &o != p && string(o.UID) == UID(p) }) {
			s.pods = append(s.pods, p)
		}
	}
	slices.SortFunc(s.pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(NameOf(a), NameOf(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(UID(a), UID(b)))
	})
	s.look()
	workloads := make([]node.Workload, 0, len(s.pods))
	for _, p := range s.pods {
		if w, there := s.workload(p); there {
			workloads = append(workloads, w)
		}
	}
	return workloads, s.remarks
}

// Arriving returns the pods that are bound to the node and have no cgroup yet,
// as workloads with requests only. The kubelet has admitted these pods or soon
// will, so the node needs room for their requests.
func Arriving(pods []corev1.Pod, l Layout, exists func(node.CgroupPath) bool) []node.Workload {
	var all []node.Workload
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase != corev1.PodPending && p.Status.Phase != "" || exists(l.Pod(p)) || IsIgnored(p) {
			continue
		}
		s := scene{layout: l, exists: exists}
		w := node.Workload{ID: node.WorkloadID(NameOf(p)), Starting: true}
		w.Class, w.Rule = classAndRule(p)
		s.amounts(p, &w)
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b node.Workload) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

// A scene holds the pods of a node, with the data that Workloads needs for each pod.
type scene struct {
	layout  Layout
	exists  func(node.CgroupPath) bool
	pods    []*corev1.Pod
	named   map[string]bool // the names that workloads have
	only    map[node.CgroupPath]side
	remarks []string
}

// A side is a group of classes whose pods may share a cgroup.
type side string

func sideOf(c node.Class) side {
	switch {
	case c == node.BE:
		return "best-effort"
	case c.Sensitive():
		return "sensitive"
	}
	return "system"
}

// look finds the side (the group of classes) of the pods in each QoS cgroup. A
// cgroup whose pods have several sides is "mixed".
func (s *scene) look() {
	s.only = map[node.CgroupPath]side{}
	for _, p := range s.pods {
		if !s.exists(s.layout.Pod(p)) {
			continue
		}
		at := s.layout.QOS(QOSClass(p))
		have, own := s.only[at], sideOf(ClassWithDefault(p))
		if IsIgnored(p) {
			own = "ignored" // no file of the cgroup may act on it
		}
		if have != "" && have != own {
			own = "mixed"
		}
		s.only[at] = own
	}
}

func (s *scene) remark(p *corev1.Pod, text string) {
	s.remarks = append(s.remarks, "pod "+NameOf(p)+": "+text)
}

func (s *scene) workload(p *corev1.Pod) (node.Workload, bool) {
	w := node.Workload{ID: node.WorkloadID(NameOf(p)), Pod: true, Cgroup: s.layout.Pod(p)}
	if !s.exists(w.Cgroup) || IsIgnored(p) {
		return w, false
	}
	// A new pod may start while the old one with its name ends. The old one keeps its ID, and
	// so all that is known of it.
	if s.named[NameOf(p)] {
		w.ID += node.WorkloadID("/" + UID(p))
	}
	s.named[NameOf(p)] = true
	w.Class, w.Rule = classAndRule(p)
	s.root(p, &w)
	s.amounts(p, &w)
	w.Priority, w.DefaultPriority = priorityOf(p), defaultPriority(p)
	w.Unlabelled = Class(p) == "" && w.Class == node.BE
	w.Daemon, w.Owner = isDaemon(p), ownerOf(p)
	w.Starting = p.Status.Phase == corev1.PodPending
	if w.Class == node.BE {
		w.StartLimit = startLimit(p)
	}
	w.Passing = p.Spec.RestartPolicy != "" && p.Spec.RestartPolicy != corev1.RestartPolicyAlways || p.Labels["app.kubernetes.io/part-of"] == "tenon"
	w.SubPriority, _ = SubPriority(p)
	w.EvictionPriority, _ = EvictionPriority(p)
	var faults []Fault
	w.Overrides, faults = OverridesOf(p)
	for _, f := range append(faults, Faults(p)...) {
		s.remark(p, f.String())
	}
	return w, true
}

// root sets the contention root of a pod (docs/glossary.md). It is the cgroup
// of the QoS class if all pods in that cgroup have the same side. Otherwise it
// is the cgroup of the pod. It is always that cgroup for Guaranteed pods, and
// for BE pods whose QoS class is not BestEffort.
func (s *scene) root(p *corev1.Pod, w *node.Workload) {
	kube := QOSClass(p)
	level := s.layout.QOS(kube)
	w.ContentionRoot = w.Cgroup
	alone := kube != corev1.PodQOSGuaranteed && s.only[level] == sideOf(w.Class)
	if w.Class == node.BE {
		alone = alone && kube == corev1.PodQOSBestEffort
	}
	if !alone {
		return
	}
	w.ContentionRoot = level
	if w.Class == node.BE && !s.layout.QOSIdle {
		w.IdleCgroup = w.Cgroup
	}
}

// amounts sets the requests and limits of the pod and its containers. It also
// records which component enforces each of them.
func (s *scene) amounts(p *corev1.Pod, w *node.Workload) {
	native, batch := Native(p), Batch(p)
	said, _ := Extended(p)
	asksCPU, asksMemory := batch.CPURequest.Known(), batch.MemoryRequest.Known()
	if mixed := asksCPU && native.CPURequest.Or(0) > 0 || asksMemory && native.MemoryRequest.Or(0) > 0; mixed {
		s.remark(p, "has batch resources and native cpu or memory: want only one kind")
	}
	if (asksCPU || asksMemory) && w.Class != node.BE {
		s.remark(p, fmt.Sprintf("has batch resources and class %s: Tenon enforces them only for class BE", w.Class))
		asksCPU, asksMemory = false, false
	}
	own := choose(asksCPU, asksMemory, batch, native)
	w.Mid = w.Class == node.BE && Priority(p) == PriorityMid && !asksCPU && !asksMemory
	if w.Class != node.BE || w.Mid {
		own = replaceMissing(own, Mid(p))
	}
	if w.Class == node.BE && !own.CPURequest.Known() {
		own.CPURequest = node.Some[unit.MilliCPU](0) // the request of this BE pod is 0, not unknown
	}
	w.CPURequest, w.MemoryRequest = own.CPURequest, own.MemoryRequest
	w.CPULimit, w.MemoryLimit = own.CPULimit, own.MemoryLimit
	w.CPUManagedExternally, w.MemoryManagedExternally = !asksCPU, !asksMemory
	// The cgroup of the pod keeps the weight that the kubelet wrote. Since
	// Kubernetes 1.36, the kubelet computes a CPU request from this weight. A
	// changed weight would reduce the CPU that services may request.
	for _, c := range statusesOf(p) {
		path := s.layout.find(w.Cgroup, c.id, s.exists)
		if path == "" {
			continue
		}
		part := partOf(c.spec, asksCPU, asksMemory, said)
		part.Cgroup = path
		w.Containers = append(w.Containers, part)
	}
	slices.SortFunc(w.Containers, func(a, b node.Container) int { return strings.Compare(string(a.Cgroup), string(b.Cgroup)) })
}

// isDaemon reports whether a DaemonSet owns the pod.
func isDaemon(p *corev1.Pod) bool {
	for _, o := range p.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			return o.Kind == "DaemonSet"
		}
	}
	return false
}

// ownerOf returns the controller of a pod as Kind/name. A CronJob adds the minute to
// the names of its Jobs, which ownerOf leaves out, so that all of them have one owner. The
// node is the controller of the mirrors of all its static pods, which have nothing in common.
func ownerOf(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if o.Controller == nil || !*o.Controller || o.Kind == "Node" {
			continue
		}
		name := o.Name
		if i := strings.LastIndexByte(name, '-'); o.Kind == "Job" && i > 0 && len(name)-i == 9 && strings.Trim(name[i+1:], "0123456789") == "" {
			name = name[:i]
		}
		return o.Kind + "/" + p.Namespace + "/" + name
	}
	return ""
}

// Natives returns the cpu and memory amounts that the kubelet enforces for a
// pod, by cgroup: those of the pod, and those of its started containers.
func Natives(p *corev1.Pod, l Layout) map[node.CgroupPath]Amounts {
	pod := l.Pod(p)
	all := map[node.CgroupPath]Amounts{pod: Native(p)}
	for _, c := range statusesOf(p) {
		if path := l.Container(pod, c.id); path != "" {
			all[path] = containerSum(c.spec, nativeCPU, nativeMem, nil)
		}
	}
	return all
}

// choose returns the amounts of native. If cpu is set, the CPU amounts come
// from batch. If memory is set, the memory amounts come from batch.
func choose(cpu, memory bool, batch, native Amounts) Amounts {
	if cpu {
		native.CPURequest, native.CPULimit = batch.CPURequest, batch.CPULimit
	}
	if memory {
		native.MemoryRequest, native.MemoryLimit = batch.MemoryRequest, batch.MemoryLimit
	}
	return native
}

// replaceMissing replaces missing requests by the requests for mid resources.
// It does not replace limits, because the owner of a service does not expect
// mid resources to limit it.
func replaceMissing(a, mid Amounts) Amounts {
	a.CPURequest, a.MemoryRequest = first(a.CPURequest, mid.CPURequest), first(a.MemoryRequest, mid.MemoryRequest)
	return a
}

func weightOf(request node.Maybe[unit.MilliCPU], asked bool) node.Maybe[unit.Weight] {
	if v, known := request.Value(); known && asked {
		return node.Some(Weight(v))
	}
	return node.Maybe[unit.Weight]{}
}

// A runningContainer is a container with its id from the runtime.
type runningContainer struct {
	spec corev1.Container
	id   string
}

func statusesOf(p *corev1.Pod) []runningContainer {
	var all []runningContainer
	add := func(specs []corev1.Container, statuses []corev1.ContainerStatus) {
		for _, st := range statuses {
			i := slices.IndexFunc(specs, func(c corev1.Container) bool { return c.Name == st.Name })
			if i >= 0 && st.State.Terminated == nil && st.ContainerID != "" {
				all = append(all, runningContainer{specs[i], st.ContainerID})
			}
		}
	}
	add(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	add(p.Spec.Containers, p.Status.ContainerStatuses)
	return all
}

// startLimit returns the largest CPU limit of the containers that the kubelet will start
// next. It is absent if there is none with a limit of cpu, which the container runtime
// writes. Until the pod is initialized, only its next init container starts.
func startLimit(p *corev1.Pod) node.Maybe[unit.MilliCPU] {
	if p.DeletionTimestamp != nil {
		return node.Maybe[unit.MilliCPU]{}
	}
	var most unit.MilliCPU
	initialized := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
	look := func(specs []corev1.Container, statuses []corev1.ContainerStatus, init bool) (all bool) {
		for _, c := range specs {
			var st corev1.ContainerStatus
			if i := slices.IndexFunc(statuses, func(st corev1.ContainerStatus) bool { return st.Name == c.Name }); i >= 0 {
				st = statuses[i]
			}
			if startsNext(p, c, st, init) {
				most = max(most, amountsOf(c.Resources, nativeCPU, nativeMem).CPULimit.Or(0))
			}
			done := st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
			if c.RestartPolicy != nil {
				done = st.State.Running != nil
			}
			if init && !initialized && !done {
				return false
			}
		}
		return true
	}
	if look(p.Spec.InitContainers, p.Status.InitContainerStatuses, true) {
		look(p.Spec.Containers, p.Status.ContainerStatuses, false)
	}
	if most == 0 {
		return node.Maybe[unit.MilliCPU]{}
	}
	return node.Some(most)
}

// startsNext reports whether the kubelet will start a container next: for the first time,
// or because it has ended. AddContainer makes a status with an ID and no state, of a
// container whose limits the runtime has written.
func startsNext(p *corev1.Pod, c corev1.Container, st corev1.ContainerStatus, init bool) bool {
	policy, sidecar := p.Spec.RestartPolicy, c.RestartPolicy != nil
	if sidecar {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch {
	case st.State.Running != nil:
		return false
	case st.State.Waiting != nil:
		return true
	case st.State.Terminated == nil:
		return st.ContainerID == ""
	case policy == corev1.RestartPolicyNever:
		return false
	case st.State.Terminated.ExitCode != 0:
		return true
	}
	return policy != corev1.RestartPolicyOnFailure && (!init || sidecar)
}

// AddContainer adds the id of a new container to the status of its pod, because the kubelet has
// not reported the container yet. It returns false and changes nothing if the status already has
// the id, or if the pod has no such container.
func AddContainer(p *corev1.Pod, name, id string) bool {
	for _, part := range []struct {
		specs    []corev1.Container
		statuses *[]corev1.ContainerStatus
	}{{p.Spec.InitContainers, &p.Status.InitContainerStatuses}, {p.Spec.Containers, &p.Status.ContainerStatuses}} {
		if !slices.ContainsFunc(part.specs, func(c corev1.Container) bool { return c.Name == name }) {
			continue
		}
		status := corev1.ContainerStatus{Name: name, ContainerID: id}
		i := slices.IndexFunc(*part.statuses, func(st corev1.ContainerStatus) bool { return st.Name == name })
		switch {
		case i < 0:
			*part.statuses = append(*part.statuses, status)
		case (*part.statuses)[i].ContainerID == id:
			return false
		default:
			(*part.statuses)[i] = status
		}
		return true
	}
	return false
}

// OverridesOf returns the overrides in the annotations of a pod, and the faults
// of these annotations. An annotation with a fault does not affect the others.
func OverridesOf(p *corev1.Pod) (node.Overrides, []Fault) {
	var a node.Overrides
	var faults, more []Fault
	class := ClassWithDefault(p)
	a.Burst, faults = burstOf(p)
	a.Memory, more = memoryOf(p)
	faults = append(faults, more...)
	a.Identity, more = identityOf(p, class)
	faults = append(faults, more...)
	a.IO, more = blockIOOf(p, class)
	faults = append(faults, more...)
	a.Cache, more = cacheOf(p)
	faults = append(faults, more...)
	a.CPUs = cpusOf(p)
	a.EvictionExemptFrom, more = exemptFrom(p)
	return a, append(faults, more...)
}

// Faults returns the faults of the labels and annotations that OverridesOf does
// not read.
func Faults(p *corev1.Pod) []Fault {
	var faults []Fault
	classes := make([]string, len(node.Classes))
	for i, c := range node.Classes {
		classes[i] = string(c)
	}
	word, labelled := p.Labels[LabelQOSClass]
	if labelled && word != "" { // charts write an empty label if its value is not set
		faults = wordFault(LabelQOSClass, "", word, classes)
	} else if word, annotated := p.Annotations[AnnotationACKQOSClass]; annotated && !labelled {
		faults = wordFault(AnnotationACKQOSClass, "", word, classes)
	}
	if word, annotated := p.Annotations[LabelQOSClass]; annotated && !labelled {
		faults = append(faults, inertFault(LabelQOSClass, "", fmt.Sprintf("%.64q has no effect as an annotation, as in Koordinator: want it as a label", word))...)
	}
	if word, labelled := p.Labels[LabelPriorityClass]; labelled {
		var known []string
		for _, c := range PriorityClasses {
			known = append(known, string(c))
		}
		faults = append(faults, wordFault(LabelPriorityClass, "", word, known)...)
	}
	_, more := SubPriority(p)
	faults = append(faults, more...)
	_, more = EvictionPriority(p)
	faults = append(faults, more...)
	_, more = Extended(p)
	faults = append(faults, more...)
	if word, labelled := p.Labels[LabelIgnore]; labelled {
		faults = append(faults, wordFault(LabelIgnore, "", word, []string{ignoreValue, "false"})...)
	}
	_, _, more = DemandOf(p)
	faults = append(faults, more...)
	_, more = ResourceStatusOf(p)
	faults = append(faults, more...)
	_, _, more = ObjectiveOf(p, ClassWithDefault(p))
	faults = append(faults, more...)
	_, more = DurationOf(p)
	faults = append(faults, more...)
	if _, given := p.Annotations[AnnotationCPUs]; given {
		_, _, more = ChoiceOf(p)
		faults = append(faults, more...)
	}
	return faults
}
