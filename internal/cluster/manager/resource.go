package manager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
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

// maxAmount is more than any machine has, but small enough that sums of amounts
// do not overflow.
const maxAmount = 1 << 55

// count converts a quantity of CPUs or bytes to thousandths of a CPU or bytes.
func (k kind) count(q resource.Quantity) (int64, error) {
	scale := resource.Scale(0)
	if k == cpu {
		scale = resource.Milli
	}
	bound := resource.NewScaledQuantity(maxAmount, scale)
	low := bound.DeepCopy()
	low.Neg()
	if q.Cmp(*bound) > 0 || q.Cmp(low) < 0 {
		return 0, fmt.Errorf("%s is beyond what can be counted", q.String())
	}
	v := q.ScaledValue(scale)
	if q.Cmp(*resource.NewScaledQuantity(v, scale)) != 0 {
		return 0, fmt.Errorf("%s is not a whole number of the smallest unit", q.String())
	}
	return v, nil
}

// quantity converts an amount to a quantity for the status of a node, where CPU
// is in thousandths of a CPU.
func (k kind) quantity(v int64) resource.Quantity {
	if k == cpu {
		return *resource.NewQuantity(v, resource.DecimalSI)
	}
	return *resource.NewQuantity(v, resource.BinarySI)
}

// reportQuantity converts an amount to a quantity for a NodeReport, where CPU
// is in CPUs.
func (k kind) reportQuantity(v int64) resource.Quantity {
	if k == cpu {
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	}
	return *resource.NewQuantity(v, resource.BinarySI)
}

// percent returns p percent of v, rounded down. It replaces a p above 100000 by
// 100000.
func percent(v int64, p unit.Percent) int64 {
	n := int64(min(p, 100_000))
	return v/100*n + v%100*n/100
}
