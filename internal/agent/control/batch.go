package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
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
	b.WriteString(batch.CPU.Explain("batch-cpu", sinceText(batch.CPU.Since, at)))
	b.WriteByte('\n')
	b.WriteString(batch.Memory.Explain("batch-memory", sinceText(batch.Memory.Since, at)))
}

func sinceText(since, at time.Time) string {
	if since.IsZero() {
		return ""
	}
	return fmt.Sprintf("since %s (%s)", since.Format(time.DateTime), PrintDuration(at.Sub(since)))
}
