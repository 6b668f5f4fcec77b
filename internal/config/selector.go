package config

import (
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// checkSelector makes the checks of a selector that the struct tags cannot express. Koordinator
// passes over an entry whose selector has such a fault, and uses the others.
func (c *checker) checkSelector(s Selector, path string) {
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		at := fmt.Sprintf("%s.matchLabels[%s]", path, label(key))
		c.want(at, key, IsLabelKey(key), WantKey)
		c.want(at, s.Labels[key], isLabelValue(s.Labels[key]), WantValue)
	}
	for i, r := range s.Expressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", path, i)
		c.need(at+".key", valueOf(r.Key) != "", "the name of a label")
		c.want(at+".key", valueOf(r.Key), IsLabelKey(valueOf(r.Key)), WantKey)
		for k, value := range r.Values {
			c.want(fmt.Sprintf("%s.values[%d]", at, k), value, isLabelValue(value), WantValue)
		}
		c.need(at+".operator", r.Operator.Known(), "one of In, NotIn, Exists, DoesNotExist")
		switch op := valueOf(r.Operator); {
		case (op == "In" || op == "NotIn") && len(r.Values) == 0:
			c.need(at+".values", false, "the values of the label")
		case (op == "Exists" || op == "DoesNotExist") && len(r.Values) > 0 && !c.bad[at+".values"]:
			c.fault(at+".values", fmt.Sprintf("%d values: want none with the operator %s", len(r.Values), op))
		}
	}
}

// want adds a fault if the text of a field is not valid. A field has one fault at
// most.
func (c *checker) want(field, text string, valid bool, want string) {
	if !valid && !c.bad[field] && !c.isFull() {
		c.fault(field, quote(text)+": want "+want)
	}
}

// findOverlaps returns a notice for each entry that may select the same node as
// an earlier entry. For this node, only the first entry applies. (Koordinator
// has an optional webhook that refuses such entries.)
func findOverlaps[T any](some []layer[T]) []Fault {
	var found []Fault
	for i, e := range some {
		before := slices.IndexFunc(some[:i], func(b layer[T]) bool {
			return b.Selector != nil && e.Selector != nil && b.Selector.Overlaps(*e.Selector)
		})
		if before >= 0 {
			found = append(found, Fault{Field: e.path, Problem: fmt.Sprintf("%s can select the same node: there only that entry counts", some[before].path)})
		}
	}
	return found
}

// objectiveFaults makes the checks of objective-config beyond the struct tags.
func objectiveFaults(p PodObjectives) []Fault {
	c := checker{bad: map[string]bool{}}
	for i, e := range p.Objectives {
		at := fmt.Sprintf("%s.objectives[%d]", keyObjective, i)
		c.checkSelector(e.PodSelector, at+".podSelector")
		for k, name := range e.Namespaces {
			c.want(fmt.Sprintf("%s.namespaces[%d]", at, k), name, IsNamespace(name), WantNamespace)
		}
		if e.SelectsAll() {
			c.fault(at, "it selects every pod of the cluster: want namespaces, or a podSelector with a label")
		}
		c.checkObjective(e.Objective, at+".objective")
		for _, f := range p.TooStrict(e.Objective.Node()) {
			c.fault(at+".objective."+f.Field, f.Problem)
		}
		c.need(at+".objective", e.Objective.Node() != node.Objective{} || c.badBelow(at+".objective"), "runQueueDelay, or a target for requests such as p99")
	}
	return c.faults
}
