package admission

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/unit"
)

// AnnotationReplace renames resources of a pod: "from:to,other:". A name with
// nothing behind the colon is taken away.
const AnnotationReplace = "pod.koordinator.sh/replace-resources"

// A kind is under which names a pod asks for CPU and memory.
type kind struct{ cpu, memory corev1.ResourceName }

var (
	native = kind{corev1.ResourceCPU, corev1.ResourceMemory}
	batch  = kind{kube.BatchCPU, kube.BatchMemory}
	mid    = kind{kube.MidCPU, kube.MidMemory}
)

func (k kind) both() []corev1.ResourceName { return []corev1.ResourceName{k.cpu, k.memory} }

// Names of before: Koordinator's before 1.0, and ACK's before 0.8.0.
var former = []struct{ from, to corev1.ResourceName }{
	{"koordinator.sh/batch-cpu", kube.BatchCPU},
	{"koordinator.sh/batch-memory", kube.BatchMemory},
	{"alibabacloud.com/reclaimed-cpu", kube.BatchCPU},
	{"alibabacloud.com/reclaimed", kube.BatchCPU},
	{"alibabacloud.com/reclaimed-memory", kube.BatchMemory},
}

// milliOf is an amount of CPU in thousandths. It must be counted: at most mostCPUs.
func milliOf(q resource.Quantity) unit.MilliCPU { return unit.MilliCPU(q.MilliValue()) }

// hasAny reports whether a container asks for any of these resources.
func (c place) hasAny(names []corev1.ResourceName) bool {
	for _, l := range c.lists() {
		for _, n := range names {
			if q, asked := l.of[n]; asked && !q.IsZero() {
				return true
			}
		}
	}
	return false
}

// batchNames are all under which batch work asks for something.
func batchNames() []corev1.ResourceName {
	names := batch.both()
	for _, f := range former {
		names = append(names, f.from)
	}
	return names
}

// mostCPUs, mostMilli of their thousandths and mostBytes are more than any machine has. What is above cannot be
// counted in thousandths without running over.
var (
	mostCPUs  = resource.MustParse("1M")
	mostMilli = resource.MustParse("1G")
	mostBytes = resource.MustParse("1Ei")
)

// rename moves the native amounts of a container to those of k, CPU in
// thousandths. A limit of 0 is no limit to Kubernetes, so none is moved. What is
// too large to count stays, and is refused by name later.
func (c place) rename(k kind) {
	for _, l := range c.lists() {
		move(l.of, native.cpu, k.cpu, mostCPUs, func(q resource.Quantity) resource.Quantity {
			return kube.CPUQuantity(milliOf(q))
		})
		move(l.of, native.memory, k.memory, mostBytes, func(q resource.Quantity) resource.Quantity { return q })
	}
}

func move(of corev1.ResourceList, from, to corev1.ResourceName, most resource.Quantity, as func(resource.Quantity) resource.Quantity) {
	q, asked := of[from]
	if !asked || q.Sign() < 0 || q.Cmp(most) > 0 {
		return
	}
	delete(of, from)
	if !q.IsZero() {
		of[to] = as(q)
	}
}

// modernise gives resources the names of today.
func (c place) modernise(v *Verdict) {
	for _, l := range c.lists() {
		for _, f := range former {
			q, asked := l.of[f.from]
			if _, twice := l.of[f.to]; !asked || twice {
				continue
			}
			delete(l.of, f.from)
			l.of[f.to] = q
			v.warn("%s is a name of before: write %s", f.from, f.to)
		}
	}
}

// complete fills in a request or limit of k from the other: without a limit
// nothing bounds the container, as the kubelet does not know these resources.
func (c place) complete(k kind) {
	r := &c.Resources
	for _, n := range k.both() {
		request, requested := r.Requests[n]
		limit, limited := r.Limits[n]
		if limited && limit.IsZero() {
			delete(r.Limits, n)
			limited = false
		}
		switch {
		case requested && request.IsZero() && !limited:
			delete(r.Requests, n)
		case requested && !limited:
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[n] = request
		case limited && !requested:
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[n] = limit
		}
	}
}

// extended is the text of the annotation extended-resource-spec of a pod: what
// its containers ask for of batch and mid resources, for a container runtime's
// plugin, which does not see these in what the kubelet sends. It is empty if
// they ask for nothing.
func extended(p *corev1.Pod) string {
	type amounts struct {
		Requests corev1.ResourceList `json:"requests,omitempty"`
		Limits   corev1.ResourceList `json:"limits,omitempty"`
	}
	all := map[string]amounts{}
	for _, c := range places(p) {
		a := amounts{extendedOf(c.Resources.Requests), extendedOf(c.Resources.Limits)}
		if len(a.Requests)+len(a.Limits) > 0 {
			all[c.Name] = a
		}
	}
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(map[string]any{"containers": all})
	if err != nil {
		return "" // quantities and names always can be written
	}
	return string(text)
}

func extendedOf(of corev1.ResourceList) corev1.ResourceList {
	own := corev1.ResourceList{}
	for n, q := range of {
		if slices.Contains(batch.both(), n) || slices.Contains(mid.both(), n) {
			own[n] = q
		}
	}
	return own
}
