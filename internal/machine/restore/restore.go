// Package restore undoes what Tenon has changed on this machine since boot. It
// needs only the journal, so it works after kill -9 and without a daemon.
package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// Options hold the parts of a node that a restore needs.
type Options struct {
	FS       proc.FS
	Tree     *cgroup.Tree // nil: the node has no usable cgroups
	NoTree   error        // the reason why Tree is nil
	Journal  *journal.Journal
	Knobs    *change.Knobs
	Controls *cachectl.Groups
	Kernel   func() node.Kernel // how the kernel rounds values
	// RemoveGroup removes a cgroup that contains no process and no cgroup.
	RemoveGroup func(node.CgroupPath) error
	// TakeBackLate looks once more for threads that still have an attribute
	// after its knob was released.
	TakeBackLate func([]node.Knob) error
}

// A Restorer undoes the changes of a node.
type Restorer struct{ o Options }

// New returns the restorer of a node.
func New(o Options) *Restorer { return &Restorer{o} }

// needTree returns an error if there are no usable cgroups.
func (x *Restorer) needTree() error {
	if x.o.Tree == nil {
		return fmt.Errorf("this machine has no usable cgroups: %w", x.o.NoTree)
	}
	return nil
}

// All undoes all changes that any Tenon process has journaled since boot, even
// if that process still runs. It ends the processes that a lab started, removes
// empty cgroups of Tenon, restores each knob that still has Tenon's value, and
// disables the controllers that only Tenon needed. It never ends the command of
// a user. The cgroup of such a command stays, and the report lists it. All needs
// no daemon, and a second call does nothing. ctx limits the wait for processes
// to end.
//
// If the journal was damaged, All restores what is left of it. The report
// mentions the damage once. If there are cgroups that cannot be read, All
// restores everything else, names them in the report, and returns a
// partial.Error.
func (x *Restorer) All(ctx context.Context) (Report, error) {
	state, err := x.o.Journal.State()
	if err != nil {
		return Report{}, err
	}
	r, missed, err := x.restore(ctx, everything)
	if r.Damage = state.Damage; err == nil && r.Damage != "" {
		err = x.o.Journal.Settle()
	}
	return r, errors.Join(err, x.lookElsewhere(&r), missed.OrNil())
}

// Plan returns what All would do, and changes nothing.
func (x *Restorer) Plan(ctx context.Context) (Report, error) {
	state, err := x.o.Journal.State()
	if err != nil {
		return Report{}, err
	}
	lost, running, err := x.addLost(&state)
	missed, err := partial.Split(err)
	r := Report{Damage: state.Damage, Recovered: len(lost.Touches) + len(lost.Groups), Unread: unreadOf(missed), Running: running}
	err = errors.Join(err, x.lookElsewhere(&r))
	if err != nil || state.Empty() {
		return r, errors.Join(err, missed.OrNil())
	}
	if err := errors.Join(ctx.Err(), x.needTree()); err != nil {
		return Report{}, fmt.Errorf("plan the restore: %w", err)
	}
	victims := x.victims(state, everything)
	r.Killed = slices.Sorted(maps.Keys(victims))
	removed := map[node.CgroupPath]bool{}
	for _, p := range deepestFirst(state.Groups) {
		users, below, err := x.occupants(p, victims, removed)
		switch {
		case !x.o.Tree.Exists(string(p)):
			r.Gone = append(r.Gone, p)
		case err != nil || len(users) > 0 || below:
			r.Busy = append(r.Busy, busyOf(p, users, err))
		default:
			r.Removed, removed[p] = append(r.Removed, p), true
		}
	}
	unlisted := r.addUnread(x.addCopies(state))
	steps, left, _, dropped := x.undo(state, everything)
	r.Left = left
	for _, s := range steps {
		if !removed[s.Knob.Cgroup] {
			x.addRestored(&r, s, state.Touches[s.Knob])
		}
	}
	r.Dropped = slices.DeleteFunc(dropped, func(k node.Knob) bool { return removed[k.Cgroup] })
	r.Controls = slices.Sorted(maps.Keys(state.Controls))
	rest := journal.State{Enabled: state.Enabled, Groups: map[node.CgroupPath]journal.Session{}}
	for _, b := range r.Busy {
		rest.Groups[b.Cgroup] = state.Groups[b.Cgroup]
	}
	controllers := x.planControllers(rest, everything, removed)
	r.NeededControllers = controllers.needed
	for _, c := range controllers.disable {
		r.Disabled = append(r.Disabled, Controller{Cgroup: c.Cgroup, Controller: c.Controller})
	}
	return r, errors.Join(append(controllers.errs, missed.OrNil(), unlisted)...)
}

// UndoOwn undoes the changes of this process, and not those of other Tenon
// processes. A lab calls it when it ends normally.
func (x *Restorer) UndoOwn(ctx context.Context) (Report, error) {
	me := x.o.Journal.Session()
	r, _, err := x.restore(ctx, func(s journal.Session) bool { return s == me }) //nolint:errcheck // the report names what was missed
	return r, err
}

// DeadLabs undoes the changes of labs that were killed.
func (x *Restorer) DeadLabs(ctx context.Context) (Report, error) {
	r, _, err := x.restore(ctx, func(s journal.Session) bool { //nolint:errcheck // the report names what was missed
		return s.Lab && !change.Alive(x.o.FS, journal.Process{PID: s.PID, Start: s.Start})
	})
	return r, err
}

// LivingLabs returns the pids of the labs that run. A restore would end the
// processes of their experiments.
func (x *Restorer) LivingLabs() (pids []int, err error) {
	state, err := x.o.Journal.State()
	if err != nil {
		return nil, err
	}
	for _, s := range change.Living(x.o.FS, state) {
		if s.Lab && s != x.o.Journal.Session() {
			pids = append(pids, s.PID)
		}
	}
	return pids, nil
}

// A scope selects the processes whose changes a restore undoes.
type scope func(journal.Session) bool

func everything(journal.Session) bool { return true }

// restore restores everything in scope that can be read. missed names the
// cgroups that cannot, as the report does.
func (x *Restorer) restore(ctx context.Context, in scope) (r Report, missed *partial.Error, err error) {
	state, err := x.o.Journal.State()
	if err != nil {
		return r, nil, err
	}
	if x.o.Tree != nil {
		// addNoted misses the same cgroups.
		if err := x.o.Knobs.Follow(state.Touches, x.o.Tree.Paths); err != nil && !partial.Is(err) {
			return r, nil, fmt.Errorf("restore: %w", err)
		}
		if state, err = x.o.Journal.State(); err != nil {
			return r, nil, err
		}
	}
	lost, running, err := x.addNoted(&state)
	r.Running = running
	missed, err = partial.Split(err)
	r.Unread = unreadOf(missed)
	if err != nil || state.Empty() {
		return r, missed, err
	}
	if err := x.needTree(); err != nil {
		return r, missed, fmt.Errorf("restore: %w", err)
	}
	r.Recovered = len(lost.Touches) + len(lost.Groups)
	var errs []error
	errs = append(errs, x.endProcesses(ctx, state, in, &r))
	// First remove cgroups, because the knobs of a removed cgroup need no
	// restore.
	errs = append(errs, x.removeGroups(state, in, &r))
	errs = append(errs, x.restoreKnobs(in, lost, &r))
	r.Controls, err = x.o.Controls.RemoveMade(state, in)
	errs = append(errs, err, x.disableControllers(in, &r))
	return r, missed, errors.Join(errs...)
}

// removeGroups removes the cgroups in scope that contain no process.
func (x *Restorer) removeGroups(state journal.State, in scope, r *Report) error {
	var errs []error
	for _, p := range deepestFirst(state.Groups) {
		if !in(state.Groups[p]) {
			continue
		}
		if !x.o.Tree.Exists(string(p)) {
			if change.MayBeHidden(x.o.Knobs, p) {
				continue // it stays in the journal
			}
			r.Gone = append(r.Gone, p)
			errs = append(errs, x.o.Journal.Removed(p))
			continue
		}
		if users, below, err := x.occupants(p, nil, nil); err != nil || len(users) > 0 || below {
			r.Busy = append(r.Busy, busyOf(p, users, err))
			continue
		}
		if err := x.o.RemoveGroup(p); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Removed = append(r.Removed, p)
	}
	return errors.Join(errs...)
}

// occupants lists those processes in a cgroup that are not about to end. It
// also reports whether the cgroup has child cgroups that will stay. After an
// error, the cgroup may have others.
func (x *Restorer) occupants(p node.CgroupPath, ending map[int]journal.Process, removed map[node.CgroupPath]bool) (users []int, below bool, err error) {
	pids, procsErr := x.o.Tree.Procs(string(p))
	for _, pid := range pids {
		if _, ends := ending[pid]; ends {
			continue
		}
		if q, err := change.Identify(x.o.FS, pid); err == nil && change.Alive(x.o.FS, q) {
			users = append(users, pid)
		}
	}
	children, childrenErr := x.o.Tree.Children(string(p))
	for _, c := range children {
		below = below || !removed[p.Join(c)]
	}
	if errors.Is(procsErr, cgroup.ErrUnsupported) { // a threaded cgroup: the kernel refuses to remove it while it has threads
		procsErr = nil
	}
	return users, below, errors.Join(procsErr, childrenErr)
}

// restoreKnobs restores the knobs in scope, in the order of a plan. Because of
// cgroups of other components, this order may be wrong, and the kernel may
// refuse a write. So restoreKnobs repeats the refused writes after the others,
// as long as some succeed.
func (x *Restorer) restoreKnobs(in scope, lost journal.State, r *Report) error {
	state, err := x.o.Journal.State()
	if err != nil {
		return err
	}
	// A living agent may have written since then, so the notes are read again.
	paths := make([]string, 0, len(lost.Touches))
	for k := range lost.Touches {
		paths = append(paths, string(k.Cgroup))
	}
	slices.Sort(paths)
	if lost, _, err = x.o.Knobs.LostChanges(state, slices.Compact(paths)); err != nil && !partial.Is(err) {
		return err
	}
	maps.Copy(state.Touches, lost.Touches)
	unlisted := r.addUnread(x.addCopies(state))
	steps, left, gone, dropped := x.undo(state, in)
	forget := slices.Concat(gone, dropped)
	r.addGone(gone)
	r.Dropped = append(r.Dropped, dropped...)
	for _, c := range left {
		r.Left, forget = append(r.Left, c), append(forget, c.Knob)
	}
	errs := []error{unlisted, change.ManyKnobs{Knobs: x.o.Knobs}.Forget(forget)}
	var threads []node.Knob
	for _, s := range steps {
		if s.Knob.File.OfThreads() {
			threads = append(threads, s.Knob)
		}
	}
	for len(steps) > 0 {
		var refused []plan.Step
		var why []error
		for i, err := range x.release(steps, state.Touches) {
			s := steps[i]
			if err != nil {
				refused, why = append(refused, s), append(why, fmt.Errorf("restore %v to %v: %w", s.Knob, s.To, err))
				continue
			}
			x.addRestored(r, s, state.Touches[s.Knob])
		}
		if len(refused) == len(steps) {
			errs = append(errs, why...)
			break
		}
		steps = refused
	}
	errs = append(errs, x.o.TakeBackLate(threads))
	return errors.Join(errs...)
}

// release releases knobs, several in one call where possible. It returns one
// error, or nil, for each step.
func (x *Restorer) release(steps []plan.Step, touches map[node.Knob]journal.Touch) []error {
	errs := make([]error, 0, len(steps))
	for rest := steps; len(rest) > 0; rest = steps[len(errs):] {
		n := change.CountAtOneDepth(len(rest), func(i int) node.Knob { return rest[i].Knob })
		if n == 1 {
			errs = append(errs, x.o.Knobs.ReleaseAs(rest[0].Knob, touches[rest[0].Knob]))
			continue
		}
		all := make([]change.Taken, 0, n)
		for _, s := range rest[:n] {
			all = append(all, change.Taken{Knob: s.Knob, Touch: touches[s.Knob]})
		}
		errs = append(errs, change.ManyKnobs{Knobs: x.o.Knobs}.ReleaseAs(all)...)
	}
	return errs
}

// addLost adds to a state the changes that only the notes of the cgroups
// record. Before that, it updates the names of renamed cgroups. It returns the
// added changes, and writes nothing.
func (x *Restorer) addLost(state *journal.State) (journal.State, []change.Running, error) {
	if x.o.Tree == nil {
		return journal.State{}, nil, nil
	}
	moves, err := x.o.Knobs.Renamed(state.Touches, x.o.Tree.Paths)
	if err != nil && !partial.Is(err) { // addNoted misses the same cgroups
		return journal.State{}, nil, fmt.Errorf("find renamed cgroups: %w", err)
	}
	state.Move(moves)
	return x.addNoted(state)
}

// addNoted adds to a state the changes that only the notes of the cgroups
// record, and returns the added changes, and the running processes whose changes it
// leaves. The names in the state must be the present names of the cgroups. With a
// partial.Error, it has added those of all other cgroups.
func (x *Restorer) addNoted(state *journal.State) (journal.State, []change.Running, error) {
	if x.o.Tree == nil {
		return journal.State{}, nil, nil
	}
	paths, missed := x.o.Tree.Paths()
	if missed != nil && !partial.Is(missed) {
		return journal.State{}, nil, fmt.Errorf("look for notes at the cgroups: %w", missed)
	}
	lost, running, err := x.o.Knobs.LostChanges(*state, paths)
	maps.Copy(state.Touches, lost.Touches)
	maps.Copy(state.Groups, lost.Groups)
	return lost, running, errors.Join(missed, err)
}

// addCopies adds cpusets that new cgroups have copied from a cgroup that Tenon
// narrowed. They must be released together with the cpuset of that cgroup,
// because otherwise the new cgroups would keep the narrow set. With a
// partial.Error, it has added those of all other cgroups.
func (x *Restorer) addCopies(state journal.State) error {
	copies, err := x.o.Knobs.Copies(state.Touches)
	maps.Copy(state.Touches, copies)
	return err
}

// undo sorts the journaled knobs in scope into four lists: the steps that
// restore knobs, in the order of a plan; the knobs that another component
// changed (left); the knobs whose cgroup does not exist any more (gone); and
// the knobs that the kernel has dropped (lost). It ignores the knobs of a
// cgroup whose name another cgroup has now.
func (x *Restorer) undo(state journal.State, in scope) (steps []plan.Step, left []Change, gone, lost []node.Knob) {
	have := node.Knobs{Kernel: x.o.Kernel(), Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}
	var wants []plan.Want
	knobs := slices.SortedFunc(maps.Keys(state.Touches), node.Knob.Compare)
	knobs = slices.DeleteFunc(knobs, func(k node.Knob) bool { return !in(state.Touches[k].By) })
	for i, found := range change.Look(x.o.Knobs, knobs) {
		k := knobs[i]
		t := x.o.Knobs.AttainableEntry(k, state.Touches[k])
		if errors.Is(found.InodeErr, cgroup.ErrGone) || (found.InodeErr == nil && found.Inode != t.Inode) {
			if !change.MayBeHidden(x.o.Knobs, k.Cgroup) {
				gone = append(gone, k)
			}
			continue
		}
		if maker, made := state.Groups[k.Cgroup]; made && !in(maker) {
			continue
		}
		if change.IsDropped(found.Err) {
			lost = append(lost, k)
			continue
		}
		have.Before[k] = t.Before
		if now := found.Value; found.Err == nil { // otherwise the write will return the reason
			have.Now[k], have.Before[k] = now, x.o.Knobs.ToRestore(k, t, now)
			if have.Before[k] == now && now != t.Before {
				left = append(left, Change{Knob: k, From: now.String(), To: t.Before.String()})
				continue
			}
		}
		wants = append(wants, plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerRestore, Reason: "restore"})
	}
	return plan.Diff(have, wants), left, gone, lost
}

// addRestored adds a restored knob to a report. t is its journal entry. If
// another component has written a part of the knob, this part has stayed as it
// was, and the report also lists the knob as left.
func (x *Restorer) addRestored(r *Report, s plan.Step, t journal.Touch) {
	if s.From == s.To {
		return
	}
	c := Change{Knob: s.Knob, To: s.To.String()}
	if s.From != nil {
		c.From = s.From.String()
	}
	r.Restored = append(r.Restored, c)
	if before := x.o.Knobs.AttainableEntry(s.Knob, t).Before; before != s.To {
		r.Left = append(r.Left, Change{Knob: s.Knob, From: c.To, To: before.String()})
	}
}

func deepestFirst(groups map[node.CgroupPath]journal.Session) []node.CgroupPath {
	return slices.SortedFunc(maps.Keys(groups), func(a, b node.CgroupPath) int {
		return cmp.Or(cmp.Compare(b.Depth(), a.Depth()), cmp.Compare(a, b))
	})
}
