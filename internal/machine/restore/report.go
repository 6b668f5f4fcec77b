package restore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/model/node"
)

// A Report lists what a restore did, or would do.
type Report struct {
	Restored []Change          `json:"restored,omitempty"` // knobs that were written back
	Left     []Change          `json:"left,omitempty"`     // knobs that another component has changed since, in whole or in part
	Removed  []node.CgroupPath `json:"removed,omitempty"`  // groups that Tenon had made
	Busy     []Busy            `json:"busy,omitempty"`     // groups that Tenon had made and that are in use
	Killed   []int             `json:"killed,omitempty"`   // processes that a lab had started
	Gone     []node.CgroupPath `json:"gone,omitempty"`     // groups that no longer existed
	Dropped  []node.Knob       `json:"dropped,omitempty"`  // knobs that their cgroups no longer have
	Controls []string          `json:"resctrl,omitempty"`  // control groups of resctrl that Tenon had made, removed
	Disabled []Controller      `json:"disabled,omitempty"` // controllers that Tenon had enabled
	// NeededControllers are controllers that Tenon had enabled and that another
	// program needs by now. They stay enabled.
	NeededControllers []Controller `json:"needed_controllers,omitempty"`
	// Unread lists cgroups that cannot be read. What Tenon changed in and below
	// them is restored only as far as the journal has it.
	Unread []Unread `json:"unread,omitempty"`
	// Damage says how the journal was damaged, or is empty if it was whole.
	// After damage, changes may remain that are not in the journal any more.
	Damage string `json:"damage,omitempty"`
	// Recovered is the number of knobs and cgroups that only the notes of the
	// cgroups recorded, and not the journal.
	Recovered int `json:"recovered,omitempty"`
	// Elsewhere has the changes that this restore cannot undo, because another
	// Tenon made them, with another state directory.
	Elsewhere []change.Elsewhere `json:"elsewhere,omitempty"`
	// Running has the changes of processes that still run and are not in this
	// journal, although they call its state directory by the same path. The restore
	// has left them alone: these processes would make them again.
	Running []change.Running `json:"running,omitempty"`
	// Unseen says that this process could not see whether there are such changes:
	// only root sees the notes at the cgroups.
	Unseen bool `json:"elsewhere_unseen,omitempty"`
}

// A Change is a knob with two values: the one that the restore found, and the
// one before Tenon's first write.
type Change struct {
	Knob node.Knob `json:"knob"`
	From string    `json:"from"`
	To   string    `json:"to"`
}

// A Busy is a cgroup that the restore did not remove, with the processes in it.
// If there are none, the cgroup has child cgroups. These are busy, or not made
// by Tenon.
type Busy struct {
	Cgroup node.CgroupPath `json:"cgroup"`
	PIDs   []int           `json:"pids,omitempty"`
	// Why is the error if the cgroup cannot be read, so that there may be others.
	Why string `json:"why,omitempty"`
}

func busyOf(p node.CgroupPath, users []int, err error) Busy {
	b := Busy{Cgroup: p, PIDs: users}
	if err != nil {
		b.Why = err.Error()
	}
	return b
}

// An Unread is a cgroup that cannot be read, with the cause. Without a cgroup, it
// stands for a number of others.
type Unread struct {
	Cgroup node.CgroupPath `json:"cgroup,omitempty"`
	Why    string          `json:"why,omitempty"`
	More   int             `json:"more,omitempty"`
}

func unreadOf(missed *partial.Error) []Unread {
	if missed == nil {
		return nil
	}
	var all []Unread
	for _, m := range missed.Misses {
		all = append(all, Unread{Cgroup: node.CgroupPath(m.Path), Why: m.Err.Error()})
	}
	if missed.More > 0 {
		all = append(all, Unread{More: missed.More})
	}
	return all
}

// addUnread adds the cgroups that a later walk has missed. It returns its error
// without those that the report has already.
func (r *Report) addUnread(err error) error {
	missed, rest := partial.Split(err)
	if missed == nil {
		return rest
	}
	missed.Misses = slices.DeleteFunc(missed.Misses, func(m partial.Miss) bool {
		return slices.ContainsFunc(r.Unread, func(u Unread) bool { return u.More == 0 && string(u.Cgroup) == m.Path })
	})
	r.Unread = append(r.Unread, unreadOf(missed)...)
	return errors.Join(rest, missed.OrNil())
}

// Incomplete returns an error that says what Tenon has left on the machine after
// the restore, or nil. It ignores what other programs have changed since: that is
// theirs. It also ignores damage.
func (r Report) Incomplete() error {
	var errs []error
	if n := len(r.Busy); n > 0 {
		errs = append(errs, fmt.Errorf("%s that Tenon made %s in use: run tenon restore again when the commands in %s have ended",
			count(n, "cgroup", "cgroups"), were(n, "is", "are"), were(n, "it", "them")))
	}
	for _, e := range r.Elsewhere {
		if e.PID != 0 {
			continue // it runs: its changes are in use, and not left behind
		}
		errs = append(errs, fmt.Errorf("%s by a Tenon with the state directory %s: run tenon restore --state-dir %s", changed(e.Knobs, e.Groups), e.StateDir, e.StateDir))
	}
	for _, p := range r.Running {
		errs = append(errs, fmt.Errorf("%s by process %d, which runs and is not in the journal of this state directory, perhaps because it is in a container: stop it first",
			changed(p.Knobs, p.Groups), p.PID))
	}
	return errors.Join(errs...)
}

func were(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Empty reports whether the restore had nothing to do.
func (r Report) Empty() bool {
	return len(r.Restored)+len(r.Left)+len(r.Removed)+len(r.Busy)+len(r.Killed)+len(r.Gone)+len(r.Dropped)+len(r.Controls)+
		len(r.Disabled)+len(r.NeededControllers)+len(r.Unread) == 0 && r.Damage == ""
}

// OnlyOthers reports whether the restore had nothing to do, but has found changes
// of other Tenons.
func (r Report) OnlyOthers() bool { return r.Empty() && len(r.Elsewhere)+len(r.Running) > 0 }

// String prints one line for each thing that the restore did or did not do.
func (r Report) String() string {
	return r.text(acts{"ended", "restored", "removed", "disabled", "recovered"})
}

// Planned prints the report of Plan, as what a restore will do.
func (r Report) Planned() string {
	return r.text(acts{"end", "restore", "remove", "disable", "recover"})
}

// acts are the words for what a restore does.
type acts struct{ ended, restored, removed, disabled, recovered string }

func (r Report) text(did acts) string {
	var b strings.Builder
	if len(r.Killed) > 0 {
		fmt.Fprintf(&b, "%-9s %s of a lab\n", did.ended, count(len(r.Killed), "process", "processes"))
	}
	for _, c := range r.Restored {
		fmt.Fprintf(&b, "%-9s %v  %s -> %s\n", did.restored, c.Knob, shown(c.From), shown(c.To))
	}
	for _, p := range r.Removed {
		fmt.Fprintf(&b, "%-9s cgroup %s\n", did.removed, p)
	}
	for _, name := range r.Controls {
		fmt.Fprintf(&b, "%-9s resctrl group %s\n", did.removed, name)
	}
	for _, c := range r.Disabled {
		fmt.Fprintf(&b, "%-9s controller %s for the children of cgroup %s\n", did.disabled, c.Controller, cmp.Or(c.Cgroup, "/"))
	}
	for _, p := range r.Gone {
		fmt.Fprintf(&b, "gone      cgroup %s no longer exists\n", p)
	}
	for _, k := range r.Dropped {
		fmt.Fprintf(&b, "gone      %v no longer exists, and its value with it\n", k)
	}
	for _, c := range r.Left {
		fmt.Fprintf(&b, "left      %v is %s, which Tenon did not write (it was %s before)\n", c.Knob, shown(c.From), shown(c.To))
	}
	for _, c := range r.NeededControllers {
		fmt.Fprintf(&b, "left      controller %s stays enabled for the children of cgroup %s: another program may use it in %s\n",
			c.Controller, cmp.Or(c.Cgroup, "/"), cmp.Or(c.NeededBy, "/"))
	}
	for _, g := range r.Busy {
		fmt.Fprintf(&b, "in use    cgroup %s: %s\n", g.Cgroup, g.occupants())
	}
	for _, u := range r.Unread {
		if u.More > 0 {
			fmt.Fprintf(&b, "not read  %s\n", count(u.More, "more cgroup", "more cgroups"))
			continue
		}
		fmt.Fprintf(&b, "not read  cgroup %s and those below it (%s): what Tenon changed there is restored only as far as the journal has it\n",
			partial.Shown(string(u.Cgroup)), u.Why)
	}
	if r.Recovered > 0 {
		fmt.Fprintf(&b, "%-9s %s that the journal did not have, from the notes at the cgroups\n", did.recovered, count(r.Recovered, "entry", "entries"))
	}
	for _, e := range r.Elsewhere {
		runs := ""
		if e.PID != 0 {
			runs = fmt.Sprintf(", which runs (process %d)", e.PID)
		}
		fmt.Fprintf(&b, "elsewhere %s by a Tenon with the state directory %s%s\n", changed(e.Knobs, e.Groups), e.StateDir, runs)
	}
	for _, p := range r.Running {
		fmt.Fprintf(&b, "running   %s by process %d, which runs and is not in the journal of this state directory\n", changed(p.Knobs, p.Groups), p.PID)
	}
	if r.Damage != "" {
		fmt.Fprintf(&b, "damaged   the journal lost entries (%s): knobs that Tenon changed may still have its values\n", r.Damage)
	}
	return b.String()
}

func (g Busy) occupants() string {
	if g.Why != "" && len(g.PIDs) == 0 {
		return g.Why
	}
	if len(g.PIDs) == 0 {
		return "it holds other groups"
	}
	words := make([]string, 0, len(g.PIDs))
	for _, pid := range g.PIDs {
		words = append(words, fmt.Sprint(pid))
	}
	return count(len(g.PIDs), "process", "processes") + " " + strings.Join(words, " ")
}

// addGone adds the cgroups of knobs to the list of cgroups that do not exist any
// more. It adds each cgroup only once.
func (r *Report) addGone(knobs []node.Knob) {
	listed := map[node.CgroupPath]bool{}
	for _, p := range r.Gone {
		listed[p] = true
	}
	for _, k := range knobs {
		if k.ControlGroup == "" && !listed[k.Cgroup] {
			listed[k.Cgroup] = true
			r.Gone = append(r.Gone, k.Cgroup)
		}
	}
}

func count(n int, one, many string) string {
	return fmt.Sprintf("%d %s", n, were(n, one, many))
}

func shown(s string) string {
	if s == "" {
		return `""`
	}
	return s
}
