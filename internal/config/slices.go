// This is the part of the configuration file that divides a machine into
// virtual workers. It contains the list slices, and the key slice of each rule.
// The package is pure.

package config

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/model/node"
)

// A Slice is an entry of the list slices: Count virtual workers with CPUs CPUs each.
type Slice struct {
	Name  node.Maybe[string] `json:"name"`
	CPUs  node.Maybe[int64]  `json:"cpus" range:"1..2048"`
	Count node.Maybe[int64]  `json:"count" range:"1..1000"`
}

// A sliceUse describes a rule that may use a slice. Slice is the name of its slice, if any.
type sliceUse struct {
	Rule, Class string
	Slice       node.Maybe[string]
}

// SliceNameForm is the form of the names of rules and slices, which occur in metrics,
// logs and on command lines.
const SliceNameForm = "want 1 to 63 letters, digits, dots, dashes and underscores, a letter or digit first and last"

// IsSliceName reports whether a name has NameForm.
func IsSliceName(name string) bool {
	edge := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }
	n := len(name)
	if n < 1 || n > 63 || !edge(name[0]) || !edge(name[n-1]) {
		return false
	}
	for i := range n {
		if c := name[i]; !edge(c) && !strings.ContainsRune("._-", rune(c)) {
			return false
		}
	}
	return true
}

// checkSlices calls fault for each mistake that the ranges of keys cannot express. It
// ignores the fields in bad, because they already have faults.
func checkSlices(all []Slice, uses []sliceUse, bad map[string]bool, fault func(field, problem string)) {
	add := func(field, format string, args ...any) {
		if !bad[field] {
			fault(field, fmt.Sprintf(format, args...))
		}
	}
	first := map[string]int{}
	var names []string
	for i, s := range all {
		at := fmt.Sprintf("slices[%d]", i)
		name, named := s.Name.Value()
		other, twice := first[name]
		switch {
		case !named:
			add(at+".name", "missing: want a name that no other slice has")
		case twice:
			add(at+".name", "%.80q: slices[%d] has this name already", name, other)
		case !IsSliceName(name):
			add(at+".name", "%.80q: %s", name, SliceNameForm)
		default:
			first[name] = i
			names = append(names, name)
		}
		if !s.CPUs.Known() {
			add(at+".cpus", "missing: want the number of CPUs of each worker, from 1 to 2048")
		}
	}
	for i, u := range uses {
		name, given := u.Slice.Value()
		_, known := first[name]
		at := fmt.Sprintf("rules[%d].slice", i)
		switch {
		case !given:
		case len(names) == 0:
			add(at, "%.80q: want the name of an entry of slices, and there is none", name)
		case !known:
			add(at, "%.80q: want one of %s, the names below slices", name, strings.Join(names, ", "))
		case u.Class != string(node.BE):
			add(at, "%.80q: want it for class BE only, and class %.40s is not divided into workers", name, u.Class)
		}
	}
}

// workerSlices returns the slices of a file without faults. Each slice contains the
// rules that use it.
func workerSlices(all []Slice, uses []sliceUse) []worker.Slice {
	var to []worker.Slice
	for _, s := range all {
		name := s.Name.Or("")
		one := worker.Slice{Name: name, CPUs: int(s.CPUs.Or(1)), Count: int(s.Count.Or(1))}
		for _, u := range uses {
			if u.Slice.Or("") == name {
				one.Rules = append(one.Rules, u.Rule)
			}
		}
		to = append(to, one)
	}
	return to
}

// sliceNotices returns a notice for each slice that no rule uses.
func sliceNotices(all []Slice, uses []sliceUse) (notices []string) {
	for i, s := range workerSlices(all, uses) {
		if len(s.Rules) == 0 {
			notices = append(notices, fmt.Sprintf("slices[%d]: no rule has slice: %s, so its workers stay empty", i, s.Name))
		}
	}
	return notices
}
