package host

import (
	"context"
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/model/node"
)

// Apply performs one step. Before the write, it journals the original value of
// the knob and the new value. After the write, it journals the value that the
// kernel shows. A release writes the original value and removes the knob from
// the journal. It writes nothing if another component has changed the knob
// since Tenon's last write. If the cgroup is gone, Apply returns
// cgroup.ErrGone.
func (h *Host) Apply(ctx context.Context, s plan.Step) error {
	if err := errors.Join(ctx.Err(), h.needTree()); err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if s.To == nil {
		return fmt.Errorf("apply to %v: the step has no value", s.Knob)
	}
	var err error
	if cachectl.Has(s.Knob) {
		defer h.controls.Written(s.Knob)
	}
	if s.Release {
		err = h.changes.Release(s.Knob)
		switch {
		case err != nil:
		case s.Knob.ControlGroup != "":
			err = h.controls.Leave(s.Knob.ControlGroup)
		case s.Knob.File == node.FileIdentity:
			err = h.marks.LeaveSwitch()
		}
	} else {
		err = h.set(s.Knob, s.To.Round(h.Kernel()))
		switch {
		case err == nil:
		case s.Knob.ControlGroup != "":
			err = errors.Join(err, h.controls.Leave(s.Knob.ControlGroup))
		case s.Knob.File == node.FileIdentity: // the kernel refused the mark, so the switch is not needed
			err = errors.Join(err, h.marks.LeaveSwitch())
		}
	}
	if err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	return nil
}

// BatchLength returns how many steps, from the first one, one call of ApplyAll
// can perform. A step that may take long is performed alone, so that its caller
// can give it the time that it needs.
func BatchLength(steps []plan.Step) int {
	n := change.CountTogether(len(steps), func(i int) node.Knob { return steps[i].Knob })
	for i := range n {
		if steps[i].To == nil || steps[i].Release != steps[0].Release || MayTakeLong(steps[i]) {
			return max(i, 1)
		}
	}
	return n
}

// ApplyAll performs steps as Host.Apply does, but writes their journal entries
// together. There may be at most BatchLength steps. It returns one error, or
// nil, for each step.
func ApplyAll(ctx context.Context, h *Host, steps []plan.Step) []error {
	if len(steps) == 1 || ctx.Err() != nil || h.tree == nil {
		errs := make([]error, 0, len(steps))
		for _, s := range steps {
			errs = append(errs, h.Apply(ctx, s))
		}
		return errs
	}
	var errs []error
	if steps[0].Release {
		knobs := make([]node.Knob, 0, len(steps))
		for _, s := range steps {
			knobs = append(knobs, s.Knob)
		}
		errs = change.ManyKnobs{Knobs: h.changes}.Release(knobs)
	} else {
		kernel := h.Kernel()
		all := make([]change.Change, 0, len(steps))
		for _, s := range steps {
			all = append(all, change.Change{Knob: s.Knob, To: s.To.Round(kernel)})
		}
		errs = change.ManyKnobs{Knobs: h.changes}.Set(all)
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("apply %v: %w", steps[i], err)
		}
	}
	return errs
}

// set writes the value of a step to its knob.
func (h *Host) set(k node.Knob, to node.Value) error {
	if k.File.OrdersScheduler() {
		return h.isolation.Scheduler().Order(k, to)
	}
	if v, isRun := to.(node.Run); isRun && v.EndsProcesses() {
		return h.runs.end(k, v)
	}
	if k.ControlGroup != "" {
		if err := h.controls.Make(k.ControlGroup); err != nil {
			return err
		}
	}
	return h.changes.Set(k, to)
}

// MayTakeLong reports whether a step may take longer than the rest of the tick.
// This is a step that unloads the scheduler, changes each thread of a cgroup, or
// lets the kernel reclaim memory (MayReclaim).
func MayTakeLong(s plan.Step) bool {
	switch to := s.To.(type) {
	case node.Scheduler:
		return !to.Loaded
	case node.Threads:
		return true
	}
	return MayReclaim(s)
}

// MayReclaim reports whether the kernel may reclaim memory before the write of a
// step returns. It does so if a memory limit becomes less than the memory in use,
// on cgroup v1, and on v2 before Linux 6.16. To reclaim some GiB takes seconds. A
// newer kernel leaves the reclaim to the tasks in the cgroup, because cgroup.Tree
// opens the file with O_NONBLOCK (Documentation/admin-guide/cgroup-v2.rst, "memory.high").
func MayReclaim(s plan.Step) bool {
	to, ok := s.To.(node.Memory)
	if !ok {
		return false
	}
	from, known := s.From.(node.Memory)
	return !known || to.High < from.High || to.Max < from.Max
}

// StoredValue returns the value that the kernel shows after a step. For
// example, the kernel removes offline CPUs from a cpuset, and change.Set leaves
// a memory limit that its owner has just changed.
func StoredValue(h *Host, s plan.Step) node.Value {
	if s.Knob.File == node.FileCPUs || s.Knob.File == node.FileMemory {
		if now, err := h.Knob(s.Knob); err == nil {
			return now
		}
	}
	return s.To
}
