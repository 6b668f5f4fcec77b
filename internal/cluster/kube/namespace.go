package kube

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// PodConfigMap is the name of a ConfigMap of ACK that enables and disables
// features by namespace. It overrides the settings of the cluster. The
// annotations of a pod override the ConfigMap.
const PodConfigMap = "ack-slo-pod-config"

// Namespaces is the content of PodConfigMap.
type Namespaces struct{ CPUBurst, MemoryQOS NamespaceRule }

// A NamespaceRule enables or disables a feature for the pods of some namespaces.
type NamespaceRule struct {
	Enabled  []string `json:"enabledNamespaces"`
	Disabled []string `json:"disabledNamespaces"`
}

// ParseNamespaces reads the data of PodConfigMap. It ignores a key with a
// fault. For an unknown key, it returns an inert fault.
func ParseNamespaces(data map[string]string) (Namespaces, []Fault) {
	var n Namespaces
	var all []Fault
	for key, to := range map[string]*NamespaceRule{"cpu-burst": &n.CPUBurst, "memory-qos": &n.MemoryQOS} {
		text, given := data[key]
		if !given {
			continue
		}
		rule, notices, faults := config.ReadLenientJSON[NamespaceRule](text)
		for _, f := range notices {
			all = append(all, inertFault(key, f.Field, f.Problem)...)
		}
		for _, name := range rule.Enabled {
			if slices.Contains(rule.Disabled, name) {
				faults = append(faults, config.Fault{Field: "disabledNamespaces", Problem: fmt.Sprintf("%.64q is also in enabledNamespaces: want it in one", name)})
			}
		}
		if len(faults) == 0 {
			*to = rule
		}
		all = append(all, faultsOf(key, faults)...)
	}
	for key := range data {
		if !slices.Contains(namespaceKeys, key) {
			name := key
			if quoted := fmt.Sprintf("%.64q", key); quoted != `"`+key+`"` {
				name = quoted
			}
			all = append(all, inertFault(name, "", config.Suggest(key, namespaceKeys))...)
		}
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return strings.Compare(a.Key, b.Key) })
	return n, all
}

var namespaceKeys = []string{"cpu-burst", "memory-qos"}

// Apply applies the settings of the namespaces to the workloads without
// overrides of their own. CPUBurst enables all kinds of CPU burst. MemoryQOS
// enables the memory protection of the class, even if the class disables it. A
// disabled feature is off for the workloads of the namespace.
func (n Namespaces) Apply(workloads []node.Workload) {
	for i := range workloads {
		w := &workloads[i]
		namespace, _, _ := strings.Cut(string(w.ID), "/")
		switch on, said := n.CPUBurst.of(namespace); {
		case !said || w.Overrides.Burst.Policy != "":
		case on:
			w.Overrides.Burst.Policy = "auto"
		default:
			w.Overrides.Burst.Policy = node.BurstNone
		}
		if on, said := n.MemoryQOS.of(namespace); said && w.Overrides.Memory == (node.MemoryOverride{}) {
			w.Overrides.Memory.OwnOnly, w.Overrides.Memory.Enabled = !on, on
		}
	}
}

func (r NamespaceRule) of(namespace string) (on, said bool) {
	switch {
	case slices.Contains(r.Disabled, namespace):
		return false, true
	case slices.Contains(r.Enabled, namespace):
		return true, true
	}
	return false, false
}
