package config

import (
	"cmp"
	"reflect"
	"slices"
)

// ReadJSON reads a JSON text into a struct whose fields have the tags of this
// package's (see key), as the annotation of a pod holds it: keys that are also
// keys of the configuration have the same meaning and range there. A null is a
// key that is not set. All faults are found, without lines; with any, the value
// is the zero one.
func ReadJSON[T any](text string) (T, []Fault) {
	v, _, faults := readJSON[T](text, false)
	return v, faults
}

// ReadLenientJSON is ReadJSON, except that an unknown key is no fault: it is
// among the notices, and all other keys count.
func ReadLenientJSON[T any](text string) (v T, notices, faults []Fault) {
	return readJSON[T](text, true)
}

func readJSON[T any](text string, lenient bool) (T, []Fault, []Fault) {
	var v, none T
	root, err := fromJSON(text)
	if err != nil {
		return none, nil, []Fault{{Problem: err.Error()}}
	}
	p := parser{lines: map[string]int{}, pinned: 1, lenient: lenient}
	p.value(root, "", key{}, reflect.ValueOf(&v).Elem())
	c := checker{bad: map[string]bool{}}
	for _, f := range p.faults {
		c.bad[f.Field] = true
	}
	c.inner(reflect.ValueOf(v), "")
	faults := append(p.faults, c.faults...)
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
