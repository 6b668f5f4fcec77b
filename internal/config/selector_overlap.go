package config

import "slices"

// Overlaps reports whether the labels of one node can satisfy both selectors. It checks each
// label key alone, because labels do not depend on each other.
func (s Selector) Overlaps(other Selector) bool {
	all := map[string]selectorValues{}
	for _, one := range []Selector{s, other} {
		for key, v := range one.Labels {
			all[key] = all[key].require("In", []string{v})
		}
		for _, r := range one.Expressions {
			key := r.Key.Or("")
			all[key] = all[key].require(r.Operator.Or(""), r.Values)
		}
	}
	for _, v := range all {
		if !v.possible() {
			return false
		}
	}
	return true
}

// selectorValues describes the possible values of a label.
type selectorValues struct {
	listed       bool     // only the values of in are possible
	in, out      []string // possible values, and impossible values
	must, cannot bool     // the label must exist, or must not exist
}

// require adds one requirement (operator and words) to v.
func (v selectorValues) require(operator string, words []string) selectorValues {
	switch operator {
	case "In":
		v.must = true
		if v.listed {
			words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !slices.Contains(v.in, w) })
		}
		v.in, v.listed = words, true
	case "NotIn":
		v.out = append(slices.Clone(v.out), words...)
	case "Exists":
		v.must = true
	case "DoesNotExist":
		v.cannot = true
	}
	return v
}

func (v selectorValues) possible() bool {
	if v.must && v.cannot {
		return false
	}
	return !v.listed || slices.ContainsFunc(v.in, func(w string) bool { return !slices.Contains(v.out, w) })
}
