package match

import (
	"fmt"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Rule gives a class to the cgroups that it matches, and to their
// descendants.
type Rule struct {
	// Name is the name of the rule in remarks, explanations and metrics.
	Name  string
	Class node.Class
	// Cgroups are globs over paths below the root of the hierarchy:
	//
	//	*      any characters within one component
	//	?      one character
	//	[a-z]  one character of a set; [!a-z]: one character outside the set
	//	**     if it is a whole component: any number of components, or none;
	//	       at the end of a glob at least one: a/** matches all below a, but not a
	//
	// There is no escape character, because systemd uses backslashes in the
	// names of cgroups. [*] matches a star.
	Cgroups []string
	// Units are globs over the names of systemd services, slices and scopes at
	// any depth of the tree. The name of a unit is the last component of its
	// cgroup. A glob without the suffix .service, .slice or .scope matches
	// services.
	Units []string
	// Containers are globs over the names of containers. A glob of the form
	// KEY=VALUE matches labels instead: the container must have a label whose
	// key matches KEY and whose value matches VALUE.
	Containers []string
	// The limits and requests hold for each workload of the rule separately,
	// not for their sum.
	CPULimit      node.Maybe[unit.MilliCPU]
	CPURequest    node.Maybe[unit.MilliCPU]
	MemoryLimit   node.Maybe[unit.Bytes]
	MemoryRequest node.Maybe[unit.Bytes]
	// Priority orders the workloads of one class, including workloads of
	// different rules. The workload with the lower priority is the first to
	// give way. The range is int32, as for a Kubernetes pod priority.
	Priority int
	// EvictionExempt is the reason why Tenon must never evict the workloads of
	// the rule. It is empty if Tenon may evict them.
	EvictionExempt string
	// Mid says that the usage of BE workloads of the rule reduces the batch
	// resources (node.Workload.Mid).
	Mid bool
	// Objective is the latency objective of each workload of the rule.
	Objective node.Objective
}

// The range of objectives. Linux needs a few microseconds to switch threads, so
// no shorter objective can be met. A service that may wait longer than a second
// is not latency-sensitive.
const (
	minDelay = 10 * time.Microsecond
	maxDelay = time.Second
	// No source counts shorter requests well, and no service is latency-sensitive
	// whose requests may take longer.
	minTarget = 100 * time.Microsecond
	maxTarget = time.Minute
)

// A Fault is a mistake in one field of a rule.
type Fault struct {
	Field   string // dotted path of the key, such as "cgroups[1]"
	Problem string // the wrong value and the accepted values
}

// Check returns all faults of the rule. The function Workloads expects checked
// rules.
func (r Rule) Check() (faults []Fault) {
	add := func(field, format string, args ...any) {
		faults = append(faults, Fault{field, fmt.Sprintf(format, args...)})
	}
	if r.Name == "" {
		add("name", "want a name")
	}
	if !slices.Contains(node.Classes, r.Class) {
		add("class", "%q: want one of %v", r.Class, node.Classes)
	}
	if len(r.Cgroups)+len(r.Units)+len(r.Containers) == 0 {
		add(FieldSelectors, "want at least one of them")
	}
	for _, list := range []struct {
		field    string
		patterns []string
		check    func(string) error
	}{{"cgroups", r.Cgroups, checkPath}, {"units", r.Units, checkUnit}, {"containers", r.Containers, checkContainer}} {
		for i, pattern := range list.patterns {
			if err := list.check(pattern); err != nil {
				add(fmt.Sprintf("%s[%d]", list.field, i), "%q: %v", pattern, err)
			}
		}
	}
	faults = append(faults, checkAmounts("cpu", r.CPURequest, r.CPULimit)...)
	faults = append(faults, checkAmounts("memory", r.MemoryRequest, r.MemoryLimit)...)
	if r.Priority < math.MinInt32 || r.Priority > math.MaxInt32 {
		add("priority", "%d: want a whole number from %d to %d", r.Priority, math.MinInt32, math.MaxInt32)
	}
	for _, f := range CheckObjective(r.Class, r.Objective) {
		add("objective."+f.Field, "%s", f.Problem)
	}
	return faults
}

// FieldSelectors is the field of the fault of a rule that selects nothing.
const FieldSelectors = "cgroups, units, containers"

// CheckObjective returns the faults of an objective of a workload of the given
// class. The function is the same for rules and for pods.
func CheckObjective(class node.Class, o node.Objective) (faults []Fault) {
	add := func(field string, limit, least, most time.Duration) {
		switch {
		case limit < least || limit > most:
			faults = append(faults, Fault{field, fmt.Sprintf("%v: want %v to %v", limit, least, most)})
		case !class.Sensitive():
			faults = append(faults, Fault{field, fmt.Sprintf("%v: want it for LSE, LSR or LS only: class %s has no latency objective", limit, class)})
		}
	}
	if delay, wanted := o.RunQueueDelay.Value(); wanted {
		add("runQueueDelay", delay, minDelay, maxDelay)
	}
	for i, p := range node.Percentiles {
		if target := o.Requests.Within[i]; target != 0 {
			add(p.Name, target, minTarget, maxTarget)
		}
	}
	return faults
}

func checkAmounts[T unit.MilliCPU | unit.Bytes](resource string, request, limit node.Maybe[T]) []Fault {
	asked, hasRequest := request.Value()
	most, hasLimit := limit.Value()
	switch {
	case hasLimit && most <= 0:
		return []Fault{{"limits." + resource, fmt.Sprintf("%v: want more than 0", most)}}
	case hasRequest && asked < 0:
		return []Fault{{"requests." + resource, fmt.Sprintf("%v: want 0 or more", asked)}}
	case hasRequest && hasLimit && asked > most:
		return []Fault{{"requests." + resource, fmt.Sprintf("%v: want no more than limits.%s, %v", asked, resource, most)}}
	}
	return nil
}
