// This file selects nodes by their labels, as nodeSelector in a ConfigMap does.

package config

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// A Selector selects nodes by their labels, like nodeSelector in a ConfigMap
// (Kubernetes: LabelSelector). An empty selector selects all nodes.
type Selector struct {
	Labels      map[string]string `json:"matchLabels,omitempty"`
	Expressions []Requirement     `json:"matchExpressions,omitempty"`
}

// A Requirement is one expression of a selector.
type Requirement struct {
	Key      node.Maybe[string] `json:"key,omitzero"`
	Operator node.Maybe[string] `json:"operator,omitzero" oneof:"In NotIn Exists DoesNotExist"`
	Values   []string           `json:"values,omitempty"`
}

// Selects reports whether s selects a node with these labels.
func (s Selector) Selects(labels map[string]string) bool {
	for key, want := range s.Labels {
		if v, has := labels[key]; !has || v != want {
			return false
		}
	}
	for _, r := range s.Expressions {
		if !r.holds(labels) {
			return false
		}
	}
	return true
}

func (r Requirement) holds(labels map[string]string) bool {
	v, has := labels[r.Key.Or("")]
	switch r.Operator.Or("") {
	case "In":
		return has && slices.Contains(r.Values, v)
	case "NotIn":
		return !has || !slices.Contains(r.Values, v)
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	}
	return false
}
