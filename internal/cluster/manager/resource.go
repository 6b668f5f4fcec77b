package manager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A kind is a resource that batch work is promised. Amounts of it are counted
// in its smallest unit: thousandths of a CPU, and bytes.
type kind int

const (
	cpu kind = iota
	memory
	kinds
)

// batch is the resource's name for batch work. As such it counts whole units:
// thousandths of a CPU.
func (k kind) batch() corev1.ResourceName {
	if k == cpu {
		return kube.BatchCPU
	}
	return kube.BatchMemory
}

// native is its name for other work.
func (k kind) native() corev1.ResourceName {
	if k == cpu {
		return corev1.ResourceCPU
	}
	return corev1.ResourceMemory
}

// String is the short name: batch-cpu.
func (k kind) String() string {
	if k == cpu {
		return "batch-cpu"
	}
	return "batch-memory"
}

// readable prints an amount for people.
func (k kind) readable(v int64) string {
	if k == cpu {
		return node.Readable(unit.MilliCPU(v))
	}
	return node.Readable(unit.Bytes(v))
}

// reclaim is what the owner says of it.
func (k kind) reclaim(c policy.Overcommit) policy.Reclaim {
	if k == cpu {
		return c.CPU
	}
	return c.Memory
}

// most is far above what any machine has, and far below where sums of amounts
// overflow.
const most = 1 << 55

// count returns a quantity of CPUs, or of bytes, in the smallest unit.
func (k kind) count(q resource.Quantity) (int64, error) {
	scale := resource.Scale(0)
	if k == cpu {
		scale = resource.Milli
	}
	bound := resource.NewScaledQuantity(most, scale)
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

// quantity is an amount as a node's status has it: both resources count whole
// units there.
func (k kind) quantity(v int64) resource.Quantity {
	if k == cpu {
		return *resource.NewQuantity(v, resource.DecimalSI)
	}
	return *resource.NewQuantity(v, resource.BinarySI)
}

// reported is an amount as a NodeReport has it: CPU in CPUs.
func (k kind) reported(v int64) resource.Quantity {
	if k == cpu {
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	}
	return *resource.NewQuantity(v, resource.BinarySI)
}

// percent is p percent of v, rounded down. A thousand times all that there is
// is as good as more.
func percent(v int64, p unit.Percent) int64 {
	n := int64(min(p, 100_000))
	return v/100*n + v%100*n/100
}
