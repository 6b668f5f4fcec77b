package isolation

import (
	"slices"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// slices gives BE threads the longest time slice if they compete with other work in a cgroup that
// is not idle. There are three such cases: another component manages the cgroup's weight, the
// cgroup also holds other work, or the cgroup has the least weight.
//
// The kernel compares two threads at the lowest cgroup that contains both. Since Linux 6.6 a
// thread that is not idle at that level may finish the slice that it has begun. A BE thread
// begins a slice when it wakes or gets new quota. Then it delays each thread that wakes later by
// up to one slice, rounded up to ticks. If slices are longer, they begin less often, and such
// delays are rare. A cgroup has the shortest slice of its threads. Since Linux 6.12 a waking
// thread whose slice is shorter than that of the running thread preempts it at once.
//
// The two strongest mechanisms do not need long slices. Vendor marks apply across cgroups, and
// under sched_ext BE threads run below all others.
func (st Selector) slices(c Config, l facts.Layout, s node.Snapshot) []plan.Want {
	mechanism := st.Status.Mechanism
	if c.SlicesUnmanaged || mechanism.Row().BelowAll || !s.Capabilities.Has(node.FeatureEEVDFSlice) {
		return nil
	}
	if hasChanged(s, node.FilePolicy) {
		return nil // a slice has no effect on a sched_ext thread, so wait for the release
	}
	var idle []node.CgroupPath
	if c.Means != node.FeatureCPUWeight && mechanism != node.MechanismWeight && s.Capabilities.Has(node.FeatureCPUIdle) {
		idle = l.IdleCgroups(s)
	}
	var wants []plan.Want
	for _, m := range highestCgroups(l.Roots) {
		if slices.Contains(idle, m) && l.Reach(m) == "" {
			continue
		}
		if handsOver(s, m) {
			continue
		}
		wants = append(wants, plan.Want{
			Intent: plan.Set, Knob: node.Knob{Cgroup: m, File: node.FileSlice}, Value: node.ThreadsBE, BE: true, Owner: plan.OwnerMechanism,
			Reason: "BE competes with other work in a cgroup that is not idle: a waking thread with a shorter slice preempts it",
		})
	}
	return wants
}

// releaseReason returns the reason why long slices are released. The argument
// mechanism says why the present mechanism was selected.
func (st Selector) releaseReason(c Config, mechanism string) string {
	switch {
	case c.SlicesUnmanaged:
		return "cpuIsolationLongSlices is false"
	case st.Status.Mechanism.Row().BelowAll:
		return mechanism
	}
	return "BE does not compete with other work here in a cgroup that is not idle"
}

// handsOver reports whether the long slices of a cgroup above or below m are being released. Such
// a release also resets the slices of the threads in m, so the want for m must wait for a tick.
func handsOver(s node.Snapshot, m node.CgroupPath) bool {
	for k := range s.Knobs.Before {
		if k.File == node.FileSlice && k.Cgroup != m && (k.Cgroup.Contains(m) || m.Contains(k.Cgroup)) {
			return true
		}
	}
	return false
}
