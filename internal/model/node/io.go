package node

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/model/valuetext"
)

// The knobs of block I/O. Each value has one line per device. If the knob of a
// cgroup was never written, its value has no lines.
const (
	// FileIOMax is io.max (v1 blkio.throttle.*_device).
	FileIOMax File = "io.max"
	// FileIOWeight is io.weight, the weights of iocost (only on v2).
	FileIOWeight File = "io.weight"
	// FileBFQWeight is io.bfq.weight (v1 blkio.bfq.weight), the weights of bfq.
	FileBFQWeight File = "io.bfq.weight"
	// FileIOLatency is io.latency (only on v2).
	FileIOLatency File = "io.latency"
)

// IOLimits limits the reads and writes of a cgroup and its descendants on one
// device, in bytes per second and in operations per second.
type IOLimits struct{ ReadBPS, WriteBPS, ReadIOPS, WriteIOPS int64 }

// NoIORate means no limit: "max" on v2, 0 on v1.
const NoIORate int64 = math.MaxInt64

// NoIOLimits is the value of a device for which the file has no line.
var NoIOLimits = IOLimits{NoIORate, NoIORate, NoIORate, NoIORate}

// Smaller returns, for each of the four limits, the smaller one of l and o.
func (l IOLimits) Smaller(o IOLimits) IOLimits {
	return IOLimits{
		min(l.ReadBPS, o.ReadBPS), min(l.WriteBPS, o.WriteBPS),
		min(l.ReadIOPS, o.ReadIOPS), min(l.WriteIOPS, o.WriteIOPS),
	}
}

// String prints the limits, with the keys of io.max: "rbps=1048576 wiops=100".
func (l IOLimits) String() string {
	var s []string
	for i, v := range l.rates() {
		if v != NoIORate {
			s = append(s, rateKeys[i]+"="+strconv.FormatInt(v, 10))
		}
	}
	return strings.Join(s, " ")
}

func (l IOLimits) rates() [4]int64 { return [4]int64{l.ReadBPS, l.WriteBPS, l.ReadIOPS, l.WriteIOPS} }

var rateKeys = [4]string{"rbps", "wbps", "riops", "wiops"}

func parseIOLimits(text string) (IOLimits, error) {
	l := NoIOLimits
	to := [4]*int64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		i := slices.Index(rateKeys[:], key)
		n, err := strconv.ParseInt(value, 10, 64)
		if i < 0 || err != nil || n < 0 {
			return l, fmt.Errorf("%q: want rbps, wbps, riops or wiops = a number from 0", word)
		}
		*to[i] = n
	}
	return l, nil
}

// IOMax holds the limits of a cgroup on each device
// (Documentation/admin-guide/cgroup-v2.rst, "io.max", Linux 4.5). On v2 the limits also
// apply to the descendants of the cgroup. On v1 they bound only the cgroup's own tasks
// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst, "Hierarchical Cgroups").
type IOMax struct{ lines string }

// IOMaxOf returns the value with the given limits of each device.
func IOMaxOf(limits map[unit.Device]IOLimits) IOMax {
	limits = maps.Clone(limits)
	maps.DeleteFunc(limits, func(_ unit.Device, l IOLimits) bool { return l == NoIOLimits })
	return IOMax{valuetext.Lines(limits, IOLimits.String)}
}

// Limits returns the limits of each device. The caller may change the map.
func (v IOMax) Limits() map[unit.Device]IOLimits {
	m, _ := valuetext.ParseLines(v.lines, parseIOLimits) //nolint:errcheck // IOMaxOf printed these lines
	return m
}

// String prints "8:0 rbps=1048576, 254:0 wiops=100", or "max" without limits.
func (v IOMax) String() string { return cmp.Or(v.lines, "max") }

// Round drops limits on operations per second that are too large for the
// kernel. It stores them in 32 bits, and the largest number means no limit
// (block/blk-throttle.c: tg_set_limit).
func (v IOMax) Round(Kernel) Value {
	m := v.Limits()
	for d, l := range m {
		if l.ReadIOPS >= math.MaxUint32 {
			l.ReadIOPS = NoIORate
		}
		if l.WriteIOPS >= math.MaxUint32 {
			l.WriteIOPS = NoIORate
		}
		m[d] = l
	}
	return IOMaxOf(m)
}

// CompareWidth returns a negative number if v limits at least one device more
// than o does, and no device less.
func (v IOMax) CompareWidth(o Value) int {
	w, ok := o.(IOMax)
	if !ok || v == w {
		return 0
	}
	a, b := v.Limits(), w.Limits()
	var orders []int
	for d := range union(a, b) {
		la, lb := orElse(a, d, NoIOLimits).rates(), orElse(b, d, NoIOLimits).rates()
		for i := range la {
			orders = append(orders, cmp.Compare(la[i], lb[i]))
		}
	}
	return combineOrders(orders)
}

// IOWeight is the weight of a cgroup against its siblings for block I/O. It consists of a
// default weight, and weights for single devices. The kernel's default is 100. The range
// is 1 to 10000, and for bfq 1 to 1000 (Documentation/admin-guide/cgroup-v2.rst,
// "io.weight"; Documentation/block/bfq-iosched.rst, section 4).
type IOWeight struct {
	Default int64
	lines   string
}

// IOWeightOf returns the value with the given weights of single devices. The
// argument other is the weight of all other devices.
func IOWeightOf(other int64, weights map[unit.Device]int64) IOWeight {
	return IOWeight{other, valuetext.Lines(weights, valuetext.Decimal)}
}

// Weights returns the weights of single devices. The caller may change the map.
func (v IOWeight) Weights() map[unit.Device]int64 {
	m, _ := valuetext.ParseLines(v.lines, valuetext.ParseDecimal) //nolint:errcheck // IOWeightOf printed these lines
	return m
}

// String prints "100, 254:0 50".
func (v IOWeight) String() string {
	if v.lines == "" {
		return valuetext.Decimal(v.Default)
	}
	return valuetext.Decimal(v.Default) + ", " + v.lines
}

// Round returns v, because the kernel refuses weights that it cannot store.
func (v IOWeight) Round(Kernel) Value { return v }

// CompareWidth returns a negative number if v has a smaller weight than o for
// at least one device, and a larger one for none.
func (v IOWeight) CompareWidth(o Value) int {
	w, ok := o.(IOWeight)
	if !ok || v == w {
		return 0
	}
	orders := []int{cmp.Compare(v.Default, w.Default)}
	a, b := v.Weights(), w.Weights()
	for d := range union(a, b) {
		orders = append(orders, cmp.Compare(orElse(a, d, v.Default), orElse(b, d, w.Default)))
	}
	return combineOrders(orders)
}

// IOLatency is the target latency of a cgroup's I/O on each device. If the latency exceeds
// the target, the kernel throttles those siblings of the cgroup that have a longer target
// or no target (Documentation/admin-guide/cgroup-v2.rst, "IO Latency", Linux 4.19).
type IOLatency struct{ lines string }

// IOLatencyOf returns the value with the given targets. The kernel counts whole
// microseconds; a target of 0 means no target.
func IOLatencyOf(targets map[unit.Device]time.Duration) IOLatency {
	micro := make(map[unit.Device]int64, len(targets))
	for d, t := range targets {
		if us := t.Microseconds(); us > 0 {
			micro[d] = us
		}
	}
	return IOLatency{valuetext.Lines(micro, valuetext.Decimal)}
}

// Targets returns the target of each device. The caller may change the map.
func (v IOLatency) Targets() map[unit.Device]time.Duration {
	micro, _ := valuetext.ParseLines(v.lines, valuetext.ParseDecimal) //nolint:errcheck // IOLatencyOf printed these lines
	m := make(map[unit.Device]time.Duration, len(micro))
	for d, us := range micro {
		m[d] = time.Duration(us) * time.Microsecond
	}
	return m
}

// String prints "254:0 3000", in µs as in io.latency, or "none".
func (v IOLatency) String() string { return cmp.Or(v.lines, "none") }

// Round returns v, which already has whole microseconds.
func (v IOLatency) Round(Kernel) Value { return v }

// CompareWidth returns 0, because a target limits only the siblings of the
// cgroup.
func (v IOLatency) CompareWidth(Value) int { return 0 }

func parseIOMax(text string) (Value, error) {
	if text == "max" {
		return IOMax{}, nil
	}
	m, err := valuetext.ParseLines(text, parseIOLimits)
	if err != nil {
		return nil, fmt.Errorf("io.max %q: %w", text, err)
	}
	return IOMaxOf(m), nil
}

func parseIOWeight(text string) (Value, error) {
	first, rest, _ := strings.Cut(text, ", ")
	n, err := valuetext.ParseDecimal(first)
	if err != nil {
		return nil, fmt.Errorf("I/O weight %q: %w", text, err)
	}
	m, err := valuetext.ParseLines(rest, valuetext.ParseDecimal)
	if err != nil {
		return nil, fmt.Errorf("I/O weight %q: %w", text, err)
	}
	return IOWeightOf(n, m), nil
}

func parseIOLatency(text string) (Value, error) {
	if text == "none" {
		return IOLatency{}, nil
	}
	m, err := valuetext.ParseLines(text, valuetext.ParseDecimal)
	if err != nil {
		return nil, fmt.Errorf("io.latency %q: %w", text, err)
	}
	maps.DeleteFunc(m, func(_ unit.Device, us int64) bool { return us == 0 || us > math.MaxInt64/1000 })
	return IOLatency{valuetext.Lines(m, valuetext.Decimal)}, nil
}

func union[T any](a, b map[unit.Device]T) map[unit.Device]bool {
	all := make(map[unit.Device]bool, len(a)+len(b))
	for d := range a {
		all[d] = true
	}
	for d := range b {
		all[d] = true
	}
	return all
}

func orElse[T any](m map[unit.Device]T, d unit.Device, other T) T {
	if v, has := m[d]; has {
		return v
	}
	return other
}

// combineOrders takes the orders of the parts of two values, and returns the order of the
// values. It returns 0 (not comparable) if one part is smaller and another part is larger.
func combineOrders(orders []int) int {
	if slices.Min(orders) < 0 && slices.Max(orders) > 0 {
		return 0
	}
	return slices.Min(orders) + slices.Max(orders)
}
