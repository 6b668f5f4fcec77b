package facts

import (
	"fmt"
	"strconv"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// PartName returns the name of a container of a workload, for reasons.
func PartName(w node.WorkloadID, container string) string { return string(w) + " " + container }

// CountCPUs prints a number of CPUs: "2 CPUs".
func CountCPUs(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return strconv.Itoa(n) + " CPUs"
}

// AreCPUs prints a number of CPUs with its verb: "2 CPUs are".
func AreCPUs(n int) string {
	if n == 1 {
		return "1 CPU is"
	}
	return strconv.Itoa(n) + " CPUs are"
}

// MiB prints an amount of memory: "512 MiB".
func MiB(b unit.Bytes) string { return fmt.Sprintf("%d MiB", b>>20) }
