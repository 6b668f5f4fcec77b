package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// Restore undoes all changes that any Tenon process, running or not, has
// journaled since boot. It ends the processes that a lab started, removes the
// cgroups without processes that Tenon made, and writes back each knob whose
// present value is Tenon's. It never ends a user's command: its cgroup stays
// and is reported. It needs no daemon, and a second call does nothing. ctx
// bounds the wait for processes to end.
func (h *Host) Restore(ctx context.Context) (Report, error) {
	return h.restore(ctx, everything)
}

// RestorePlan returns what Restore would do, and changes nothing.
func (h *Host) RestorePlan(ctx context.Context) (Report, error) {
	state, err := h.journal.State()
	if err != nil || state.Empty() {
		return Report{}, err
	}
	if err := errors.Join(ctx.Err(), h.needTree()); err != nil {
		return Report{}, fmt.Errorf("plan the restore: %w", err)
	}
	var r Report
	victims := h.victims(state, everything)
	r.Killed = slices.Sorted(maps.Keys(victims))
	removed := map[node.CgroupPath]bool{}
	for _, p := range deepestFirst(state.Groups) {
		users, below := h.occupants(p, victims, removed)
		switch {
		case !h.tree.Exists(string(p)):
			r.Gone = append(r.Gone, p)
		case len(users) > 0 || below:
			r.Busy = append(r.Busy, Busy{Cgroup: p, PIDs: users})
		default:
			r.Removed, removed[p] = append(r.Removed, p), true
		}
	}
	steps, left, _, lost := h.undo(state, everything)
	for _, s := range steps {
		if !removed[s.Knob.Cgroup] && s.From != s.To {
			r.Restored = append(r.Restored, change(s))
		}
	}
	r.Left = left
	r.Dropped = slices.DeleteFunc(lost, func(k node.Knob) bool { return removed[k.Cgroup] })
	r.Controls = slices.Sorted(maps.Keys(state.Controls))
	return r, nil
}

// RestoreOwn undoes the changes of this process, for the normal end of a lab.
// Those of other Tenon processes stay.
func (h *Host) RestoreOwn(ctx context.Context) (Report, error) {
	me := h.journal.Session()
	return h.restore(ctx, func(s journal.Session) bool { return s == me })
}

// RestoreDeadLabs undoes the changes of labs that were killed.
func (h *Host) RestoreDeadLabs(ctx context.Context) (Report, error) {
	return h.restore(ctx, func(s journal.Session) bool { return s.Lab && !h.alive(journal.Process{PID: s.PID, Start: s.Start}) })
}

// A scope selects the processes whose changes a restore undoes.
type scope func(journal.Session) bool

func everything(journal.Session) bool { return true }

func (h *Host) restore(ctx context.Context, in scope) (Report, error) {
	state, err := h.journal.State()
	if err != nil || state.Empty() {
		return Report{}, err
	}
	if err := h.needTree(); err != nil {
		return Report{}, fmt.Errorf("restore: %w", err)
	}
	var r Report
	var errs []error
	errs = append(errs, h.endProcesses(ctx, state, in, &r))
	// Cgroups before knobs: the knobs of a removed cgroup need no restore.
	errs = append(errs, h.removeGroups(state, in, &r))
	errs = append(errs, h.restoreKnobs(in, &r))
	r.Controls, err = h.controls.RemoveMade(state, in)
	errs = append(errs, err)
	return r, errors.Join(errs...)
}

// removeGroups removes the cgroups in scope that contain no process.
func (h *Host) removeGroups(state journal.State, in scope, r *Report) error {
	var errs []error
	for _, p := range deepestFirst(state.Groups) {
		if !in(state.Groups[p]) {
			continue
		}
		if !h.tree.Exists(string(p)) {
			r.Gone = append(r.Gone, p)
			errs = append(errs, h.journal.Removed(p))
			continue
		}
		if users, below := h.occupants(p, nil, nil); len(users) > 0 || below {
			r.Busy = append(r.Busy, Busy{Cgroup: p, PIDs: users})
			continue
		}
		if err := h.RemoveGroup(p); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Removed = append(r.Removed, p)
	}
	return errors.Join(errs...)
}

// occupants lists the processes in a cgroup that are not about to end, and
// whether it contains cgroups that stay.
func (h *Host) occupants(p node.CgroupPath, ending map[int]journal.Process, removed map[node.CgroupPath]bool) (users []int, below bool) {
	pids, _ := h.tree.Procs(string(p))
	for _, pid := range pids {
		if _, ends := ending[pid]; ends {
			continue
		}
		if q, err := h.process(pid); err == nil && h.alive(q) {
			users = append(users, pid)
		}
	}
	children, _ := h.tree.Children(string(p))
	for _, c := range children {
		below = below || !removed[p.Join(c)]
	}
	return users, below
}

// restoreKnobs writes back the knobs in scope, in the order of a plan. It tries
// refused writes again after the others, as long as some succeed: cgroups of
// other components can invalidate the order.
func (h *Host) restoreKnobs(in scope, r *Report) error {
	state, err := h.journal.State()
	if err != nil {
		return err
	}
	steps, left, gone, lost := h.undo(state, in)
	var errs []error
	for _, k := range gone {
		if k.Control == "" {
			r.gone(k.Cgroup)
		}
		errs = append(errs, h.journal.Forget(k))
	}
	for _, k := range lost {
		r.Dropped = append(r.Dropped, k)
		errs = append(errs, h.journal.Forget(k))
	}
	for _, c := range left {
		r.Left = append(r.Left, c)
		errs = append(errs, h.journal.Forget(c.Knob))
	}
	var threads []node.Knob
	for _, s := range steps {
		if s.Knob.File.OfThreads() {
			threads = append(threads, s.Knob)
		}
	}
	for len(steps) > 0 {
		var refused []plan.Step
		var why []error
		for _, s := range steps {
			err := h.release(s.Knob)
			switch {
			case err != nil:
				refused, why = append(refused, s), append(why, fmt.Errorf("restore %v to %v: %w", s.Knob, s.To, err))
			case s.From != s.To:
				r.Restored = append(r.Restored, change(s))
			}
		}
		if len(refused) == len(steps) {
			errs = append(errs, why...)
			break
		}
		steps = refused
	}
	errs = append(errs, h.isolation.TakeBackLate(threads))
	return errors.Join(errs...)
}

// undo sorts the journaled knobs in scope: restoring steps, in the order of a
// plan; knobs that another component changed; knobs whose cgroup is gone; knobs
// that the kernel has dropped. It ignores the knobs of a cgroup that others
// have made in its place.
func (h *Host) undo(state journal.State, in scope) (steps []plan.Step, left []Change, gone, lost []node.Knob) {
	have := node.Knobs{Kernel: h.kernel(), Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}
	var wants []plan.Want
	knobs := slices.SortedFunc(maps.Keys(state.Touches), node.Knob.Compare)
	for _, k := range knobs {
		t := h.attainable(k, state.Touches[k])
		if !in(t.By) {
			continue
		}
		inode, err := h.knobInode(k)
		if errors.Is(err, cgroup.ErrGone) || (err == nil && inode != t.Inode) {
			gone = append(gone, k)
			continue
		}
		if maker, made := state.Groups[k.Cgroup]; made && !in(maker) {
			continue
		}
		now, err := h.knobs.Read(k)
		if dropped(err) {
			lost = append(lost, k)
			continue
		}
		if err != nil {
			now = nil // the write will return the reason
		}
		if now != nil && now != t.Before && !h.ours(k, t, now) {
			left = append(left, Change{Knob: k, From: now.String(), To: t.Before.String()})
			continue
		}
		have.Before[k] = t.Before
		if now != nil {
			have.Now[k] = now
		}
		wants = append(wants, plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerRestore, Reason: "restore"})
	}
	return plan.Diff(have, wants), left, gone, lost
}

// dropped reports whether a knob of an existing cgroup cannot be read because
// the kernel has dropped it with its value: its controller was disabled for the
// cgroup, resctrl was unmounted, or its module was unloaded. An unmounted
// controller is different: it may still act where Tenon cannot see it.
func dropped(err error) bool {
	file := errors.Is(err, cgroup.ErrUnsupported) && errors.Is(err, fs.ErrNotExist)
	return file || errors.Is(err, cgroup.ErrGone) || errors.Is(err, resctrl.ErrNotMounted)
}

func change(s plan.Step) Change {
	c := Change{Knob: s.Knob, To: s.To.String()}
	if s.From != nil {
		c.From = s.From.String()
	}
	return c
}

func deepestFirst(groups map[node.CgroupPath]journal.Session) []node.CgroupPath {
	return slices.SortedFunc(maps.Keys(groups), func(a, b node.CgroupPath) int {
		return cmp.Or(cmp.Compare(b.Depth(), a.Depth()), cmp.Compare(a, b))
	})
}
