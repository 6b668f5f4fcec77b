package nodepages

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// binderOf returns which other component binds containers to CPUs on a node, or
// "". In the report, "static" is the static policy of the kubelet, and "dra" is
// a DRA driver.
func (n Node) binderOf() string {
	if n.Report == nil || n.Report.Status.CPUs == nil {
		return ""
	}
	switch name := n.Report.Status.CPUs.Manager; name {
	case "static":
		return "the kubelet's static CPU manager"
	case "dra":
		return "a DRA driver"
	default:
		return name
	}
}

// noOwnCPUs is the effect on pods if another component binds CPUs.
const noOwnCPUs = "tenon-scheduler gives the node no pod that asks for CPUs"

// binderText says who binds CPUs on a node, for kubectl tenon doctor.
func (n Node) binderText() string {
	if by := n.binderOf(); by != "" {
		return fmt.Sprintf("not done: %s binds CPUs, so %s", by, noOwnCPUs)
	}
	return "tenond binds CPUs"
}

// cpus prints who binds the CPUs of a node, and how many CPUs pods have.
func cpus(b *strings.Builder, n Node) {
	c := n.Report.Status.CPUs
	if c == nil {
		b.WriteString("\nCPUs for pods: the agent reports none, so no pod gets CPUs of its own there\n")
		return
	}
	var all, own unit.CPUSet
	for _, k := range c.Caches {
		all = all.Union(setOf(k.CPUs))
	}
	pods := map[string]int{} // by grade
	for _, h := range c.Held {
		if pods[h.Grade]++; h.Grade == "own" {
			own = own.Union(setOf(h.CPUs))
		}
	}
	reserved := setOf(c.Reserved)
	fmt.Fprintf(b, "\nCPUs for pods: %d of %s open", all.Minus(own).Minus(reserved).Len(), count(all.Len(), "CPU"))
	if c.Keep > 0 && !reserved.Contains(all) {
		fmt.Fprintf(b, " (%d must stay open)", c.Keep)
	}
	if !reserved.Empty() {
		fmt.Fprintf(b, ", %d reserved", reserved.Len())
	}
	var has []string
	if pods["own"] > 0 {
		has = append(has, fmt.Sprintf("%d owned by %s", own.Len(), count(pods["own"], "pod")))
	}
	if pods["seats"] > 0 {
		has = append(has, "seats of "+count(pods["seats"], "pod"))
	}
	if pods["pool"] > 0 {
		has = append(has, count(pods["pool"], "pool"))
	}
	if len(has) > 0 {
		fmt.Fprintf(b, "; %s", strings.Join(has, ", "))
	}
	b.WriteString("\n")
	for _, text := range n.noCPUs() {
		fmt.Fprintf(b, "  fault     %s\n", text)
	}
	if by := n.binderOf(); by != "" {
		fmt.Fprintf(b, "  bound by  %s: %s, and such pods act as LS here\n", by, noOwnCPUs)
	} else {
		b.WriteString("  bound by  tenond: the kubelet (cpuManagerPolicy: static) and DRA drivers bind none, as far as tenond can see\n")
	}
	if len(c.Refused) > 0 {
		fmt.Fprintf(b, "  refused   %s: kubectl tenon explain pod says why\n", refusedText(len(c.Refused)))
	}
	fmt.Fprintf(b, "  see       kubectl tenon map %s\n", n.Name)
}

// setOf parses a set of CPUs of a report. It returns an empty set for a text
// that cannot be read; kubectl tenon map prints the error.
func setOf(text string) unit.CPUSet {
	set, _ := unit.ParseCPUSet(text)
	return set
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
