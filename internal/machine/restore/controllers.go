package restore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// A Controller is a controller of cgroup v2 that Tenon had enabled for the
// children of a cgroup.
type Controller struct {
	Cgroup     node.CgroupPath `json:"cgroup"`
	Controller string          `json:"controller"`
	// NeededBy is the cgroup that may need the controller now. It is empty if the
	// controller was disabled.
	NeededBy node.CgroupPath `json:"needed_by,omitempty"`
}

// A controllerPlan sorts the controllers that Tenon had enabled. A controller
// that Tenon's own cgroups or knobs still need is in none of the lists.
type controllerPlan struct {
	disable []journal.ChildController // in the order in which the kernel permits it
	needed  []Controller              // another program needs it, so it stays enabled
	gone    []journal.ChildController // the cgroup is gone, or another program has disabled the controller
	errs    []error                   // cgroups that cannot be read
}

// disableControllers disables the controllers in scope that Tenon had enabled
// and that no cgroup needs any more. It must be called after the knobs were
// restored, because the kernel drops the knobs of a disabled controller.
func (x *Restorer) disableControllers(in scope, r *Report) error {
	state, err := x.o.Journal.State()
	if err != nil {
		return err
	}
	p := x.planControllers(state, in, nil)
	forget := p.gone
	r.NeededControllers = p.needed
	for _, c := range p.needed {
		forget = append(forget, journal.ChildController{Cgroup: c.Cgroup, Controller: c.Controller})
	}
	errs := p.errs
	for _, c := range p.disable {
		switch err := cgroup.PassOn(x.o.Tree, string(c.Cgroup), c.Controller, false); {
		case errors.Is(err, syscall.EBUSY): // a child has passed it on since the plan
			r.NeededControllers = append(r.NeededControllers, Controller{c.Cgroup, c.Controller, c.Cgroup})
		case err != nil && !errors.Is(err, cgroup.ErrGone):
			errs = append(errs, fmt.Errorf("disable the controller %s: %w", c.Controller, err))
			continue
		case err == nil:
			r.Disabled = append(r.Disabled, Controller{Cgroup: c.Cgroup, Controller: c.Controller})
		}
		forget = append(forget, c)
	}
	for _, c := range forget {
		errs = append(errs, journal.ForgetEnabled(x.o.Journal, c))
	}
	return errors.Join(errs...)
}

// planControllers decides what becomes of the controllers in scope. rest is the
// state of the journal after the cgroups and knobs were restored. The cgroups in
// removed still exist, but the restore will remove them.
func (x *Restorer) planControllers(rest journal.State, in scope, removed map[node.CgroupPath]bool) (p controllerPlan) {
	for _, c := range journal.DeepestFirst(rest.Enabled) {
		e := rest.Enabled[c]
		if !in(e.By) {
			continue
		}
		s, err := cgroup.ReadSubtree(x.o.Tree, string(c.Cgroup))
		switch {
		case errors.Is(err, cgroup.ErrGone) || err == nil && (s.Inode != e.Inode || !slices.Contains(s.Enabled, c.Controller)):
			p.gone = append(p.gone, c)
		case err != nil:
			p.errs = append(p.errs, err)
		case needsOwn(rest, c.Cgroup):
		default:
			if child, needed := x.findUser(c, e, s, p.disable, removed); needed {
				p.needed = append(p.needed, Controller{c.Cgroup, c.Controller, child})
			} else {
				p.disable = append(p.disable, c)
			}
		}
	}
	return p
}

// needsOwn reports whether a cgroup below p was made by Tenon, or has a knob that
// Tenon changed.
func needsOwn(rest journal.State, p node.CgroupPath) bool {
	below := func(q node.CgroupPath) bool { return q != p && p.Contains(q) }
	for q := range rest.Groups {
		if below(q) {
			return true
		}
	}
	for k := range rest.Touches {
		if k.ControlGroup == "" && below(k.Cgroup) {
			return true
		}
	}
	return false
}

// findUser returns a child of the cgroup s that may need the controller c: a child
// that passes it on to its own children, that has a setting of it, or that was
// made after Tenon had enabled it, and so may use its counters alone. disable
// lists the controllers that will be disabled before c.
func (x *Restorer) findUser(c journal.ChildController, e journal.Enabling, s cgroup.Subtree, disable []journal.ChildController, removed map[node.CgroupPath]bool) (child node.CgroupPath, needed bool) {
	for _, name := range slices.Sorted(maps.Keys(s.Children)) {
		child := c.Cgroup.Join(name)
		if removed[child] {
			continue
		}
		if !slices.Contains(e.Children, s.Children[name]) {
			return child, true
		}
		below, err := cgroup.ReadSubtree(x.o.Tree, string(child))
		passesOn := slices.Contains(below.Enabled, c.Controller) && !slices.Contains(disable, journal.ChildController{Cgroup: child, Controller: c.Controller})
		set := false
		if err == nil && !passesOn {
			set, err = cgroup.HasSettings(x.o.Tree, string(child), c.Controller)
		}
		if passesOn || set || err != nil && !errors.Is(err, cgroup.ErrGone) {
			return child, true
		}
	}
	return "", false
}
