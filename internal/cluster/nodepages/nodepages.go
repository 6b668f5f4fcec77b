// Package nodepages prints the pages of kubectl tenon that show the reports of
// the nodes. It is pure: its caller reads the API.
package nodepages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// A Node is a node of the cluster with its report. Report is nil if the node
// has none.
type Node struct {
	*corev1.Node
	Report *v1alpha1.NodeReport
	// Unread is the reason why the report of the node, which may exist, could not
	// be read. It is empty if it was read, or if there is none.
	Unread string
}

// silentFor is the age of a report above which its agent counts as silent. An
// agent sends a report at least every minute.
const silentFor = 3 * time.Minute

// Nodes combines nodes and reports, sorted by name.
func Nodes(nodes []corev1.Node, reports []v1alpha1.NodeReport) []Node {
	of := make(map[string]*v1alpha1.NodeReport, len(reports))
	for i := range reports {
		of[reports[i].Name] = &reports[i]
	}
	all := make([]Node, len(nodes))
	for i := range nodes {
		all[i] = Node{Node: &nodes[i], Report: of[nodes[i].Name]}
	}
	slices.SortFunc(all, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Reported returns the nodes of reports, of which only the names are known.
func Reported(reports []v1alpha1.NodeReport) []Node {
	names := make([]corev1.Node, len(reports))
	for i := range reports {
		names[i].Name = reports[i].Name
	}
	return Nodes(names, reports)
}

// age returns the time since the agent wrote the report. The time of the report
// comes from the agent's clock.
func (n Node) age(now time.Time) time.Duration {
	return max(now.Sub(n.Report.Status.Reported.Time), 0).Truncate(time.Second)
}

// Age prints the time since the agent wrote the report, as in "4s ago".
func (n Node) Age(now time.Time) string { return Duration(n.age(now)) + " ago" }

// IsSilent reports whether the state of the node is not known.
func (n Node) IsSilent(now time.Time) bool { return n.silenceReason(now) != "" }

// Left returns why no agent runs on the node, if tenond was removed from it for
// good. Otherwise it returns "".
func (n Node) Left() string {
	if n.Report == nil || !slices.ContainsFunc(n.Report.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.AgentRuns && c.Status == metav1.ConditionFalse
	}) {
		return ""
	}
	return "tenond was removed from the node"
}

// silenceReason returns why the state of the node is not known, or "" if it is
// known.
func (n Node) silenceReason(now time.Time) string {
	switch {
	case n.Report == nil:
		return cmp.Or(n.Unread, "no report")
	case n.Left() != "":
		return n.Left()
	case n.age(now) > silentFor:
		return "silent for " + Duration(n.age(now))
	}
	return ""
}

// problems returns the conditions that show a problem: an enabled feature that
// does not work, a setting that is probably not meant, or a knob that another
// program keeps writing. The condition
// Suppressing may be False without a problem. For the condition AgentRuns, see
// Left.
func (n Node) problems() []metav1.Condition {
	var all []metav1.Condition
	for _, c := range n.Report.Status.Conditions {
		if c.Status == metav1.ConditionFalse && c.Type != "Suppressing" && c.Type != v1alpha1.AgentRuns || c.Reason == "Contested" || c.Reason == v1alpha1.ReasonUnlikely {
			all = append(all, c)
		}
	}
	return all
}

// Top prints one line for each node.
func Top(nodes []Node, now time.Time) string {
	reported := func(name string, text func(Node, v1alpha1.NodeReportStatus) string) table.Column[Node] {
		return table.Column[Node]{Name: name, Text: func(n Node) string {
			if n.Report == nil {
				return "-"
			}
			return table.OrDash(text(n, n.Report.Status))
		}}
	}
	batch := func(name string, resource corev1.ResourceName) table.Column[Node] {
		return table.Column[Node]{Name: name, Text: func(n Node) string { return batchAmount(n, resource) }}
	}
	return table.Text([]table.Column[Node]{
		{Name: "NODE", Text: func(n Node) string { return n.Name }},
		reported("CPU", func(_ Node, s v1alpha1.NodeReportStatus) string { return cpu(s.Usage.CPU) }),
		reported("CPU%", func(n Node, s v1alpha1.NodeReportStatus) string {
			return percent(s.Usage.CPU, n.Status.Capacity[corev1.ResourceCPU])
		}),
		reported("MEMORY", func(_ Node, s v1alpha1.NodeReportStatus) string { return memory(s.Usage.Memory) }),
		reported("MEMORY%", func(n Node, s v1alpha1.NodeReportStatus) string {
			return percent(s.Usage.Memory, kube.MemoryCapacity(n.Node))
		}),
		batch("BATCH-CPU", kube.BatchCPU),
		batch("BATCH-MEMORY", kube.BatchMemory),
		reported("PODS", func(_ Node, s v1alpha1.NodeReportStatus) string { return pods(s.Pods) }),
		reported("ISOLATION", func(_ Node, s v1alpha1.NodeReportStatus) string {
			if s.Shadow != nil {
				return "observed"
			}
			return s.Isolation
		}),
		reported("REPORTED", func(n Node, _ v1alpha1.NodeReportStatus) string { return Duration(n.age(now)) }),
		{Name: "TROUBLE", Text: func(n Node) string { return table.OrDash(n.trouble(now)) }},
	}, nodes)
}

// trouble lists the problems of a node in a few words each.
func (n Node) trouble(now time.Time) string {
	if n.Report == nil {
		return n.silenceReason(now)
	}
	var all []string
	switch {
	case n.Left() != "":
		all = append(all, "no agent")
	case n.age(now) > silentFor:
		all = append(all, "silent")
	}
	for _, c := range n.problems() {
		all = append(all, c.Type)
	}
	if missed := n.missed(); missed > 0 {
		all = append(all, table.Count(missed, "objective")+" missed")
	}
	if by := n.Binder(); by != "" {
		all = append(all, "CPUs bound by "+by)
	}
	if len(n.noCPUs()) > 0 {
		all = append(all, "all CPUs reserved")
	}
	if pods := len(n.refused()); pods > 0 {
		all = append(all, refusedText(pods))
	}
	return strings.Join(all, ", ")
}

// missed returns the number of services of a node that miss their objective.
func (n Node) missed() (missed int) {
	if n.Report.Status.Objectives == nil {
		return 0
	}
	for _, s := range n.Report.Status.Objectives.Services {
		if s.State == v1alpha1.ObjectiveMissed {
			missed++
		}
	}
	return missed
}

// batchAmount returns the amount of a batch resource in the status of a node.
func batchAmount(n Node, name corev1.ResourceName) string {
	q, has := n.Status.Allocatable[name]
	switch {
	case !has:
		return "-"
	case name == kube.BatchCPU:
		return node.Readable(unit.MilliCPU(quantity.Whole(q, unit.Down)))
	}
	return memory(&q)
}

func cpuOf(q resource.Quantity) unit.MilliCPU { return quantity.CPU(q, unit.Up) }

func memoryOf(q resource.Quantity) unit.Bytes { return unit.Bytes(quantity.Whole(q, unit.Up)) }

func cpu(q *resource.Quantity) string {
	if q == nil {
		return "-"
	}
	return node.Readable(cpuOf(*q))
}

func memory(q *resource.Quantity) string {
	if q == nil {
		return "-"
	}
	return node.Readable(memoryOf(*q))
}

func percent(used *resource.Quantity, of resource.Quantity) string {
	if used == nil || of.Sign() <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*used.AsApproximateFloat64()/of.AsApproximateFloat64())
}

// pods prints the number of pods of each class that has pods.
func pods(counts map[string]int32) string {
	var all []string
	for _, class := range node.Classes {
		if n := counts[string(class)]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, class))
		}
	}
	for _, name := range sorted(counts) {
		if !slices.Contains(node.Classes, node.Class(name)) && counts[name] > 0 {
			all = append(all, fmt.Sprintf("%d %s", counts[name], strings.ToLower(name)))
		}
	}
	return strings.Join(all, ", ")
}

func sorted[T any](m map[string]T) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Duration prints a duration with its two largest units.
func Duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}
