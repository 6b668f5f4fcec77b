package nodepages

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
)

// maxNamed is the maximum number of nodes that a line names.
const maxNamed = 5

// Doctor prints the mechanism of each feature on each node, and the problems of
// the nodes and of the colocation profiles. others are further problems, which
// the caller has found. healthy means that there are no problems.
func Doctor(nodes []Node, profiles []configv1alpha1.ClusterColocationProfile, others []string, now time.Time) (text string, healthy bool) {
	var b strings.Builder
	silent, agents := map[string][]string{}, map[string][]string{}
	var known []Node
	for _, n := range nodes {
		if why := n.silenceReason(now); why != "" {
			silent[why] = append(silent[why], n.Name)
		}
		if n.Report != nil && n.Left() == "" {
			known = append(known, n)
			agents[n.Report.Status.Agent] = append(agents[n.Report.Status.Agent], n.Name)
		}
	}
	fmt.Fprintf(&b, "%s, %d with a report\n", count(len(nodes), "node"), len(known))
	healthy = len(silent) == 0 && len(known) > 0
	for _, why := range sorted(silent) {
		fmt.Fprintf(&b, "  %s: %s (%s)\n", why, printNames(silent[why]), lookForAgent)
	}
	if len(agents) > 1 {
		for _, version := range sorted(agents) {
			fmt.Fprintf(&b, "  tenond %s: %s\n", orDash(version), printNames(agents[version]))
		}
	}
	printMechanisms(&b, known)
	right := conditions(&b, known, profiles, others)
	return b.String(), right && healthy
}

// featureCPUs is the feature of own CPUs for pods (docs/scheduling.md).
const featureCPUs = "cpus"

// printMechanisms prints the mechanism of each enabled feature, with the nodes
// that use it.
func printMechanisms(b *strings.Builder, nodes []Node) {
	features := map[string]map[string][]string{} // by feature and mechanism: the nodes
	add := func(feature, how, node string) {
		if features[feature] == nil {
			features[feature] = map[string][]string{}
		}
		features[feature][how] = append(features[feature][how], node)
	}
	for _, n := range nodes {
		for _, m := range n.Report.Status.Means {
			how := m.By
			switch {
			case how == "":
				how = "not done: " + orDash(m.Why)
			case m.Why != "":
				how += " (" + m.Why + ")"
			}
			add(m.Feature, how, n.Name)
		}
		if n.Report.Status.CPUs != nil {
			add(featureCPUs, n.binderText(), n.Name)
		}
	}
	if len(features) > 0 {
		b.WriteString("\nHow each feature works\n")
	}
	for _, f := range sorted(features) {
		for _, how := range sorted(features[f]) {
			fmt.Fprintf(b, "  %-12s %s: %s\n", f, how, printNames(features[f][how]))
		}
	}
}

// conditions prints each problem once, with its nodes or profiles. It returns
// true if there is no problem.
func conditions(b *strings.Builder, nodes []Node, profiles []configv1alpha1.ClusterColocationProfile, others []string) bool {
	wrong := map[string][]string{}
	for _, p := range profiles {
		for _, c := range p.Status.Conditions {
			if c.Status == metav1.ConditionFalse {
				what := fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message)
				wrong[what] = append(wrong[what], "ClusterColocationProfile "+p.Name)
			}
		}
	}
	for _, n := range nodes {
		for _, c := range n.problems() {
			what := fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message)
			wrong[what] = append(wrong[what], n.Name)
		}
		for _, what := range n.noCPUs() {
			wrong[what] = append(wrong[what], n.Name)
		}
	}
	if len(wrong) == 0 && len(others) == 0 {
		return true
	}
	b.WriteString("\nProblems\n")
	for _, what := range sorted(wrong) {
		fmt.Fprintf(b, "  %s: %s\n", printNames(wrong[what]), what)
	}
	for _, what := range others {
		fmt.Fprintf(b, "  %s\n", what)
	}
	return false
}

// printNames prints the first few names of nodes, and how many more there are.
func printNames(nodes []string) string {
	slices.Sort(nodes)
	if len(nodes) <= maxNamed {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:maxNamed], ", "), len(nodes)-maxNamed)
}
