package knob

import (
	"errors"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// DefaultWeight is the CPU weight of a new cgroup, and of a cgroup whose
// cpu.idle was cleared.
const DefaultWeight = 100 * unit.Weight(256)

// A betweenFunc gets three values of a knob: the value before a change, the value after
// it, and the present value. It reports whether the present value can come from an
// interruption of the change. The present value must differ from the other two.
type betweenFunc func(from, to, now node.Value) bool

// noneBetween is the betweenFunc of a knob that changes in one write. No third
// value can occur.
func noneBetween(_, _, _ node.Value) bool { return false }

// betweenFuncs holds the betweenFunc of each knob. A knob of several kernel
// files changes in several writes. Some of these changes set a neutral value in
// between, such as "no quota".
var betweenFuncs = map[node.File]betweenFunc{
	node.FileCPUWeight: typed(func(from, _, now node.CPUWeight) bool {
		// When cpu.idle is cleared, the kernel resets the weight. Tenon writes
		// the new weight after that.
		return from.Idle && now == node.CPUWeight{Weight: DefaultWeight}
	}),
	node.FileCPUMax: typed(func(f, t, n node.CPUMax) bool {
		return oneOf(n.Quota, f.Quota, t.Quota, node.NoQuota) && oneOf(n.Period, f.Period, t.Period) && oneOf(n.Burst, f.Burst, t.Burst, 0)
	}),
	node.FileCPUs: noneBetween,
	node.FileMems: noneBetween,
	node.FileMemory: typed(func(f, t, n node.Memory) bool {
		return oneOf(n.Min, f.Min, t.Min) && oneOf(n.Low, f.Low, t.Low) && oneOf(n.High, f.High, t.High) && oneOf(n.Max, f.Max, t.Max)
	}),
	node.FilePIDs:      noneBetween,
	node.FileRun:       noneBetween,
	node.FileIOMax:     typed(limitsBetween),
	node.FileIOWeight:  typed(weightsBetween),
	node.FileBFQWeight: typed(weightsBetween),
	node.FileIOLatency: typed(func(f, t, n node.IOLatency) bool {
		return linesBetween(f.Targets(), t.Targets(), n.Targets(), 0, func(f, t, n time.Duration) bool { return oneOf(n, f, t) })
	}),
	node.FileControlGroup: noneBetween,
	node.FileL3:           typed(waysBetween),
	node.FileMB:           noneBetween,
	node.FileIdentity:     noneBetween,
	node.FileScheduler:    noneBetween,
	node.FilePolicy:       noneBetween,

	node.FileSchedulerGroup: noneBetween,
	node.FileSchedulerCap:   noneBetween,

	node.FileCookie: noneBetween,
	node.FileSlice:  noneBetween,
}

// IsBetween reports whether the present value, now, of the knob f can come from
// an interrupted change between the values from and to.
func IsBetween(f node.File, from, to, now node.Value) bool {
	if now == from || now == to {
		return true
	}
	between, known := betweenFuncs[f]
	return known && between(from, to, now)
}

func typed[V node.Value](between func(from, to, now V) bool) betweenFunc {
	return func(from, to, now node.Value) bool {
		f, ok1 := from.(V)
		t, ok2 := to.(V)
		n, ok3 := now.(V)
		return ok1 && ok2 && ok3 && between(f, t, n)
	}
}

func oneOf[T comparable](v T, list ...T) bool { return slices.Contains(list, v) }

// limitsBetween is the betweenFunc of I/O limits. One write changes the limits
// of one device, and on v1 only one of them.
func limitsBetween(f, t, n node.IOMax) bool {
	return linesBetween(f.Limits(), t.Limits(), n.Limits(), node.NoIOLimits, func(f, t, n node.IOLimits) bool {
		return oneOf(n.ReadBPS, f.ReadBPS, t.ReadBPS) && oneOf(n.WriteBPS, f.WriteBPS, t.WriteBPS) &&
			oneOf(n.ReadIOPS, f.ReadIOPS, t.ReadIOPS) && oneOf(n.WriteIOPS, f.WriteIOPS, t.WriteIOPS)
	})
}

func weightsBetween(f, t, n node.IOWeight) bool {
	return oneOf(n.Default, f.Default, t.Default) &&
		linesBetween(f.Weights(), t.Weights(), n.Weights(), 0, func(f, t, n int64) bool { return oneOf(n, f, t) })
}

// waysBetween is the betweenFunc of cache ways. If code and data have separate
// lines, an interruption can leave one old line and one new line.
func waysBetween(from, to, now node.L3) bool {
	code, data, err1 := now.Parts()
	fromCode, fromData, err2 := from.Parts()
	toCode, toData, err3 := to.Parts()
	return errors.Join(err1, err2, err3) == nil &&
		(maps.Equal(code, fromCode) || maps.Equal(code, toCode)) && (maps.Equal(data, fromData) || maps.Equal(data, toData))
}

// linesBetween reports whether each present line is a mix of the same line
// before and after a change. A missing line has the value none.
func linesBetween[T any](from, to, now map[unit.Device]T, none T, mixed func(from, to, now T) bool) bool {
	lineOf := func(m map[unit.Device]T, d unit.Device) T {
		if v, has := m[d]; has {
			return v
		}
		return none
	}
	for _, m := range []map[unit.Device]T{from, to, now} {
		for d := range m {
			if !mixed(lineOf(from, d), lineOf(to, d), lineOf(now, d)) {
				return false
			}
		}
	}
	return true
}
