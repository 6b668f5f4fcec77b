package host

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/journal"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// weighers are the knobs of weights and what they are in the kernel.
var weighers = map[node.File]cgroup.Weigher{node.FileIOWeight: cgroup.IOCost, node.FileBFQWeight: cgroup.BFQ}

// ofIO reports whether a knob is one of block I/O.
func ofIO(k node.Knob) bool { return slices.Contains(node.IOFiles, k.File) }

func (h *Host) readIO(k node.Knob) (node.Value, error) {
	p := string(k.Cgroup)
	switch k.File {
	case node.FileIOMax:
		read, err := h.tree.ReadIOMax(p)
		limits := make(map[unit.Device]node.IOLimits, len(read))
		for d, l := range read {
			limits[d] = node.IOLimits(l)
		}
		return node.IOMaxOf(limits), err
	case node.FileIOLatency:
		targets, err := h.tree.ReadIOLatency(p)
		return node.IOLatencyOf(targets), err
	}
	w, err := h.tree.ReadIOWeight(weighers[k.File], p)
	return node.IOWeightOf(w.Default, w.Devices), err
}

func (h *Host) writeIO(k node.Knob, v node.Value) error {
	p := string(k.Cgroup)
	switch v := v.(type) {
	case node.IOMax:
		if k.File == node.FileIOMax {
			limits := map[unit.Device]cgroup.IOLimits{}
			for d, l := range v.Limits() {
				limits[d] = cgroup.IOLimits(l)
			}
			return h.tree.WriteIOMax(p, limits)
		}
	case node.IOLatency:
		if k.File == node.FileIOLatency {
			return h.tree.WriteIOLatency(p, v.Targets())
		}
	case node.IOWeight:
		if w, is := weighers[k.File]; is {
			return h.tree.WriteIOWeight(w, p, cgroup.IOWeight{Default: v.Default, Devices: v.Weights()})
		}
	}
	return fmt.Errorf("write %v: a %T is no value of this file", k, v)
}

// attainable is what a touch means now: a journaled line of a device that is
// gone can neither be found nor be put back.
func (h *Host) attainable(k node.Knob, t journal.Touch) journal.Touch {
	if ofIO(k) {
		t.Before = h.possible(k, t.Before)
		if t.Written != nil {
			t.Written = h.possible(k, t.Written)
		}
		if t.Pending != nil {
			t.Pending = h.possible(k, t.Pending)
		}
	}
	return t
}

// ioBetween reports whether now can be the state of a knob of block I/O whose
// change was cut short: the kernel takes one device at a time, and on v1 one
// rate.
func ioBetween(from, to, now node.Value) bool {
	switch n := now.(type) {
	case node.IOMax:
		f, ok1 := from.(node.IOMax)
		t, ok2 := to.(node.IOMax)
		return ok1 && ok2 && mixOf(f.Limits(), t.Limits(), n.Limits(), node.NoIOLimits, func(f, t, n node.IOLimits) bool {
			return oneOf(n.ReadBPS, f.ReadBPS, t.ReadBPS) && oneOf(n.WriteBPS, f.WriteBPS, t.WriteBPS) &&
				oneOf(n.ReadIOPS, f.ReadIOPS, t.ReadIOPS) && oneOf(n.WriteIOPS, f.WriteIOPS, t.WriteIOPS)
		})
	case node.IOWeight:
		f, ok1 := from.(node.IOWeight)
		t, ok2 := to.(node.IOWeight)
		return ok1 && ok2 && oneOf(n.Default, f.Default, t.Default) &&
			mixOf(f.Weights(), t.Weights(), n.Weights(), 0, func(f, t, n int64) bool { return oneOf(n, f, t) })
	case node.IOLatency:
		f, ok1 := from.(node.IOLatency)
		t, ok2 := to.(node.IOLatency)
		return ok1 && ok2 && mixOf(f.Targets(), t.Targets(), n.Targets(), 0, func(f, t, n time.Duration) bool { return oneOf(n, f, t) })
	}
	return false
}

// mixOf reports whether every line of now is a mix of those of from and to;
// none stands for a line that is not there.
func mixOf[T any](from, to, now map[unit.Device]T, none T, mixed func(from, to, now T) bool) bool {
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
