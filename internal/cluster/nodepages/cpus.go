package nodepages

import (
	"errors"
	"fmt"
	"strings"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// Binder returns which other component binds containers to CPUs on a node, or
// "". In the report, "static" is the static policy of the kubelet, and "dra" is
// a DRA driver.
func (n Node) Binder() string {
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
	if by := n.Binder(); by != "" {
		return fmt.Sprintf("not done: %s binds CPUs, so %s", by, noOwnCPUs)
	}
	return "tenond binds CPUs"
}

// cpus prints who binds the CPUs of a node, and how many CPUs pods have.
func writeCPUs(b *strings.Builder, n Node) {
	c := n.Report.Status.CPUs
	if c == nil {
		b.WriteString("\nCPUs for pods: the agent reports none, so no pod gets CPUs of its own there\n")
		return
	}
	all, own, reserved, err := readCPUs(c)
	if err != nil {
		fmt.Fprintf(b, "\nCPUs for pods: not known, because the report cannot be read: %v\n", err)
		return
	}
	pods := map[string]int{} // by policy
	for _, p := range c.Pods {
		if p.CPUs != "" {
			pods[p.Policy]++
		}
	}
	fmt.Fprintf(b, "\nCPUs for pods: %d of %s open", all.Minus(own).Minus(reserved).Len(), table.Count(all.Len(), "CPU"))
	if c.Keep > 0 && !reserved.Contains(all) {
		fmt.Fprintf(b, " (%d must stay open)", c.Keep)
	}
	if !reserved.Empty() {
		fmt.Fprintf(b, ", %d reserved", reserved.Len())
	}
	var has []string
	if pods[cpus.Exclusive.String()] > 0 {
		has = append(has, fmt.Sprintf("%d owned by %s", own.Len(), table.Count(pods[cpus.Exclusive.String()], "pod")))
	}
	if pods[cpus.Shared.String()] > 0 {
		has = append(has, "seats of "+table.Count(pods[cpus.Shared.String()], "pod"))
	}
	if pods[cpus.Pool.String()] > 0 {
		has = append(has, table.Count(pods[cpus.Pool.String()], "pool"))
	}
	if len(has) > 0 {
		fmt.Fprintf(b, "; %s", strings.Join(has, ", "))
	}
	b.WriteString("\n")
	for _, text := range n.noCPUs() {
		fmt.Fprintf(b, "  fault     %s\n", text)
	}
	if by := n.Binder(); by != "" {
		fmt.Fprintf(b, "  bound by  %s: %s, and such pods act as LS here\n", by, noOwnCPUs)
	} else {
		b.WriteString("  bound by  tenond: the kubelet (cpuManagerPolicy: static) and DRA drivers bind none, as far as tenond can see\n")
	}
	if refused := n.refused(); len(refused) > 0 {
		fmt.Fprintf(b, "  refused   %s: kubectl tenon explain pod says why\n", refusedText(len(refused)))
	}
	fmt.Fprintf(b, "  see       kubectl tenon map %s\n", n.Name)
}

// readCPUs parses the CPUs of a report: all, those that pods own, and those that
// are reserved.
func readCPUs(c *v1alpha1.CPUs) (all, own, reserved unit.CPUSet, err error) {
	for _, k := range c.Caches {
		set, wrong := unit.ParseCPUSet(k.CPUs)
		all, err = all.Union(set), errors.Join(err, wrong)
	}
	for _, h := range c.Pods {
		if h.Policy == cpus.Exclusive.String() {
			set, wrong := unit.ParseCPUSet(h.CPUs)
			own, err = own.Union(set), errors.Join(err, wrong)
		}
	}
	reserved, wrong := unit.ParseCPUSet(c.Reserved)
	return all, own, reserved, errors.Join(err, wrong)
}
