package isolation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// schedulerHold is the default hold time: after LS threads have left a core, BE
// threads stay off its siblings for this time. It is longer than the usual
// pause of a service between two requests.
const schedulerHold = 200 * time.Microsecond

// wants returns the wants of the selected mechanism, and releases the knobs of the other
// mechanisms. Until these releases are done, it abstains from the knobs of the selected
// mechanism. Therefore the kernel never has cookies together with marks or with a BPF scheduler.
func (st Selector) wants(c Config, l facts.Layout, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	if f := st.Status.Mechanism.Row().Attribute; f != "" {
		wants = append(wants, threadWants(f, l)...)
	}
	if special := methods[st.Status.Mechanism]; special.wants != nil {
		wants = append(wants, special.wants(c, s)...)
	}
	reason := fmt.Sprintf("%s: %s", st.Status.Mechanism, st.Status.Why)
	waits := st.waits(s)
	for i := range wants {
		wants[i].Owner, wants[i].Reason = plan.OwnerMechanism, reason
		if waits != "" {
			wants[i].Intent, wants[i].Value = plan.Abstain, nil
			wants[i].Reason = fmt.Sprintf("%s waits until %s released", st.Status.Mechanism, waits)
		}
	}
	wants = append(wants, st.slices(c, l, s)...)
	released := giveBack(wants, l, s, reason)
	for i := range released {
		if released[i].Knob.File == node.FileSlice {
			released[i].Reason = st.releaseReason(c, reason)
		}
	}
	return append(wants, released...)
}

// waits names the knobs that must be released first, or returns "".
func (st Selector) waits(s node.Snapshot) string {
	other := node.Mechanism("")
	for k := range s.Knobs.Before {
		if r := node.MechanismOf(k.File); r != "" && r != st.Status.Mechanism && r > other {
			other = r
		}
	}
	switch {
	case other != "":
		return string(other) + " is"
	case st.Status.Mechanism == node.MechanismSchedExt && hasChanged(s, node.FileSlice):
		return "the long slices are" // a thread of sched_ext keeps its slice
	}
	return ""
}

// hasChanged reports whether Tenon has changed the knob f in any cgroup.
func hasChanged(s node.Snapshot, f node.File) bool {
	for k := range s.Knobs.Before {
		if k.File == f {
			return true
		}
	}
	return false
}

// giveBack returns releases of the isolation knobs that Tenon has changed. It
// leaves out knobs that are in the list wants.
func giveBack(wants []plan.Want, l facts.Layout, s node.Snapshot, reason string) []plan.Want {
	wanted := make(map[node.Knob]bool, len(wants))
	for i := range wants {
		wanted[wants[i].Knob] = true
	}
	var left []node.Knob
	for k := range s.Knobs.Before {
		if (node.MechanismOf(k.File) != "" || k.File == node.FileSlice) && !wanted[k] {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, node.Knob.Compare)
	var released []plan.Want
	for _, k := range left {
		_, inBE := l.RootAbove(k.Cgroup)
		released = append(released, plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerMechanism, Reason: reason, BE: inBE || k.File != node.FileIdentity})
	}
	return released
}

// threadWants returns the wants that set the thread attribute f for all threads
// below contention roots. It leaves out other cgroups, because they do not have
// the least weight: if the mechanism failed, their threads would compete with
// full weight.
func threadWants(f node.File, l facts.Layout) []plan.Want {
	var wants []plan.Want
	for _, p := range highestCgroups(l.Roots) {
		wants = append(wants, plan.Want{Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: f}, Value: node.ThreadsBE, BE: true})
	}
	return wants
}

// highestClassCgroups returns, in sorted order, the highest cgroups that hold
// only work of the class of l: the contention roots, and the cgroups of
// workloads whose contention root is unknown.
func highestClassCgroups(l facts.Layout) []node.CgroupPath {
	all := slices.Clone(l.Roots)
	for _, p := range l.Shared {
		if p != "" && l.Others[p] == 0 {
			all = append(all, p)
		}
	}
	return highestCgroups(all)
}

// highestCgroups sorts cgroups. It drops each cgroup that is below another one
// in the list.
func highestCgroups(all []node.CgroupPath) []node.CgroupPath {
	within := func(p node.CgroupPath) bool {
		return slices.ContainsFunc(all, func(q node.CgroupPath) bool { return q != p && q.Contains(p) })
	}
	top := slices.DeleteFunc(slices.Clone(all), within)
	slices.Sort(top)
	return slices.Compact(top)
}

// schedulers returns the want that loads the BE scheduler.
func (c Config) schedulers(s node.Snapshot) []plan.Want {
	return []plan.Want{{Intent: plan.Set, Knob: node.Knob{File: node.FileScheduler}, Value: c.scheduler(s.Capabilities), BE: true}}
}

// scheduler returns the parameters of the BE scheduler.
func (c Config) scheduler(can node.Capabilities) node.Scheduler {
	v := node.Scheduler{
		Loaded: true, Siblings: can.Has(node.FeatureHardwareSMT) && c.expels(),
		Hold: c.Hold.Or(schedulerHold), Headroom: c.Headroom.Or(node.SchedulerHeadroom),
	}
	if !v.Siblings {
		return v
	}
	var gentle []string
	for _, class := range node.Classes {
		if class.Sensitive() && c.identity(class) < node.IdentityExpels {
			gentle = append(gentle, string(class))
		}
	}
	v.Gentle = strings.Join(gentle, ",")
	return v
}

// identity returns the configured treatment of a class, or Koordinator's default.
func (c Config) identity(class node.Class) node.Identity {
	if v, said := c.Identity[class]; said {
		if class != node.BE {
			v = max(v, node.IdentityNone) // only BE gives way
		}
		return v
	}
	switch {
	case class == node.BE:
		return node.IdentityBE
	case class.Sensitive():
		return node.IdentityExpels
	}
	return node.IdentityNone
}

// expels reports whether any class keeps BE off the siblings of its CPUs.
func (c Config) expels() bool {
	return slices.ContainsFunc(node.Classes, func(class node.Class) bool {
		return class.Sensitive() && c.identity(class) >= node.IdentityExpels
	})
}

// identities returns the wants that mark all work for a vendor's kernel. For
// each workload, it marks the highest cgroup that holds only work of its class,
// the workload's own cgroup, and all cgroups between them. The kernel compares
// siblings at each level, so one level without a mark would cancel the effect.
func (c Config) identities(s node.Snapshot) []plan.Want {
	wants := make([]plan.Want, 0, len(s.Workloads))
	seen := make(map[node.CgroupPath]bool, len(s.Workloads))
	for _, class := range node.Classes {
		v := c.identity(class)
		if v == node.IdentityNone || !facts.AnyOf(s.Workloads, func(w *node.Workload) bool { return w.Class == class }) {
			continue
		}
		l := facts.LayoutFor(class, s)
		tops := highestClassCgroups(l)
		for i := range s.Workloads {
			w := &s.Workloads[i]
			if w.Class != class {
				continue
			}
			top := slices.IndexFunc(tops, func(p node.CgroupPath) bool { return p.Contains(w.Cgroup) })
			if top < 0 {
				continue // the cgroup also holds other classes, which must not get the mark
			}
			for p := w.Cgroup; tops[top].Contains(p) && !seen[p]; p = p.Parent() {
				seen[p] = true
				mark := v
				if p == w.Cgroup && class.Sensitive() {
					mark = w.Overrides.Identity.Or(v)
				}
				if mark == node.IdentityNone {
					continue
				}
				wants = append(wants, plan.Want{
					Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: node.FileIdentity}, Value: mark, BE: class == node.BE,
				})
			}
		}
	}
	return wants
}
