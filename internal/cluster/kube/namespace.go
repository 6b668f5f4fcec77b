package kube

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// PodConfigMap is the ConfigMap of ACK that switches features on and off by
// namespace. It goes before what holds in the cluster, and annotations go before
// it.
const PodConfigMap = "ack-slo-pod-config"

// Namespaces is PodConfigMap.
type Namespaces struct{ CPUBurst, MemoryQOS NamespaceRule }

// A NamespaceRule switches a feature for the pods of some namespaces.
type NamespaceRule struct {
	Enabled  []string `json:"enabledNamespaces"`
	Disabled []string `json:"disabledNamespaces"`
}

// ParseNamespaces reads the data of PodConfigMap. A key with a fault says
// nothing.
func ParseNamespaces(data map[string]string) (Namespaces, []Fault) {
	var n Namespaces
	var all []Fault
	for key, to := range map[string]*NamespaceRule{"cpu-burst": &n.CPUBurst, "memory-qos": &n.MemoryQOS} {
		text, given := data[key]
		if !given {
			continue
		}
		rule, faults := config.ReadJSON[NamespaceRule](text)
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
	slices.SortStableFunc(all, func(a, b Fault) int { return strings.Compare(a.Key, b.Key) })
	return n, all
}

// Apply fills in what the namespaces of workloads ask for them, where they do
// not say it themselves: bursts of all kinds and the memory shares that are set
// for the class, be they switched off there; or nothing.
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
