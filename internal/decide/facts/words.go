package facts

import (
	"fmt"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// PartName is how reasons name a container of a workload.
func PartName(w node.Workload, p node.Container) string { return string(w.ID) + " " + p.Name }

// CountCPUs is a number of CPUs in a sentence.
func CountCPUs(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

// AreCPUs is a number of CPUs with its verb.
func AreCPUs(n int) string {
	if n == 1 {
		return "1 CPU is"
	}
	return fmt.Sprintf("%d CPUs are", n)
}

// MiB is an amount of memory in a sentence, in MiB.
func MiB(b unit.Bytes) string { return fmt.Sprintf("%d MiB", b>>20) }
