package match

import (
	"errors"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// A Rule gives a class to the cgroups that it matches, each with all that is
// below it.
type Rule struct {
	// Name is what remarks, explanations and metrics call the rule.
	Name  string
	Class node.Class
	// Cgroups are globs over paths below the root:
	//
	//	*      any characters of one component
	//	?      one character
	//	[a-z]  one character of a set; [!a-z]: one that is not in it
	//	**     alone between slashes: any number of components, also none;
	//	       at the end at least one, so that a/** is all below a, not a
	//
	// Nothing escapes, because systemd has backslashes in the names of
	// cgroups. A star itself is [*].
	Cgroups []string
	// Units are globs over the names of systemd's services, slices and
	// scopes, wherever they are in the tree: the cgroup of a unit has its
	// name as the last component. A name without such an ending is a service.
	Units []string
	// The limits and requests are those of every workload of the rule, not
	// of all together.
	CPULimit      node.Maybe[unit.MilliCPU]
	CPURequest    node.Maybe[unit.MilliCPU]
	MemoryLimit   node.Maybe[unit.Bytes]
	MemoryRequest node.Maybe[unit.Bytes]
}

// Check returns all that is wrong with the rule, joined. Each error begins
// with the field that it is about. Workloads takes rules as they are and does
// not check them.
func (r Rule) Check() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if r.Name == "" {
		add("name: want a name")
	}
	if !slices.Contains(node.Classes, r.Class) {
		add("class: %q: want one of %v", r.Class, node.Classes)
	}
	if len(r.Cgroups)+len(r.Units) == 0 {
		add("cgroups, units: want at least one of them")
	}
	for i, pattern := range r.Cgroups {
		if err := checkPath(pattern); err != nil {
			add("cgroups[%d]: %q: %w", i, pattern, err)
		}
	}
	for i, pattern := range r.Units {
		if err := checkUnit(pattern); err != nil {
			add("units[%d]: %q: %w", i, pattern, err)
		}
	}
	faults = append(faults, checkAmounts("cpu", r.CPURequest, r.CPULimit), checkAmounts("memory", r.MemoryRequest, r.MemoryLimit))
	return errors.Join(faults...)
}

func checkAmounts[T unit.MilliCPU | unit.Bytes](resource string, request, limit node.Maybe[T]) error {
	asked, hasRequest := request.Value()
	most, hasLimit := limit.Value()
	switch {
	case hasLimit && most <= 0:
		return fmt.Errorf("limits.%s: %v: want more than 0", resource, most)
	case hasRequest && asked < 0:
		return fmt.Errorf("requests.%s: %v: want 0 or more", resource, asked)
	case hasRequest && hasLimit && asked > most:
		return fmt.Errorf("requests.%s: %v: want no more than limits.%s, %v", resource, asked, resource, most)
	}
	return nil
}
