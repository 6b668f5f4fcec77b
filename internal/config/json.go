package config

import (
	"cmp"
	"reflect"
	"slices"

	"tenon.sh/tenon/internal/config/syntax"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/model/node"
)

// ReadJSON parses JSON text, such as an annotation of a pod, into a struct with the
// tags of this package (see key). Keys have the same meanings and ranges as in the
// configuration. null leaves a key unset. ReadJSON finds all faults, without line
// numbers. If there is a fault, it returns the zero value.
func ReadJSON[T any](text string) (T, []Fault) {
	v, _, faults := readJSON[T](text, false, false)
	return v, faults
}

// ReadLenientJSON is like ReadJSON, but for texts that may be written for Koordinator. Three
// mistakes cause a notice instead of a fault: an unknown key, a key in another case, and a
// value that Koordinator accepts but that has no effect.
func ReadLenientJSON[T any](text string) (v T, notices, faults []Fault) {
	return readJSON[T](text, true, false)
}

// ReadObjective parses the objective of a pod of a class; "" is an unknown class.
// An unknown key is a fault. If there is a fault, the objective is none.
func ReadObjective(text string, class node.Class) (node.Objective, []Fault) {
	v, _, faults := readJSON[Objective](text, true, true)
	if len(faults) == 0 {
		c := checker{bad: map[string]bool{}}
		if c.checkObjective(v, ""); class != "" {
			for _, f := range match.CheckObjective(class, v.Node()) {
				c.fault(f.Field, f.Problem)
			}
		}
		faults = c.faults
	}
	if len(faults) > 0 {
		return node.Objective{}, faults
	}
	return v.Node(), nil
}

func readJSON[T any](text string, lenient, exact bool) (T, []Fault, []Fault) {
	var v, none T
	root, err := syntax.JSON(text)
	if err != nil {
		return none, nil, []Fault{{Problem: err.Error()}}
	}
	p := parser{lines: map[string]int{}, pinned: 1, lenient: lenient, exact: exact}
	p.value(root, "", key{}, reflect.ValueOf(&v).Elem())
	c := checker{bad: map[string]bool{}, lenient: lenient}
	for _, f := range p.faults {
		c.bad[f.Field] = true
	}
	c.inner(reflect.ValueOf(v), "")
	faults := append(p.faults, c.faults...)
	if lenient && len(faults) == 0 {
		p.notices = append(p.notices, leaveOut(reflect.ValueOf(&v).Elem(), "")...)
	}
	for _, found := range [][]Fault{faults, p.notices} {
		for i := range found {
			found[i].Line = 0
		}
		slices.SortStableFunc(found, func(a, b Fault) int { return cmp.Compare(a.Field, b.Field) })
	}
	if len(faults) > 0 {
		return none, nil, faults
	}
	return v, p.notices, nil
}
