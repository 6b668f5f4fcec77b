package match

import (
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// Groups makes groups from the paths of all existing cgroups. containers holds
// the container of each path that has one. direct reports whether processes are
// in the cgroup itself. Groups calls direct only for cgroups with children. If
// direct fails, the cgroup does not exist any more.
func Groups(paths []string, containers map[string]*Container, direct func(path string) (bool, error)) []Group {
	parents := map[node.CgroupPath]bool{}
	for _, p := range paths {
		parents[node.CgroupPath(p).Parent()] = true
	}
	groups := make([]Group, 0, len(paths))
	for _, p := range paths {
		g := Group{Path: node.CgroupPath(p), Container: containers[p]}
		if parents[g.Path] {
			has, err := direct(p)
			g.Direct = has && err == nil
		}
		groups = append(groups, g)
	}
	return groups
}

// WithMatching returns the rules, followed by the optional rules that match at
// least one group. It omits the other optional rules, because they would cause
// a remark.
func WithMatching(rules, optional []Rule, groups []Group) []Rule {
	all := slices.Clip(rules)
	for _, r := range optional {
		if found, _ := Workloads([]Rule{r}, groups); len(found) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// NameContainers reports whether any rule matches containers. For such a rule,
// Tenon must query the container runtimes.
func NameContainers(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return len(r.Containers) > 0 })
}

// Differ reports whether one of two sorted lists of paths has a path that the
// other lacks. It ignores paths for which the function counts returns false.
func Differ(a, b []string, counts func(string) bool) bool {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			if counts(a[0]) {
				return true
			}
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			if counts(b[0]) {
				return true
			}
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return false
}
