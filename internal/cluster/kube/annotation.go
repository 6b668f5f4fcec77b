package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/config/spelling"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// read parses an annotation of a pod. keys are its names, with the present name first. read uses
// the first key that the pod has, and returns this key. The result is nil if the pod has no such
// annotation, or if its value has faults. Unknown keys in the value are ignored, because a later
// version may define them.
func read[T any](p *corev1.Pod, keys ...string) (*T, string, []Fault) {
	for _, key := range keys {
		text, given := p.Annotations[key]
		if !given {
			continue
		}
		v, strange, faults := config.ReadLenientJSON[T](text)
		if len(faults) > 0 {
			return nil, key, faultsOf(key, faults)
		}
		var notices []Fault
		for _, f := range strange {
			notices = append(notices, inertFault(key, f.Field, f.Problem)...)
		}
		return &v, key, notices
	}
	return nil, "", nil
}

// ObjectiveOf reads the objective of a pod of the given class. said is false
// without the annotation, if it has a fault, or if Tenon leaves the pod alone. A
// chart writes an empty text if its value is not set.
func ObjectiveOf(p *corev1.Pod, class node.Class) (o node.Objective, said bool, faults []Fault) {
	text := p.Annotations[AnnotationObjective]
	if text == "" || IsIgnored(p) {
		return o, false, nil
	}
	o, found := config.ReadObjective(text, class)
	return o, len(found) == 0, faultsOf(AnnotationObjective, found)
}

// burstOf reads the annotation cpuBurst. Its keys are the keys of
// cpu-burst-config that apply to one workload.
func burstOf(p *corev1.Pod) (node.BurstOverride, []Fault) {
	b, key, faults := read[config.Burst](p, AnnotationCPUBurst, AnnotationACKCPUBurst)
	switch {
	case b == nil:
		return node.BurstOverride{}, faults
	case b.SharePoolThresholdPercent.Known():
		faults = append(faults, inertFault(key, "sharePoolThresholdPercent", "is not acted on: it is about the node as a whole, and stands in cpu-burst-config")...)
	}
	return node.BurstOverride{
		Policy: b.Policy.Or(""), CPUPercent: b.CPUBurstPercent,
		QuotaPercent: b.CFSQuotaBurstPercent, PeriodSeconds: b.CFSQuotaBurstPeriodSeconds,
	}, faults
}

// podMemory is the content of the annotation memoryQOS: a policy, and the keys
// of memoryQOS in resource-qos-config.
type podMemory struct {
	Policy node.Maybe[string] `json:"policy" oneof:"default none auto"`
	config.MemoryQOS
}

// memoryOf reads the annotation memoryQOS. With the policy none or enable:
// false, Tenon does nothing for the pod. With the policy auto, Tenon uses only
// the values of the annotation, without the strategy of the class.
func memoryOf(p *corev1.Pod) (node.MemoryOverride, []Fault) {
	m, _, faults := read[podMemory](p, AnnotationMemoryQOS, AnnotationACKMemoryQOS)
	switch {
	case m == nil:
		return node.MemoryOverride{}, faults
	case m.Policy.Or("") == "none" || !m.Enable.Or(true):
		return node.MemoryOverride{OwnOnly: true}, faults
	}
	return node.MemoryOverride{
		OwnOnly: m.Policy.Or("") == "auto", MinPercent: m.MinLimitPercent, LowPercent: m.LowLimitPercent, ThrottlingPercent: m.ThrottlingPercent,
	}, faults
}

// identityOf reads the annotation cpuQOS, which has an effect only on LS pods. Other pods have
// the group identity of their class. Without enable: true, the identity is IdentityNone.
func identityOf(p *corev1.Pod, class node.Class) (node.Maybe[node.Identity], []Fault) {
	none := node.Maybe[node.Identity]{}
	q, key, faults := read[config.CPUQOS](p, AnnotationCPUQOS)
	if q == nil {
		return none, faults
	}
	identity, given := q.GroupIdentity.Value()
	switch {
	case class != node.LS:
		return none, append(faults, inertFault(key, "", fmt.Sprintf("counts for LS pods only, and this one is %s", class))...)
	case !q.Enable.Or(false):
		return node.Some(node.IdentityNone), faults
	case identity < 0:
		return node.Some(node.IdentityNone), append(faults, inertFault(key, "groupIdentity", fmt.Sprintf("%d counts as 0 for this pod: only BE yields", identity))...)
	case !given && !q.CoreExpeller.Known():
		return none, faults
	}
	v := node.Identity(q.GroupIdentity.Or(int64(node.IdentityExpels)))
	if !q.CoreExpeller.Or(true) {
		v = min(v, node.IdentityHigh)
	}
	return node.Some(v), faults
}

// blockIOOf reads the annotation blkioQOS.
func blockIOOf(p *corev1.Pod, class node.Class) ([]node.BlockIO, []Fault) {
	q, key, faults := read[config.BlkIOQOS](p, AnnotationBlkIOQOS)
	if q == nil || !q.Enable.Or(true) {
		return nil, faults
	}
	var all []node.BlockIO
	for i, b := range q.Blocks {
		at := fmt.Sprintf("blocks[%d]", i)
		name, named := b.Name.Value()
		switch {
		case b.Type.Or("device") == "podvolume":
			faults = append(faults, inertFault(key, at+".type", "podvolume is not acted on: want the device or volume group on which the volume lies")...)
			continue
		case !named || name == "":
			faults = append(faults, fieldFault(key, at+".name", "missing: want a device such as /dev/vda, or a volume group")...)
			continue
		}
		io := node.BlockIO{
			Name: name, VolumeGroup: b.Type.Or("") == "volumegroup",
			ReadBPS: b.IO.ReadBPS.Or(0), WriteBPS: b.IO.WriteBPS.Or(0), ReadIOPS: b.IO.ReadIOPS.Or(0), WriteIOPS: b.IO.WriteIOPS.Or(0),
			WeightPercent: b.IO.WeightPercent.Or(0),
		}
		if class.Sensitive() {
			io.Latency = shortestTarget(b.IO.ReadLatency, b.IO.WriteLatency)
		}
		all = append(all, io)
	}
	if makesInvalid(faults) {
		return nil, faults
	}
	return all, faults
}

// makesInvalid reports whether one of the faults makes a value invalid.
func makesInvalid(faults []Fault) bool {
	return slices.ContainsFunc(faults, func(f Fault) bool { return !f.Inert })
}

// shortestTarget returns the shorter of the latency targets for reads and
// writes, which are in microseconds. The kernel has one target for both. 0
// means no target.
func shortestTarget(targets ...node.Maybe[int64]) time.Duration {
	const most = int64(time.Hour / time.Microsecond)
	least := int64(0)
	for _, m := range targets {
		if us, set := m.Value(); set && (least == 0 || us < least) {
			least = us
		}
	}
	return time.Duration(min(least, most)) * time.Microsecond
}

// podResctrl is the content of the annotation resctrl.
type podResctrl struct {
	LLC struct {
		Schemata struct {
			Range []node.Maybe[int64] `json:"range"`
		} `json:"schemata"`
		PerCache []struct {
			ID    node.Maybe[int64]   `json:"cacheID" range:"0.."`
			Range []node.Maybe[int64] `json:"range"`
		} `json:"schemataPerCache"`
	} `json:"llc"`
	MB struct {
		Schemata struct {
			Percent node.Maybe[int64] `json:"percent" range:"1..100"`
		} `json:"schemata"`
		PerCache []struct {
			ID      node.Maybe[int64] `json:"cacheID" range:"0.."`
			Percent node.Maybe[int64] `json:"percent" range:"1..100"`
		} `json:"schemataPerCache"`
	} `json:"mb"`
}

// cacheOf reads the annotation resctrl. It ignores values for single caches,
// because a control group of Tenon gets the same part of each cache.
func cacheOf(p *corev1.Pod) (node.CacheOverride, []Fault) {
	r, key, faults := read[podResctrl](p, AnnotationResctrl)
	if r == nil {
		return node.CacheOverride{}, faults
	}
	fault := func(field, problem string, a ...any) {
		faults = append(faults, fieldFault(key, field, fmt.Sprintf(problem, a...))...)
	}
	span := func(field string, s []node.Maybe[int64]) (from, to node.Maybe[unit.Percent]) {
		if len(s) == 0 {
			return
		}
		if len(s) != 2 || s[0].Or(-1) < 0 || s[1].Or(-1) > 100 || s[0].Or(0) >= s[1].Or(0) {
			fault(field, "want two whole numbers from 0 to 100, the smaller first")
			return
		}
		return node.Some(unit.Percent(s[0].Or(0))), node.Some(unit.Percent(s[1].Or(0)))
	}
	var ask node.CacheOverride
	ask.Start, ask.End = span("llc.schemata.range", r.LLC.Schemata.Range)
	for i, c := range r.LLC.PerCache {
		span(fmt.Sprintf("llc.schemataPerCache[%d].range", i), c.Range)
	}
	if n := len(r.LLC.PerCache) + len(r.MB.PerCache); n > 0 {
		faults = append(faults, inertFault(key, "schemataPerCache", "is not acted on: every cache gets what schemata says")...)
	}
	if m, given := r.MB.Schemata.Percent.Value(); given {
		ask.Bandwidth = node.Some(unit.Percent(m))
	}
	if makesInvalid(faults) {
		return node.CacheOverride{}, faults
	}
	if ask != (node.CacheOverride{}) {
		ask.ControlGroup = node.ControlGroupPrefix + UID(p)
	}
	return ask, faults
}

// evictors maps a resource to Koordinator's features that evict pods when this
// resource is short.
var evictors = map[string][]string{
	"cpu":    {"BECPUEvict", "CPUEvict", "CPUAllocatableEvict"},
	"memory": {"BEMemoryEvict", "MemoryEvict", "MemoryAllocatableEvict"},
}

// exemptFrom reads the annotation eviction-policy, a list of the features that
// may evict the pod. It returns the resources in evictors that have no feature
// in the list. It warns about an unknown feature only if the name is similar to
// a known one. Other names may be meant for another program. A text that is no
// list permits no eviction, as in Koordinator: its author wanted fewer of them.
func exemptFrom(p *corev1.Pod) ([]string, []Fault) {
	text, given := p.Annotations[AnnotationEvictionPolicy]
	if !given {
		return nil, nil
	}
	causes := []string{"cpu", "memory"}
	var may []string
	if err := json.Unmarshal([]byte(text), &may); err != nil {
		return causes, faultOf(AnnotationEvictionPolicy, `%.64q: want a JSON list of names, such as ["BECPUEvict","BEMemoryEvict"]`, text)
	}
	var spared []string
	var faults []Fault
	known := slices.Concat(evictors["cpu"], evictors["memory"])
	for i, name := range may {
		if meant := spelling.Nearest(name, known); meant != "" && !slices.Contains(known, name) {
			faults = append(faults, inertFault(AnnotationEvictionPolicy, fmt.Sprintf("[%d]", i), fmt.Sprintf("%.64q: unknown feature: did you mean %s?", name, meant))...)
		}
	}
	for _, cause := range causes {
		if !slices.ContainsFunc(evictors[cause], func(name string) bool { return slices.Contains(may, name) }) {
			spared = append(spared, cause)
		}
	}
	return spared, faults
}

// Extended reads the annotation extended-resource-spec: the batch resources of
// each container, for programs that cannot read the spec of the pod.
func Extended(p *corev1.Pod) (map[string]corev1.ResourceRequirements, []Fault) {
	text, given := p.Annotations[AnnotationExtended]
	if !given {
		return nil, nil
	}
	var spec struct {
		Containers map[string]struct{ Requests, Limits quantity.List }
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return nil, faultOf(AnnotationExtended, `not of the form {"containers":{"NAME":{"requests":{…},"limits":{…}}}}: %s`, oneLine(err))
	}
	of := make(map[string]corev1.ResourceRequirements, len(spec.Containers))
	for name, c := range spec.Containers {
		of[name] = corev1.ResourceRequirements{Requests: c.Requests.ResourceList, Limits: c.Limits.ResourceList}
	}
	return of, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
