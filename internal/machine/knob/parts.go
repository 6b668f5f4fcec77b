package knob

import (
	"cmp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A knob may have several parts. A part is what another component can change
// without the rest: one file, or one number in the line of one device. Tenon
// judges each part by itself, because a container runtime, for example, may
// write memory.max and leave the memory.high that Tenon wrote.
//
// Quota and period of a CPU limit are one part. On cgroup v1 they are two
// files, but neither has a meaning without the other.

// DefaultWeight is the CPU weight of a new cgroup, and of a cgroup whose
// cpu.idle was cleared.
const DefaultWeight = 100 * unit.Weight(256)

// ByPart combines two values of the knob f, own and other. It takes a part from
// own if any value in ours has the same part as the value now, and otherwise
// from other.
func ByPart(f node.File, now node.Value, ours []node.Value, own, other node.Value) node.Value {
	combine, known := combineFuncs[f]
	if !known {
		combine = single[node.Value]
	}
	return combine(choice[node.Value]{now, ours, own, other})
}

// Traces returns the values whose parts Tenon may have left in the knob f.
// before is the value from before Tenon's first write. written is the last
// value that Tenon wrote, and pending the value of a write whose result is
// unknown; each of these two is nil if there is none. An interrupted write may
// also leave a neutral value, such as "no quota".
func Traces(f node.File, before, written, pending node.Value) []node.Value {
	var all []node.Value
	if written != nil {
		all = append(all, written)
	}
	if pending == nil {
		return all
	}
	all = append(all, pending)
	switch from := cmp.Or(written, before).(type) {
	case node.CPUWeight:
		if from.Idle {
			// When cpu.idle is cleared, the kernel resets the weight. Tenon
			// writes the new weight after that.
			all = append(all, node.CPUWeight{Weight: DefaultWeight})
		}
	case node.CPUMax:
		to, _ := pending.(node.CPUMax)
		for _, quota := range []time.Duration{from.Quota, to.Quota, node.NoQuota} {
			for _, period := range []time.Duration{from.Period, to.Period} {
				all = append(all, node.CPUMax{Quota: quota, Period: period})
			}
		}
	}
	return all
}

// A choice holds the arguments of ByPart.
type choice[V any] struct {
	now        V
	ours       []V
	own, other V
}

// part returns one part of the combined value. The function of returns this
// part of a value.
func part[V any, T comparable](c choice[V], of func(V) T) T {
	now := of(c.now)
	if slices.ContainsFunc(c.ours, func(v V) bool { return of(v) == now }) {
		return of(c.own)
	}
	return of(c.other)
}

// single combines values that have only one part.
func single[V comparable](c choice[V]) V { return part(c, func(v V) V { return v }) }

// combineFuncs holds for each knob of a cgroup or of resctrl the function that
// combines its values. Limits and the values of isolation have only one part.
var combineFuncs = map[node.File]func(choice[node.Value]) node.Value{
	node.FileCPUWeight: single[node.Value],
	node.FileCPUMax: typed(func(c choice[node.CPUMax]) node.CPUMax {
		v := part(c, func(v node.CPUMax) node.CPUMax { return node.CPUMax{Quota: v.Quota, Period: v.Period} })
		// The kernel refuses a burst above the quota.
		v.Burst = min(part(c, func(v node.CPUMax) time.Duration { return v.Burst }), v.Quota)
		return v
	}),
	node.FileCPUs: single[node.Value],
	node.FileMems: single[node.Value],
	node.FileMemory: typed(func(c choice[node.Memory]) node.Memory {
		return node.Memory{
			Min:  part(c, func(v node.Memory) unit.Bytes { return v.Min }),
			Low:  part(c, func(v node.Memory) unit.Bytes { return v.Low }),
			High: part(c, func(v node.Memory) unit.Bytes { return v.High }),
			Max:  part(c, func(v node.Memory) unit.Bytes { return v.Max }),
		}
	}),
	node.FileRun: single[node.Value],
	node.FileIOMax: typed(func(c choice[node.IOMax]) node.IOMax {
		return node.IOMaxOf(combineLines(c, node.IOMax.Limits, node.NoIOLimits, combineLimits))
	}),
	node.FileIOWeight:  typed(combineWeights),
	node.FileBFQWeight: typed(combineWeights),
	node.FileIOLatency: typed(func(c choice[node.IOLatency]) node.IOLatency {
		return node.IOLatencyOf(combineLines(c, node.IOLatency.Targets, 0, single[time.Duration]))
	}),
	node.FileControlGroup: single[node.Value],
	node.FileL3:           typed(combineWays),
	node.FileMB:           single[node.Value],
}

// typed returns a function that combines values of the type V. It combines
// values of other types as a whole.
func typed[V node.Value](combine func(choice[V]) V) func(choice[node.Value]) node.Value {
	return func(c choice[node.Value]) node.Value {
		now, ok1 := c.now.(V)
		own, ok2 := c.own.(V)
		other, ok3 := c.other.(V)
		if !ok1 || !ok2 || !ok3 {
			return single(c)
		}
		var ours []V
		for _, v := range c.ours {
			if o, ok := v.(V); ok {
				ours = append(ours, o)
			}
		}
		return combine(choice[V]{now, ours, own, other})
	}
}

// combineLimits combines the I/O limits of one device. On cgroup v1 each of
// them has a file, and on v2 one write may change a single one.
func combineLimits(c choice[node.IOLimits]) node.IOLimits {
	return node.IOLimits{
		ReadBPS:   part(c, func(l node.IOLimits) int64 { return l.ReadBPS }),
		WriteBPS:  part(c, func(l node.IOLimits) int64 { return l.WriteBPS }),
		ReadIOPS:  part(c, func(l node.IOLimits) int64 { return l.ReadIOPS }),
		WriteIOPS: part(c, func(l node.IOLimits) int64 { return l.WriteIOPS }),
	}
}

func combineWeights(c choice[node.IOWeight]) node.IOWeight {
	other := part(c, func(v node.IOWeight) int64 { return v.Default })
	return node.IOWeightOf(other, combineLines(c, node.IOWeight.Weights, 0, single[int64]))
}

// combineWays combines cache ways. If code and data have separate lines, each
// line is a part.
func combineWays(c choice[node.L3]) node.L3 {
	code := part(c, func(v node.L3) node.L3 {
		ways, _, _ := v.Parts() //nolint:errcheck // the kernel showed the value, or Tenon made it
		return node.L3Of(ways)
	})
	data := part(c, func(v node.L3) node.L3 {
		_, ways, _ := v.Parts() //nolint:errcheck // as above
		return node.L3Of(ways)
	})
	if code == data {
		return code
	}
	codeWays, _, _ := code.Parts() //nolint:errcheck // as above
	dataWays, _, _ := data.Parts() //nolint:errcheck // as above
	return node.L3OfParts(codeWays, dataWays)
}

// combineLines combines values that have a line for each device. A missing line
// has the value none. The function combine combines the lines of one device.
func combineLines[V any, T comparable](c choice[V], linesOf func(V) map[unit.Device]T, none T, combine func(choice[T]) T) map[unit.Device]T {
	lineOf := func(m map[unit.Device]T, d unit.Device) T {
		if v, has := m[d]; has {
			return v
		}
		return none
	}
	now, own, other := linesOf(c.now), linesOf(c.own), linesOf(c.other)
	ours := make([]map[unit.Device]T, 0, len(c.ours))
	for _, v := range c.ours {
		ours = append(ours, linesOf(v))
	}
	all := map[unit.Device]T{}
	for _, m := range []map[unit.Device]T{now, own, other} {
		for d := range m {
			line := choice[T]{now: lineOf(now, d), own: lineOf(own, d), other: lineOf(other, d)}
			for _, o := range ours {
				line.ours = append(line.ours, lineOf(o, d))
			}
			if v := combine(line); v != none {
				all[d] = v
			}
		}
	}
	return all
}
