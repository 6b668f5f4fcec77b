package switchback

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// weakShare is a share of a CPU, in percent. If BE with the least weight gets
// more than this beside a service that wants the whole CPU, BE is a load for
// this service. On cgroup v2 the least weight is 1, and the weight of a
// service, which follows from its requests, may be small, too.
const weakShare = 10

// Places reports whether cpu.idle can help: whether a waking thread of a
// service could move to another CPU on which only BE runs. That needs a service
// that may use more than one CPU of an L3 cache and shares one of them with BE.
// Otherwise cpu.idle only attracts all other threads to the CPU of the service.
// be is the set of CPUs of BE. may returns the CPUs of a service.
func Places(s node.Snapshot, be unit.CPUSet, may func(*node.Workload) unit.CPUSet) bool {
	caches := map[node.CacheID]unit.CPUSet{}
	for _, c := range s.Topology.CPUs {
		caches[c.L3] = caches[c.L3].With(c.ID)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if !w.Class.Sensitive() {
			continue
		}
		cpus := may(w)
		for _, shared := range caches {
			if here := cpus.Intersect(shared); here.Len() > 1 && !here.Intersect(be).Empty() {
				return true
			}
		}
	}
	return false
}

// Weak reports whether BE is a load for a service even with the least weight.
// It compares the weight of each cgroup of a service beside a contention root:
// does BE get more than weakShare of a CPU that both want?
func Weak(s node.Snapshot, l facts.Layout) bool {
	least := node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}.Round(s.Knobs.Kernel).(node.CPUWeight).Weight
	for _, m := range l.IdleCgroups(s) {
		if !l.IsRoot(m) {
			continue // cpu.idle below the contention root does not change its share
		}
		for i := range s.Workloads {
			w := &s.Workloads[i]
			p := w.Cgroup
			for p != "" && p.Parent() != m.Parent() {
				p = p.Parent()
			}
			own, known := s.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUWeight}].(node.CPUWeight)
			if w.Class.Sensitive() && p != "" && known && least*100 > (least+own.Weight)*weakShare {
				return true
			}
		}
	}
	return false
}

// CPUsOf hashes the CPUs of the node and the reserved CPUs.
func CPUsOf(s node.Snapshot, reserved unit.CPUSet) uint64 {
	h := continueHash(0, "")
	for _, c := range s.Topology.CPUs {
		h = continueHash(h, string([]rune{rune(c.ID), rune(c.Core), rune(c.L3)}))
	}
	return continueHash(h, reserved.String())
}

// PlacesOf returns the places of all services, sorted and without duplicates.
// may returns the CPUs of a service.
func PlacesOf(s node.Snapshot, may func(*node.Workload) unit.CPUSet) []Place {
	places := make([]Place, 0, len(s.Workloads))
	all := s.Topology.All()
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if !w.Class.Sensitive() || w.Passing {
			continue
		}
		p := Place{Service: NameOf(w)}
		if set := may(w); set != all {
			p.Shape = shapeOf(s.Topology, set)
		}
		places = append(places, p)
	}
	slices.SortFunc(places, Place.compare)
	return slices.Compact(places)
}

// shapeOf hashes the numbers of CPUs and cores that a set has in each L3 cache.
// Which cache has how many does not matter.
func shapeOf(t node.Topology, set unit.CPUSet) uint64 {
	type part struct{ cpus, cores int }
	caches, seen := map[node.CacheID]part{}, map[node.CoreID]bool{}
	for _, c := range t.CPUs {
		if !set.Has(c.ID) {
			continue
		}
		p := caches[c.L3]
		if p.cpus++; !seen[c.Core] {
			seen[c.Core] = true
			p.cores++
		}
		caches[c.L3] = p
	}
	parts := slices.SortedFunc(maps.Values(caches), func(a, b part) int { return cmp.Or(cmp.Compare(a.cpus, b.cpus), cmp.Compare(a.cores, b.cores)) })
	h := continueHash(0, "")
	for _, p := range parts {
		h = continueHash(h, string([]rune{rune(p.cpus), rune(p.cores)}))
	}
	return h
}

// continueHash continues the hash h (FNV-1a) with a text.
func continueHash(h uint64, text string) uint64 {
	for _, b := range []byte(text) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211
}

// nameOf returns the name that a workload has in a trial.
func nameOf(w *node.Workload) string {
	if w.Container != "" {
		return w.Container // the cgroup has another name after each start
	}
	return string(w.ID)
}

// BERuns reports whether BE uses a hundredth of a CPU or more.
func BERuns(s node.Snapshot, u facts.Use) bool {
	var used unit.MilliCPU
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Class == node.BE {
			used += max(u.Workload[w.ID], u.Latest[w.ID])
		}
	}
	return used >= 10
}

// NameOf returns the name of the service to which a workload belongs.
func NameOf(w *node.Workload) string { return ServiceName(nameOf(w)) }

// CountsOf returns the counters of all services for which the kernel counts
// waits.
func CountsOf(s node.Snapshot) map[string]Count {
	all := make(map[string]Count, len(s.Workloads))
	for i := range s.Workloads {
		w := &s.Workloads[i]
		waited, known := w.Usage.Delay.Sum.Value()
		if !known || !w.Class.Sensitive() {
			continue
		}
		n := w.Usage.Delay.Timeslices.Or(0)
		for _, counted := range w.Usage.Delay.Counts {
			n += int64(counted)
		}
		all[nameOf(w)] = Count{Waits: n, Waited: waited, Throttled: w.Usage.Throttled.Or(0)}
	}
	return all
}

// PassingOf returns the names of workloads that end by themselves, or are a part
// of Tenon, sorted.
func PassingOf(s node.Snapshot) []string {
	var all []string
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Passing {
			all = append(all, nameOf(w))
		}
	}
	slices.Sort(all)
	return all
}

// ServiceName returns the name of the service to which a workload belongs. The
// pods of a Deployment, StatefulSet, DaemonSet or CronJob are one service, and so
// are the commands of tenon run with one name. The name of a pod is the name of
// this object with a generated ending. tenon run adds the process ID.
func ServiceName(id string) string {
	const generated = "bcdfghjklmnpqrstvwxz2456789" // k8s.io/apimachinery/pkg/util/rand
	cut := func(least, most int, letters string) bool {
		at := strings.LastIndexByte(id, '-')
		if at <= 0 || strings.Contains(id[at:], "/") {
			return false
		}
		end := id[at+1:]
		if len(end) < least || len(end) > most || strings.Trim(end, letters) != "" {
			return false
		}
		id = id[:at]
		return true
	}
	const digits = "0123456789"
	switch {
	case cut(5, 5, generated): // a pod of a Deployment, a DaemonSet or a Job
		_ = cut(6, 10, generated) || // the hash of the template of a Deployment
			cut(8, 8, digits) // the minute of a Job of a CronJob
	case cut(1, 7, digits): // a pod of a StatefulSet; a process ID is at most 4194304
	}
	return id
}
