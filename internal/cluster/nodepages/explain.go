package nodepages

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// Explain prints the batch resources of one node: the terms that its agent
// computed, what lasts of them, and the amounts that the manager published. Then it prints the CPUs
// for pods, and the trials of isolation mechanisms (docs/glossary.md).
func Explain(n Node, now time.Time) string {
	var b strings.Builder
	if n.Unread != "" {
		fmt.Fprintf(&b, "%s: not known: %s\n", n.Name, n.Unread)
		return b.String()
	}
	if n.Report == nil {
		fmt.Fprintf(&b, "%s has no report, so batch work is promised nothing there: does tenond run on it? (%s)\n", n.Name, lookForAgent)
		return b.String()
	}
	s := n.Report.Status
	fmt.Fprintf(&b, "%s, as reported %s ago", n.Name, Duration(n.age(now)))
	if s.Agent != "" {
		fmt.Fprintf(&b, " by tenond %s", s.Agent)
	}
	b.WriteString("\n")
	if why := n.Left(); why != "" {
		fmt.Fprintf(&b, "  no agent runs there: %s, so no pod has CPUs of its own there (%s)\n\n", why, lookForAgent)
		printPublished(&b, n, now)
		return b.String()
	}
	if n.silenceReason(now) != "" {
		b.WriteString("  the agent is silent: what follows may not be true any more\n")
	}
	b.WriteString("\n")
	if s.Shadow != nil {
		observed(&b, s.Shadow)
		printPublished(&b, n, now)
		return b.String()
	}
	if s.Batch.CPU == nil && s.Batch.Memory == nil {
		fmt.Fprintf(&b, "Batch work is promised nothing: %s.\n", n.unpromised())
	}
	amount(&b, "batch-cpu", s.Batch.CPU, cpuOf)
	amount(&b, "batch-memory", s.Batch.Memory, memoryOf)
	promises(&b, s.Promises)
	printPublished(&b, n, now)
	writeCPUs(&b, n)
	trials(&b, s.Trials, now)
	return b.String()
}

// observed prints what an agent that only observes would offer and write.
func observed(b *strings.Builder, s *v1alpha1.Shadow) {
	b.WriteString("The agent only observes and writes nothing. Pods can have none of what it would offer:\n")
	amount(b, "batch-cpu", s.Batch.CPU, cpuOf)
	amount(b, "batch-memory", s.Batch.Memory, memoryOf)
	promises(b, s.Promises)
	var sum int64
	parts := make([]string, 0, len(s.Steps))
	for _, of := range s.Steps {
		sum += of.Count
		parts = append(parts, fmt.Sprintf("%s %d", of.Policy, of.Count))
	}
	fmt.Fprintf(b, "Since its start it would have made %s", table.Count(int(sum), "write"))
	if len(parts) > 0 {
		b.WriteString(": " + strings.Join(parts, ", "))
	}
	b.WriteString(".\n")
}

// unpromised returns why the agent computes no batch resources.
func (n Node) unpromised() string {
	for _, c := range n.Report.Status.Conditions {
		if c.Type == v1alpha1.ConfigAccepted && c.Status == metav1.ConditionFalse {
			return c.Message
		}
	}
	return "colocation-config is not enabled for this node"
}

// amount prints an amount as tenon explain batch does, and what pods request of it.
func amount[T unit.MilliCPU | unit.Bytes](b *strings.Builder, name string, a *v1alpha1.BatchAmount, of func(resource.Quantity) T) {
	if a == nil {
		return
	}
	shown := node.Amount[T]{Value: of(a.Amount), Policy: a.Policy, Over: a.Over.Duration, Formula: of(a.Formula), Held: a.Held, Degraded: a.Degraded}
	for _, t := range a.Terms {
		shown.Terms = append(shown.Terms, node.Term[T]{Name: node.TermName(t.Name), Amount: of(t.Amount), Text: t.Text})
	}
	b.WriteString(shown.Explain(name, ""))
	if q := a.Requested; q != nil && q.Sign() > 0 {
		text := "requested by running pods"
		if q.Cmp(a.Amount) > 0 {
			text += ": what is published does not fall below that while they run"
		}
		fmt.Fprintf(b, "  pods    %s %s\n", node.Readable(of(*q)), text)
	}
	b.WriteString("\n")
}

// printPublished prints the batch resources in the status of a node, and the reason.
func printPublished(b *strings.Builder, n Node, now time.Time) {
	fmt.Fprintf(b, "The scheduler sees batch-cpu %s, batch-memory %s", batchAmount(n, kube.BatchCPU), batchAmount(n, kube.BatchMemory))
	p := n.Report.Status.Published
	if p == nil {
		b.WriteString(": the manager has not looked at this report (kubectl -n tenon-system get pods)\n")
		return
	}
	if !p.At.IsZero() {
		fmt.Fprintf(b, ", written %s ago", Duration(max(now.Sub(p.At.Time), 0)))
	}
	if p.Reason != "" {
		fmt.Fprintf(b, ": %s", p.Reason)
	}
	b.WriteString("\n")
	for _, k := range []struct {
		name corev1.ResourceName
		is   *resource.Quantity
	}{{kube.BatchCPU, p.CPU}, {kube.BatchMemory, p.Memory}} {
		q, has := n.Status.Allocatable[k.name]
		if k.is != nil && has && q.Sign() >= 0 && !sameAmount(k.name, *k.is, q) {
			fmt.Fprintf(b, "  but the manager wrote %s of %s: another component also writes the status of this node\n", k.is.String(), k.name)
		}
	}
}

// sameAmount reports whether the amount that the manager wrote equals the
// amount in the status of the node (stands). For CPU, wrote is in CPUs and
// stands is in thousandths of a CPU.
func sameAmount(name corev1.ResourceName, wrote, stands resource.Quantity) bool {
	if name == kube.BatchCPU {
		return wrote.MilliValue() == stands.Value()
	}
	return wrote.Cmp(stands) == 0
}

const lookForAgent = "kubectl -n tenon-system get pods -o wide"
