package quantity

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/model/unit"
)

// Max is the largest amount of CPU in thousandths, or of memory in bytes, that
// Tenon counts. No machine has as much, and the sum over the pods of a node and
// a percentage of it fit in an int64. A larger amount counts as Max.
const Max = 1 << 52

// beyond is a number above Max and below 1/beyond a number that is less than
// any unit, so that no larger exponent is ever computed.
const beyond = 1e30

// CPU returns a quantity of the resource cpu in thousandths of a CPU.
func CPU(q resource.Quantity, r unit.Rounding) unit.MilliCPU { return unit.MilliCPU(count(q, 3, r)) }

// Whole returns a quantity in its own unit: bytes of memory, or the thousandths
// of a CPU in which batch-cpu is.
func Whole(q resource.Quantity, r unit.Rounding) int64 { return count(q, 0, r) }

// count returns q × 10^exponent, rounded to a whole number, and at most Max and
// at least −Max. The conversions of Kubernetes wrap around for large amounts,
// round in one direction only, and compute for hours if the exponent is large.
func count(q resource.Quantity, exponent int, r unit.Rounding) int64 {
	if v, whole := q.AsInt64(); whole && exponent == 0 {
		return min(max(v, -Max), Max)
	}
	switch f := q.AsApproximateFloat64(); {
	case q.IsZero(): // 0e99 is no number as a float
		return 0
	case f > beyond:
		return Max
	case f < -beyond:
		return -Max
	case math.Abs(f) < 1/beyond: // also a fraction with an exponent that a float cannot hold
		return toward(q.Sign(), r)
	}
	d := q.AsDec() // q is a copy
	return min(max(r.Round(d.UnscaledBig(), exponent-int(d.Scale())), -Max), Max)
}

// toward rounds an amount that has a sign and is nearly 0.
func toward(sign int, r unit.Rounding) int64 {
	switch {
	case r == unit.Up && sign > 0:
		return 1
	case r == unit.Down && sign < 0:
		return -1
	}
	return 0
}

// OfCPU returns an amount of CPU as a quantity of the resource cpu, in CPUs.
func OfCPU(m unit.MilliCPU) resource.Quantity {
	return *resource.NewMilliQuantity(int64(m), resource.DecimalSI)
}

// OfBatchCPU returns an amount of CPU as a quantity of the resource batch-cpu or
// mid-cpu, in thousandths of a CPU. It is always a whole number.
func OfBatchCPU(m unit.MilliCPU) resource.Quantity {
	return *resource.NewQuantity(int64(m), resource.DecimalSI)
}

// OfMemory returns an amount of memory as a quantity, in whole bytes.
func OfMemory(b unit.Bytes) resource.Quantity {
	return *resource.NewQuantity(int64(b), resource.BinarySI)
}
