package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// batchNames are the names for the batch resources in tenon explain. If a
// workload or cgroup has such a name, that object is explained instead.
var batchNames = []string{"batch", "batch-cpu", "batch-memory"}

func isBatch(name string) bool { return slices.Contains(batchNames, name) }

// printBatch prints the batch resources in one line.
func printBatch(b node.Batch) string {
	s := fmt.Sprintf("batch-cpu %s, batch-memory %s", node.Readable(b.CPU.Value), node.Readable(b.Memory.Value))
	if why := b.CPU.Degraded; why != "" {
		s += "; " + why
	}
	if why := b.Memory.Degraded; why != "" && why != b.CPU.Degraded {
		s += "; " + why
	}
	return s
}

// describeBatch writes both amounts, and how the agent computed them.
func describeBatch(b *strings.Builder, batch node.Batch, at time.Time) {
	if !batch.Enabled() {
		b.WriteString("Batch work is promised nothing: colocation-config is not enabled.\n")
		return
	}
	describeAmount(b, "batch-cpu", batch.CPU, at)
	b.WriteByte('\n')
	describeAmount(b, "batch-memory", batch.Memory, at)
}

func describeAmount[T unit.MilliCPU | unit.Bytes](b *strings.Builder, name string, a node.Amount[T], at time.Time) {
	fmt.Fprintf(b, "%s %s: what batch work may count on, by %s", name, node.Readable(a.Value), a.Policy)
	if a.Over > 0 {
		fmt.Fprintf(b, " over %v", a.Over)
	}
	if !a.Since.IsZero() {
		fmt.Fprintf(b, ", since %s (%s)", a.Since.Format(time.DateTime), PrintDuration(at.Sub(a.Since)))
	}
	b.WriteByte('\n')
	for i, t := range a.Terms {
		amount, sign := t.Amount, " "
		switch {
		case i > 0 && amount > 0:
			sign = "+"
		case i > 0:
			amount, sign = -amount, "-"
		}
		fmt.Fprintf(b, "  %s %10s  %s\n", sign, node.Readable(amount), t.Text)
	}
	if len(a.Terms) > 0 {
		fmt.Fprintf(b, "  = %10s\n", node.Readable(a.Value))
	}
	if a.Held != "" {
		fmt.Fprintf(b, "  now     the formula gives %s: %s\n", node.Readable(a.Formula), a.Held)
	}
	if a.Degraded != "" {
		fmt.Fprintf(b, "  because %s\n", a.Degraded)
	}
}
