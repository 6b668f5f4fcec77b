package nodepages

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// A promised is a line of the table: the promises of both resources for the same
// hours with the same probability.
type promised struct{ cpu, memory v1alpha1.PromisedAmount }

var promiseColumns = []table.Column[promised]{
	column("FOR", func(p promised) string { return fmt.Sprintf("%d h", p.cpu.Hours) }),
	column("WITH", func(p promised) string { return unit.Percent(p.cpu.Percent).String() }),
	column("CPU", func(p promised) string { return lasting(p.cpu, cpuOf) }),
	column("KEPT", func(p promised) string { return kept(p.cpu) }),
	column("MEMORY", func(p promised) string { return lasting(p.memory, memoryOf) }),
	column("KEPT", func(p promised) string { return kept(p.memory) }),
}

// promises prints how much of the batch resources lasts, and how often such
// promises came true.
func promises(b *strings.Builder, p *v1alpha1.Promises) {
	if p == nil {
		return
	}
	var lines []promised
	var plain []string
	judge := func(name string, a v1alpha1.PromisedAmount) {
		if a.Judged > 0 && a.Amount != nil && !a.Better {
			plain = append(plain, fmt.Sprintf("%s for %d h with %v", name, a.Hours, unit.Percent(a.Percent)))
		}
	}
	for i := range min(len(p.CPU), len(p.Memory)) {
		lines = append(lines, promised{p.CPU[i], p.Memory[i]})
		judge("CPU", p.CPU[i])
		judge("memory", p.Memory[i])
	}
	b.WriteString("Promises from the last full hour (UTC) on: how much of the batch resources lasts. KEPT: how many came true so far\n")
	table.Write(b, "  ", promiseColumns, lines)
	if len(plain) > 0 {
		fmt.Fprintf(b, "  not shown to be better than a percentile of the past: %s\n", strings.Join(plain, ", "))
	}
	b.WriteString("\n")
}

func lasting[T unit.MilliCPU | unit.Bytes](a v1alpha1.PromisedAmount, of func(resource.Quantity) T) string {
	switch {
	case a.Amount != nil:
		return node.Readable(of(*a.Amount))
	case a.Lacking > 0:
		return fmt.Sprintf("not yet (%d windows lacking)", a.Lacking)
	}
	return "unknown"
}

func kept(a v1alpha1.PromisedAmount) string {
	if a.Judged == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", a.Kept, a.Judged)
}
