// Package cpureport converts a node's report about its CPUs between two types:
// that of the cluster's API, and that of the ledger (package place).
package cpureport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A cacheKey identifies an entry in the caches of a report.
type cacheKey struct{ socket, numa, l3, kind int32 }

func keyOf(c node.LogicalCPU) cacheKey {
	return cacheKey{int32(c.Socket), int32(c.NUMA), int32(c.L3), int32(c.Kind)}
}

func (k cacheKey) compare(o cacheKey) int {
	return cmp.Or(cmp.Compare(k.socket, o.socket), cmp.Compare(k.numa, o.numa), cmp.Compare(k.l3, o.l3), cmp.Compare(k.kind, o.kind))
}

// Convert converts a report to the type of the cluster's API. Equal reports give
// equal results.
func Convert(r place.Report) *v1alpha1.CPUs {
	out := &v1alpha1.CPUs{Reserved: r.Reserved.String(), Keep: int32(r.Keep), Manager: r.Manager}
	caches, cores := map[cacheKey]unit.CPUSet{}, map[coreKey]unit.CPUSet{}
	for _, c := range r.Topology.CPUs {
		caches[keyOf(c)] = caches[keyOf(c)].With(c.ID)
		cores[coreOf(c)] = cores[coreOf(c)].With(c.ID)
	}
	for k, set := range caches {
		out.Caches = append(out.Caches, v1alpha1.Cache{Socket: k.socket, NUMA: k.numa, L3: k.l3, Kind: k.kind, CPUs: set.String()})
	}
	slices.SortFunc(out.Caches, func(a, b v1alpha1.Cache) int {
		return cacheKey{a.Socket, a.NUMA, a.L3, a.Kind}.compare(cacheKey{b.Socket, b.NUMA, b.L3, b.Kind})
	})
	var threads []unit.CPUSet
	for _, set := range cores {
		if set.Len() > 1 {
			threads = append(threads, set)
		}
	}
	slices.SortFunc(threads, func(a, b unit.CPUSet) int { return cmp.Compare(first(a), first(b)) })
	names := make([]string, len(threads))
	for i, set := range threads {
		names[i] = set.String()
	}
	out.Cores = strings.Join(names, ";")
	for _, uid := range slices.Sorted(maps.Keys(r.Pods)) {
		a := r.Pods[uid]
		out.Pods = append(out.Pods, v1alpha1.PodCPUs{
			UID: string(uid), Policy: a.Policy.String(), CPUs: a.CPUs.String(), Domain: a.Domain.String(),
			Request: int64(a.CPU), ExclusivePolicy: a.Exclusive.String(),
		})
	}
	return out
}

// A coreKey identifies a core. The number of the core alone is not enough,
// because the numbers repeat on each socket.
type coreKey struct {
	socket node.SocketID
	core   node.CoreID
}

func coreOf(c node.LogicalCPU) coreKey { return coreKey{c.Socket, c.Core} }

func first(s unit.CPUSet) unit.CPU {
	for c := range s.All() {
		return c
	}
	return -1
}

// Read converts a report from the type of the cluster's API. An error contains
// the name of the field.
func Read(c *v1alpha1.CPUs) (place.Report, error) {
	r := place.Report{Keep: int(c.Keep), Manager: c.Manager}
	var err error
	if r.Topology, err = topologyOf(c); err != nil {
		return place.Report{}, err
	}
	if r.Reserved, err = unit.ParseCPUSet(c.Reserved); err != nil {
		return place.Report{}, fmt.Errorf("reserved: %w", err)
	}
	for i, p := range c.Pods {
		a := cpus.Allocation{CPU: unit.MilliCPU(p.Request)}
		known := false
		if a.Policy, known = cpus.ParsePolicy(p.Policy); !known && p.Policy+p.CPUs != "" {
			return place.Report{}, fmt.Errorf("pods[%d].policy: %.64q: want exclusive, shared or pool", i, p.Policy)
		}
		if a.CPUs, err = unit.ParseCPUSet(p.CPUs); err != nil {
			return place.Report{}, fmt.Errorf("pods[%d].cpus: %w", i, err)
		}
		if a.Domain, err = unit.ParseCPUSet(p.Domain); err != nil {
			return place.Report{}, fmt.Errorf("pods[%d].domain: %w", i, err)
		}
		if a.Exclusive, known = cpus.ParseExclusivePolicy(p.ExclusivePolicy); !known {
			return place.Report{}, fmt.Errorf("pods[%d].exclusivePolicy: %.64q: want PCPULevel or NUMANodeLevel", i, p.ExclusivePolicy)
		}
		if r.Pods == nil {
			r.Pods = make(map[place.UID]cpus.Allocation, len(c.Pods))
		}
		r.Pods[place.UID(p.UID)] = a
	}
	return r, nil
}

// topologyOf reads caches and cores. A CPU must be in exactly one cache, and in
// at most one set of cores.
func topologyOf(c *v1alpha1.CPUs) (node.Topology, error) {
	var t node.Topology
	at := map[unit.CPU]int{}
	for i, k := range c.Caches {
		set, err := unit.ParseCPUSet(k.CPUs)
		if err != nil {
			return t, fmt.Errorf("caches[%d].cpus: %w", i, err)
		}
		for cpu := range set.All() {
			if _, twice := at[cpu]; twice {
				return t, fmt.Errorf("caches[%d].cpus: CPU %d is in two caches", i, cpu)
			}
			at[cpu] = len(t.CPUs)
			t.CPUs = append(t.CPUs, node.LogicalCPU{
				ID: cpu, Core: node.CoreID(cpu), L3: node.CacheID(k.L3), NUMA: node.NUMANode(k.NUMA), Socket: node.SocketID(k.Socket), Kind: node.CoreKind(k.Kind),
			})
		}
	}
	if len(t.CPUs) == 0 {
		return t, fmt.Errorf("caches: no CPU")
	}
	if c.Cores != "" {
		seen := unit.CPUSet{}
		for text := range strings.SplitSeq(c.Cores, ";") {
			set, err := unit.ParseCPUSet(text)
			if err != nil {
				return t, fmt.Errorf("cores: %w", err)
			}
			if !set.Intersect(seen).Empty() {
				return t, fmt.Errorf("cores: %s: a CPU is in two cores", text)
			}
			seen = seen.Union(set)
			for cpu := range set.All() {
				i, known := at[cpu]
				if !known {
					return t, fmt.Errorf("cores: CPU %d is in no cache", cpu)
				}
				t.CPUs[i].Core = node.CoreID(first(set))
			}
		}
	}
	slices.SortFunc(t.CPUs, func(a, b node.LogicalCPU) int { return cmp.Compare(a.ID, b.ID) })
	return t, nil
}
