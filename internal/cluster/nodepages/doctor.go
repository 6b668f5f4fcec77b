package nodepages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/table"
)

// maxNamed is the maximum number of nodes that a line names.
const maxNamed = 5

// A Diagnosis is the answer of kubectl tenon doctor. Its JSON keys are stable.
type Diagnosis struct {
	// Healthy means that there are no problems.
	Healthy bool `json:"healthy"`
	Nodes   int  `json:"nodes"`   // of the cluster
	Reports int  `json:"reports"` // nodes of which the state is known
	// Silent lists why the state of nodes is not known.
	Silent []Finding `json:"silent,omitempty"`
	// Observing lists the nodes whose agent only observes: nothing is written there. An
	// owner wants that for a while, so it is no problem.
	Observing []string `json:"observing,omitempty"`
	// Agents lists the versions of tenond.
	Agents []Finding `json:"agents,omitempty"`
	// Features lists how each feature works.
	Features []Feature `json:"features,omitempty"`
	// Problems lists the problems of nodes, of profiles, and others without an object.
	Problems []Finding `json:"problems,omitempty"`
}

// A Finding is a fact and the nodes or other objects of which it is true.
type Finding struct {
	Text string   `json:"text"`
	Of   []string `json:"of,omitempty"`
}

// A Feature is a feature with one way in which nodes do it.
type Feature struct {
	Name  string   `json:"name"`
	How   string   `json:"how"`
	Nodes []string `json:"nodes"`
}

// featureCPUs is the feature of own CPUs for pods (docs/cpus.md).
const featureCPUs = "cpus"

// Doctor finds the mechanism of each feature on each node, and the problems of
// the nodes and of the colocation profiles. others are further problems, which
// the caller has found.
func Doctor(nodes []Node, profiles []configv1alpha1.ClusterColocationProfile, others []string, now time.Time) Diagnosis {
	silent, agents, features, wrong := map[string][]string{}, map[string][]string{}, map[[2]string][]string{}, map[string][]string{}
	d := Diagnosis{Nodes: len(nodes)}
	for _, n := range nodes {
		if why := n.silenceReason(now); why != "" {
			silent[why] = append(silent[why], n.Name)
		} else if n.Report.Status.Shadow != nil {
			d.Observing = append(d.Observing, n.Name)
		}
		if n.Report == nil || n.Left() != "" {
			continue
		}
		d.Reports++
		agents[n.Report.Status.Agent] = append(agents[n.Report.Status.Agent], n.Name)
		n.addFeatures(features)
		n.addProblems(wrong)
	}
	for _, p := range profiles {
		for _, c := range p.Status.Conditions {
			if c.Status == metav1.ConditionFalse {
				what := conditionText(c)
				wrong[what] = append(wrong[what], "ClusterColocationProfile "+p.Name)
			}
		}
	}
	d.Silent, d.Agents, d.Problems = findings(silent), findings(agents), findings(wrong)
	for _, text := range others {
		d.Problems = append(d.Problems, Finding{Text: text})
	}
	for f, names := range features {
		slices.Sort(names)
		d.Features = append(d.Features, Feature{f[0], f[1], names})
	}
	slices.SortFunc(d.Features, func(a, b Feature) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.How, b.How))
	})
	d.Healthy = len(d.Silent) == 0 && len(d.Problems) == 0 && d.Reports > 0
	return d
}

// addFeatures adds the node to the ways in which it does each feature.
func (n Node) addFeatures(all map[[2]string][]string) {
	add := func(feature, how string) {
		k := [2]string{feature, how}
		all[k] = append(all[k], n.Name)
	}
	for _, m := range n.Report.Status.Means {
		how := m.By
		switch {
		case how == "":
			how = "not done: " + table.OrDash(m.Why)
		case m.Why != "":
			how += " (" + m.Why + ")"
		}
		add(m.Feature, how)
	}
	if n.Report.Status.CPUs != nil {
		add(featureCPUs, n.binderText())
	}
}

// addProblems adds the node to its problems.
func (n Node) addProblems(all map[string][]string) {
	for _, c := range n.problems() {
		what := conditionText(c)
		all[what] = append(all[what], n.Name)
	}
	for _, what := range n.noCPUs() {
		all[what] = append(all[what], n.Name)
	}
}

func conditionText(c metav1.Condition) string {
	return fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message)
}

// findings returns the facts in the order of their texts.
func findings(all map[string][]string) []Finding {
	var out []Finding
	for _, text := range sorted(all) {
		slices.Sort(all[text])
		out = append(out, Finding{text, all[text]})
	}
	return out
}

// Text prints the diagnosis.
func (d Diagnosis) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d with a report\n", table.Count(d.Nodes, "node"), d.Reports)
	for _, s := range d.Silent {
		fmt.Fprintf(&b, "  %s: %s (%s)\n", s.Text, printNames(s.Of), lookForAgent)
	}
	if len(d.Observing) > 0 {
		fmt.Fprintf(&b, "  %s: %s\n", d.observingText(), printNames(d.Observing))
	}
	if len(d.Agents) > 1 {
		for _, a := range d.Agents {
			fmt.Fprintf(&b, "  tenond %s: %s\n", table.OrDash(a.Text), printNames(a.Of))
		}
	}
	if len(d.Features) > 0 {
		b.WriteString("\nHow each feature works\n")
	}
	for _, f := range d.Features {
		fmt.Fprintf(&b, "  %-12s %s: %s\n", f.Name, f.How, printNames(f.Nodes))
	}
	if len(d.Problems) > 0 {
		b.WriteString("\nProblems\n")
	}
	for _, p := range d.Problems {
		if len(p.Of) > 0 {
			fmt.Fprintf(&b, "  %s: %s\n", printNames(p.Of), p.Text)
		} else {
			fmt.Fprintf(&b, "  %s\n", p.Text)
		}
	}
	return b.String()
}

// observingText says how many nodes only observe, what that means, and how to go on.
func (d Diagnosis) observingText() string {
	of, verb := "all nodes", "only observe"
	if n := len(d.Observing); n < d.Nodes {
		of = table.Count(n, "node")
		if n == 1 {
			verb = "only observes"
		}
	}
	return fmt.Sprintf("%s %s, so nothing is written and batch work gets nothing there (%s)", of, verb, goOn)
}

// goOn names the command that ends the mode observe. The agents of such an installation
// keep a history, which must be switched on from then on.
const goOn = "to go on: helm upgrade without mode=observe, with agent.history.enabled=true; docs/install.md"

// printNames prints the first few names of nodes, and how many more there are.
func printNames(nodes []string) string {
	slices.Sort(nodes)
	if len(nodes) <= maxNamed {
		return strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:maxNamed], ", "), len(nodes)-maxNamed)
}
