// Package unit holds the typed quantities of Tenon: CPU in thousandths of a
// CPU, memory in bytes, weights that are exact on both cgroup versions, and
// sets of CPUs. Only parsers and printers use bare numbers for them.
package unit

import (
	"fmt"
	"math"
	"strconv"
)

// MilliCPU is an amount of CPU in thousandths of one logical CPU.
type MilliCPU int64

// CPUs returns the amount of n whole logical CPUs.
func CPUs(n int) MilliCPU { return MilliCPU(n) * 1000 }

// Cores returns m as a number of CPUs: 2500m is 2.5.
func (m MilliCPU) Cores() float64 { return float64(m) / 1000 }

// Percent returns p percent of m, rounded towards zero. It overflows only if the
// result does.
func (m MilliCPU) Percent(p Percent) MilliCPU {
	return m/100*MilliCPU(p) + m%100*MilliCPU(p)/100
}

// String prints m as Kubernetes does: "2500m".
func (m MilliCPU) String() string { return strconv.FormatInt(int64(m), 10) + "m" }

// ParseMilliCPU reads an amount of CPU: "2", "1.5", "500m", or any other
// quantity of Kubernetes. It rounds a part of a thousandth up.
func ParseMilliCPU(s string) (MilliCPU, error) {
	m, is := ParseQuantity(s, 1000, Up)
	if !is || m < 0 || m > 1e12 {
		return 0, fmt.Errorf("cpu amount %.80q: want a number of CPUs such as 2, 1.5 or 500m", s)
	}
	return MilliCPU(m), nil
}

// Percent is a percentage: 65 means 65 %.
type Percent int64

// String prints p with the percent sign: "65%".
func (p Percent) String() string { return strconv.FormatInt(int64(p), 10) + "%" }

// Bytes is an amount of memory in bytes. MaxBytes means "no limit".
type Bytes int64

// MaxBytes means no limit. On cgroup v2, the kernel shows it as "max", and on
// v1 as the largest page-aligned number.
const MaxBytes Bytes = math.MaxInt64

// Percent returns p percent of b, rounded down. It returns 0 if p or b is
// negative, and MaxBytes if the result would exceed MaxBytes.
func (b Bytes) Percent(p Percent) Bytes {
	whole, rest := b/100, b%100
	if p <= 0 || b <= 0 {
		return 0
	}
	if whole > MaxBytes/Bytes(p)-1 {
		return MaxBytes
	}
	return whole*Bytes(p) + rest*Bytes(p)/100
}

// MinMemoryLimit is the smallest accepted memory limit. With a smaller memory.max, the kernel
// kills a program when it starts; container runtimes also refuse less than 6 MB. The
// usual cause of a smaller limit is a missing suffix (limits: {memory: 4}).
const MinMemoryLimit Bytes = 6 << 20

// String prints b as the kernel does: "max", or the number of bytes.
func (b Bytes) String() string {
	if b == MaxBytes {
		return "max"
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseBytes reads an amount of memory: "512Mi", "2G", "1000000", any other
// quantity of Kubernetes, or "max". It rounds a part of a byte up.
func ParseBytes(s string) (Bytes, error) {
	if s == "max" {
		return MaxBytes, nil
	}
	b, is := ParseQuantity(s, 1, Up)
	if !is || b < 0 || b == math.MaxInt64 {
		return 0, fmt.Errorf("memory amount %.80q: want bytes with an optional suffix k M G T P E Ki Mi Gi Ti Pi Ei, such as 512Mi", s)
	}
	return Bytes(b), nil
}

// Weight is a weight for contended CPU, in units of 1/256 of a cgroup v2 weight. In
// this unit the weights of both cgroup versions are whole numbers. cpu.weight 100
// (v2) and cpu.shares 1024 (v1) are both 25600, because the kernel gives them the
// same load weight (kernel/sched/core.c: sched_weight_from_cgroup).
type Weight int64

// The ranges of cpu.weight (v2) and cpu.shares (v1). The kernel refuses a
// weight outside its range. It replaces shares outside their range by the
// nearest bound (Documentation/admin-guide/cgroup-v2.rst, cpu.weight).
const (
	MinWeight, MaxWeight = 1, 10000
	MinShares, MaxShares = 2, 262144
	weightUnit           = 256
	sharesUnit           = 25
)

// WeightOf converts a cpu.weight of cgroup v2 to a Weight.
func WeightOf(v2 int64) Weight { return Weight(v2) * weightUnit }

// WeightOfShares converts cpu.shares of cgroup v1 to a Weight.
func WeightOfShares(v1 int64) Weight { return Weight(v1) * sharesUnit }

// V2 returns the nearest cpu.weight that the kernel accepts.
func (w Weight) V2() int64 {
	return min(max((int64(w)+weightUnit/2)/weightUnit, MinWeight), MaxWeight)
}

// Shares returns the nearest cpu.shares that the kernel accepts.
func (w Weight) Shares() int64 {
	return min(max((int64(w)+sharesUnit/2)/sharesUnit, MinShares), MaxShares)
}

// String prints w as a cgroup v2 weight, exactly: "100", "0.1953125".
func (w Weight) String() string {
	return strconv.FormatFloat(float64(w)/weightUnit, 'f', -1, 64)
}

// ParseWeight reads the text that String prints.
func ParseWeight(s string) (Weight, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f <= 30000) {
		return 0, fmt.Errorf("cpu weight %.80q: want a number from %d to %d", s, MinWeight, MaxWeight)
	}
	return Weight(math.Round(f * weightUnit)), nil
}
