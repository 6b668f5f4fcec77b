// This is the part of the configuration that states objectives of services: the
// JSON object of a rule, of a pod's annotation and of a ConfigMap, and the
// entries that select pods.

package config

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// An Objective is the JSON object that states an objective. It has the same keys
// wherever it is written.
type Objective struct {
	RunQueueDelay node.Maybe[time.Duration] `json:"runQueueDelay,omitzero" range:"10µs..1s"`
}

// Node returns the objective for the policies.
func (o Objective) Node() node.Objective { return node.Objective{RunQueueDelay: o.RunQueueDelay} }

// PodObjectives is objective-config of the ConfigMap: objectives of pods by selector.
type PodObjectives struct {
	Objectives []ObjectiveEntry `json:"objectives,omitempty" strict:"yes"`
}

// An ObjectiveEntry states the objective of the latency-sensitive pods that it selects.
type ObjectiveEntry struct {
	Name node.Maybe[string] `json:"name,omitzero"`
	// Namespaces and PodSelector select pods. If one of them is empty, it selects
	// all pods. One of them must not be empty.
	Namespaces  []string  `json:"namespaces,omitempty"`
	PodSelector Selector  `json:"podSelector,omitzero"`
	Objective   Objective `json:"objective,omitzero"`
}

// SelectsAll reports whether e has neither namespaces nor a selector. Such an
// entry would give every service of a cluster an objective.
func (e ObjectiveEntry) SelectsAll() bool {
	return len(e.Namespaces) == 0 && len(e.PodSelector.Labels) == 0 && len(e.PodSelector.Expressions) == 0
}

// Of returns the objective of a pod with this namespace and these labels: that
// of the first entry that selects the pod.
func (p PodObjectives) Of(namespace string, labels map[string]string) node.Objective {
	for _, e := range p.Objectives {
		if (len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace)) && e.PodSelector.Selects(labels) {
			return e.Objective.Node()
		}
	}
	return node.Objective{}
}
