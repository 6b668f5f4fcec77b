package nodepages

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/api/v1alpha1"
)

// refused returns the pods that ask for CPUs and have none on the node.
func (n Node) refused() (all []v1alpha1.PodCPUs) {
	if n.Report == nil || n.Report.Status.CPUs == nil {
		return nil
	}
	for _, p := range n.Report.Status.CPUs.Pods {
		if p.CPUs == "" {
			all = append(all, p)
		}
	}
	return all
}

// refusedText prints the number of pods that ask for CPUs and have none.
func refusedText(n int) string {
	if n == 1 {
		return "1 pod asks for CPUs and has none"
	}
	return fmt.Sprintf("%d pods ask for CPUs and have none", n)
}

// HasRefused reports whether a node has a pod that asks for CPUs and has none.
func HasRefused(nodes []Node) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return len(n.refused()) > 0 })
}

// Refused returns a line for each reason why pods ask for CPUs and have none on
// their nodes. names are the pods by UID. If names is nil, the lines have the
// numbers of pods.
func Refused(nodes []Node, names map[string]string) []string {
	type group struct{ nodes, pods []string }
	groups := map[string]*group{}
	for _, n := range nodes {
		for _, r := range n.refused() {
			g := groups[r.Why]
			if g == nil {
				g = &group{}
				groups[r.Why] = g
			}
			g.pods = append(g.pods, cmp.Or(names[r.UID], r.Pod, "the pod with UID "+r.UID))
			if !slices.Contains(g.nodes, n.Name) {
				g.nodes = append(g.nodes, n.Name)
			}
		}
	}
	var lines []string
	for _, why := range sorted(groups) {
		g := groups[why]
		who, each := refusedText(len(g.pods)), "each "
		if names != nil && len(g.pods) == 1 {
			who = g.pods[0] + " asks for CPUs and has none"
		} else if names != nil {
			who = printNames(g.pods) + " ask for CPUs and have none"
		}
		if len(g.pods) == 1 {
			each = "it "
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s%s", printNames(g.nodes), who, each, why))
	}
	slices.Sort(lines)
	return lines
}
