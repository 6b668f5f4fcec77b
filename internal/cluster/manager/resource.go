package manager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A kind is one of the batch resources. Its amounts are in thousandths of a
// CPU, or in bytes.
type kind int

const (
	cpu kind = iota
	memory
	kinds
)

// batchName returns the name of the batch resource. Quantities of it are in
// thousandths of a CPU, or in bytes.
func (k kind) batchName() corev1.ResourceName {
	if k == cpu {
		return kube.BatchCPU
	}
	return kube.BatchMemory
}

// nativeName returns the name of the resource in Kubernetes: cpu or memory.
func (k kind) nativeName() corev1.ResourceName {
	if k == cpu {
		return corev1.ResourceCPU
	}
	return corev1.ResourceMemory
}

// String returns the short name, such as batch-cpu.
func (k kind) String() string {
	if k == cpu {
		return "batch-cpu"
	}
	return "batch-memory"
}

// printAmount prints an amount for a message.
func (k kind) printAmount(v int64) string {
	if k == cpu {
		return node.Readable(unit.MilliCPU(v))
	}
	return node.Readable(unit.Bytes(v))
}

// reclaim returns the settings for this resource.
func (k kind) reclaim(c overcommit.Config) overcommit.Reclaim {
	if k == cpu {
		return c.CPU
	}
	return c.Memory
}

// native counts a quantity of CPUs or bytes in thousandths of a CPU or in bytes.
func (k kind) native(q resource.Quantity, r unit.Rounding) int64 {
	if k == cpu {
		return int64(quantity.CPU(q, r))
	}
	return quantity.Whole(q, r)
}

// exactly counts a quantity of a report, which an agent never sends with a
// fraction of the smallest unit, nor with more than any machine has.
func (k kind) exactly(q resource.Quantity) (int64, error) {
	v := k.native(q, unit.Down)
	if max(v, -v) == quantity.Max {
		return 0, fmt.Errorf("%s is beyond what can be counted", q.String())
	} else if v != k.native(q, unit.Up) {
		return 0, fmt.Errorf("%s is not a whole number of the smallest unit", q.String())
	}
	return v, nil
}

// quantity is for the status of a node, where CPU is in thousandths of a CPU.
func (k kind) quantity(v int64) resource.Quantity {
	if k == cpu {
		return quantity.OfBatchCPU(unit.MilliCPU(v))
	}
	return quantity.OfMemory(unit.Bytes(v))
}

// reportQuantity is for a NodeReport, where CPU is in CPUs.
func (k kind) reportQuantity(v int64) resource.Quantity {
	if k == cpu {
		return quantity.OfCPU(unit.MilliCPU(v))
	}
	return quantity.OfMemory(unit.Bytes(v))
}

// percent returns p percent of v, rounded down. It replaces a p above 100000 by
// 100000.
func percent(v int64, p unit.Percent) int64 {
	n := int64(min(p, 100_000))
	return v/100*n + v%100*n/100
}
