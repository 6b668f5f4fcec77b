package admission

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/unit"
)

// AnnotationReplace is an annotation that renames resources of a pod, such as
// "old:new,other:". A resource with no name after the colon is deleted.
const AnnotationReplace = "pod.koordinator.sh/replace-resources"

// A kind is a pair of resource names: one for CPU and one for memory.
type kind struct{ cpu, memory corev1.ResourceName }

var (
	native = kind{corev1.ResourceCPU, corev1.ResourceMemory}
	batch  = kind{kube.BatchCPU, kube.BatchMemory}
	mid    = kind{kube.MidCPU, kube.MidMemory}
)

func (k kind) both() []corev1.ResourceName { return []corev1.ResourceName{k.cpu, k.memory} }

// formerNames maps old resource names to the present ones. The old names are
// from Koordinator before 1.0 and from ACK before 0.8.0.
var formerNames = []struct{ from, to corev1.ResourceName }{
	{"koordinator.sh/batch-cpu", kube.BatchCPU},
	{"koordinator.sh/batch-memory", kube.BatchMemory},
	{"alibabacloud.com/reclaimed-cpu", kube.BatchCPU},
	{"alibabacloud.com/reclaimed", kube.BatchCPU},
	{"alibabacloud.com/reclaimed-memory", kube.BatchMemory},
}

// inBatchUnit converts an amount of cpu or memory to the unit of a batch or mid
// resource: whole thousandths of a CPU, or whole bytes. It rounds up, as
// Kubernetes does, so that no request exceeds its limit.
func inBatchUnit(n corev1.ResourceName, q resource.Quantity) resource.Quantity {
	if n == native.cpu {
		return quantity.OfBatchCPU(quantity.CPU(q, unit.Up))
	}
	return wholeBytes(q)
}

// wholeBytes rounds an amount of memory up to whole bytes. It keeps the notation
// of a whole amount.
func wholeBytes(q resource.Quantity) resource.Quantity {
	if up := quantity.Whole(q, unit.Up); up != quantity.Whole(q, unit.Down) {
		return quantity.OfMemory(unit.Bytes(up))
	}
	return q
}

// hasAny reports whether a container has a request or a limit for one of these
// resources.
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

// asksBatch reports whether a container of the pod requests batch resources.
func asksBatch(p *corev1.Pod) bool {
	return slices.ContainsFunc(places(p), func(c place) bool { return c.hasAny(batchNames()) })
}

// batchNames returns all resource names of best-effort work, old and present.
func batchNames() []corev1.ResourceName {
	names := batch.both()
	for _, f := range formerNames {
		names = append(names, f.from)
	}
	return names
}

// maxCPUs (CPUs), maxMilli (thousandths of a CPU) and maxBytes (bytes) are more
// than any machine has. Larger amounts are refused, because a conversion to
// thousandths could overflow.
var (
	maxCPUs  = resource.MustParse("1M")
	maxMilli = resource.MustParse("1G")
	maxBytes = resource.MustParse("1Ei")
)

// rename gives the amounts of cpu and memory of a container the names in k, and
// converts CPU to thousandths. It deletes a limit of 0, which means no limit to
// Kubernetes. A request of 0 stays one: without it, the limit would be
// requested. rename leaves an amount that is too large to convert; a later check
// refuses that amount.
func (c place) rename(k kind) {
	for _, l := range c.lists() {
		l.move(native.cpu, k.cpu, maxCPUs)
		l.move(native.memory, k.memory, maxBytes)
	}
}

func (l list) move(from, to corev1.ResourceName, most resource.Quantity) {
	q, asked := l.of[from]
	if !asked || q.Sign() < 0 || q.Cmp(most) > 0 {
		return
	}
	delete(l.of, from)
	if !q.IsZero() || l.name == "requests" {
		l.of[to] = inBatchUnit(from, q)
	}
}

// modernise replaces old resource names by the present ones.
func (c place) modernise(v *Verdict) {
	for _, l := range c.lists() {
		for _, f := range formerNames {
			q, asked := l.of[f.from]
			if _, twice := l.of[f.to]; !asked || twice {
				continue
			}
			delete(l.of, f.from)
			l.of[f.to] = q
			v.warn(Replaced, "", "%s is an old name: write %s", f.from, f.to)
		}
	}
}

// complete sets a missing request to the limit, and a missing limit to the
// request. The kubelet does not know these resources, so a container without a
// limit would have no bound. complete rounds memory such as 0.8Gi up to whole
// bytes.
func (c place) complete(k kind) {
	r := &c.Resources
	for _, l := range c.lists() {
		if q, asked := l.of[k.memory]; asked {
			l.of[k.memory] = wholeBytes(q)
		}
	}
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

// extendedResources returns the text of the annotation extended-resource-spec. It lists the batch
// and mid resources of each container, for plugins of the container runtime: the kubelet does not
// send these resources to the runtime. The text is empty if no container has such resources.
func extendedResources(p *corev1.Pod) string {
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
		return "" // a map of quantities can always be encoded
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
