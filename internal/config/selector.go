package config

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// A selector selects nodes by their labels, like nodeSelector in a ConfigMap
// (Kubernetes: LabelSelector). An empty selector selects all nodes.
type selector struct {
	Labels      map[string]string `json:"matchLabels,omitempty"`
	Expressions []requirement     `json:"matchExpressions,omitempty"`
}

// A requirement is one expression of a selector.
type requirement struct {
	Key      node.Maybe[string] `json:"key,omitzero"`
	Operator node.Maybe[string] `json:"operator,omitzero" oneof:"In NotIn Exists DoesNotExist"`
	Values   []string           `json:"values,omitempty"`
}

// selects reports whether s selects a node with these labels.
func (s selector) selects(labels map[string]string) bool {
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

func (r requirement) holds(labels map[string]string) bool {
	v, has := labels[valueOf(r.Key)]
	switch valueOf(r.Operator) {
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

// selector makes the checks of a selector that struct tags cannot express.
func (c *checker) selector(s selector, path string) {
	for i, r := range s.Expressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", path, i)
		c.need(at+".key", valueOf(r.Key) != "", "the name of a label")
		c.need(at+".operator", r.Operator.Known(), "one of In, NotIn, Exists, DoesNotExist")
		switch op := valueOf(r.Operator); {
		case (op == "In" || op == "NotIn") && len(r.Values) == 0:
			c.need(at+".values", false, "the values of the label")
		case (op == "Exists" || op == "DoesNotExist") && len(r.Values) > 0 && !c.bad[at+".values"]:
			c.fault(at+".values", fmt.Sprintf("%d values: want none with the operator %s", len(r.Values), op))
		}
	}
}
