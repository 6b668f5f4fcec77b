// Package shadow keeps the values that the knobs of a node would have if other
// decisions had been carried out than those that were: the decisions of an agent that
// only observes, or those of another configuration in a replay.
package shadow

import (
	"maps"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// A World has the virtual knobs of a node. The zero World has the real ones. It does not
// know how the work of the node would have reacted to them.
type World struct {
	knobs map[node.Knob]virtual
	steps map[plan.Owner]int64
	// real has the knobs of the last snapshot, whose maps no host changes later, and seen
	// is what See made of them.
	real, seen node.Knobs
}

// A virtual is a knob of a World.
type virtual struct {
	now, before node.Value // before is nil if no step has changed the knob
	// real is the value on the node in the last snapshot; nil: the node has no such
	// knob. ours says that an agent of Tenon had changed it.
	real node.Value
	ours bool
}

// See returns the snapshot with the knobs of this world. A knob that is new in the
// snapshot starts with its real value. So does one that another component than Tenon has
// written since the last snapshot: that write would have counted in this world, too.
// See forgets knobs that the snapshot lacks, unless a step made them: see isMade.
func (w *World) See(s node.Snapshot) node.Snapshot {
	if w.knobs == nil {
		w.knobs = map[node.Knob]virtual{}
	}
	if w.seen.Now != nil && maps.Equal(w.real.Now, s.Knobs.Now) && maps.Equal(w.real.Before, s.Knobs.Before) && w.real.Kernel == s.Knobs.Kernel {
		s.Knobs = w.seen
		return s
	}
	w.real = s.Knobs
	seen := node.Knobs{Kernel: s.Knobs.Kernel, Now: make(map[node.Knob]node.Value, len(s.Knobs.Now)), Before: map[node.Knob]node.Value{}}
	for k, real := range s.Knobs.Now {
		v, known := w.knobs[k]
		before, ours := s.Knobs.Before[k]
		if !known || !ours && !v.ours && v.real != real && node.IsKept(real) {
			v.now, v.before = real, before
		}
		v.real, v.ours = real, ours
		w.knobs[k] = v
		seen.Now[k] = v.now
		if v.before != nil {
			seen.Before[k] = v.before
		}
	}
	if len(w.knobs) > len(s.Knobs.Now) {
		w.forget(s, &seen)
	}
	s.Knobs, w.seen = seen, seen
	return s
}

// forget forgets the knobs that the snapshot lacks, and adds those to seen that a step
// made.
func (w *World) forget(s node.Snapshot, seen *node.Knobs) {
	exists := map[node.CgroupPath]bool{}
	for i := range s.Workloads {
		exists[s.Workloads[i].Cgroup] = true
	}
	for k := range s.Knobs.Now {
		exists[k.Cgroup] = true
	}
	for k, v := range w.knobs {
		if _, still := s.Knobs.Now[k]; still {
			continue
		}
		if v.isMade() && (k.ControlGroup != "" || exists[k.Cgroup]) {
			seen.Now[k] = v.now
			continue
		}
		delete(w.knobs, k)
	}
}

// isMade reports whether a step wrote a knob that the node does not have, such as one of
// a control group of resctrl. The knob stays as long as its cgroup.
func (v virtual) isMade() bool { return v.real == nil && v.now != nil }

// Perform carries the steps out on the virtual knobs, as if all of them succeeded.
func (w *World) Perform(steps []plan.Step) {
	if w.steps == nil {
		w.steps = map[plan.Owner]int64{}
	}
	if len(steps) > 0 {
		w.seen = node.Knobs{}
	}
	for _, s := range steps {
		v := w.knobs[s.Knob]
		if v.before == nil && s.From != nil && !s.Knob.File.OrdersScheduler() {
			v.before = s.From
		}
		if s.Release {
			v.before = nil
		}
		v.now = s.To
		w.knobs[s.Knob] = v
		w.steps[s.Owner]++
	}
}

// Forget makes the knobs of this world the real ones again.
func (w *World) Forget() { w.knobs, w.real, w.seen = nil, node.Knobs{}, node.Knobs{} }

// Steps returns the number of steps by policy since the beginning.
func (w *World) Steps() map[plan.Owner]int64 { return maps.Clone(w.steps) }

// Config returns the configuration by which an agent that only observes decides for its
// shadow. It isolates best-effort work by the floor: whether a stronger mechanism works,
// and what it is worth, only shows where it is in force.
func Config(c policy.Config) policy.Config {
	c.CPUQOS.Mechanism, c.CPUQOS.Measured, c.CPUQOS.NoTrials = "", true, true
	return c
}
