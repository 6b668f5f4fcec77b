package policy

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
)

// limit owns cpu.max of a workload's own cgroup, and sets what the workload's
// owner asked for, with what latency-sensitive work may save up and borrow on
// top. Who has CPUs of its own is bounded by these, and no quota throttles it.
// Where a workload's cgroup is itself the place at which
// best-effort work meets the others, cpu.max belongs to suppress.
//
// On cgroup v1 it also owns the other quotas below such a place: the kernel
// refuses to lower a parent's quota below a child's (kernel/sched/core.c:
// tg_cfs_schedulable_down), so the child gives way first. Cgroup v2 takes the
// smaller of the two by itself.
func limit(x *burster, l layout, s node.Snapshot, own grants, bounds []plan.Want) []plan.Want {
	var wants []plan.Want
	seen := make(map[node.CgroupPath]bool, len(s.Workloads))
	for _, w := range s.Workloads {
		mine := x.wants(w)
		if _, pinned := own.of[w.ID]; pinned {
			for i := range mine {
				mine[i].Intent, mine[i].Value, mine[i].Reason = plan.Release, nil, "its own CPUs bound it"
			}
		}
		for _, want := range mine {
			if p := want.Knob.Cgroup; !l.isMeet[p] && !seen[p] {
				wants = append(wants, want)
			}
			seen[want.Knob.Cgroup] = true
		}
	}
	if s.Knobs.Kernel.CgroupVersion != 1 {
		return wants
	}
	above := map[node.CgroupPath]node.CPUMax{}
	for _, b := range bounds {
		if v, known := outcome(s.Knobs, b).(node.CPUMax); known && isQuota(v) {
			above[b.Knob.Cgroup] = v
		}
	}
	for i := range wants {
		wants[i] = within(s.Knobs, l, above, wants[i])
	}
	for _, p := range quotasBelow(l, s) {
		if seen[p] {
			continue
		}
		w := plan.Want{Intent: plan.Release, Knob: node.Knob{Cgroup: p, File: node.FileCPUMax}, Owner: "limit", Reason: "no CPU limit was asked for", BE: true}
		if w = within(s.Knobs, l, above, w); w.Intent == plan.Set {
			wants = append(wants, w)
		}
	}
	return wants
}

// outcome returns the value that a knob has once its want is fulfilled; nil if
// that is not known.
func outcome(k node.Knobs, w plan.Want) node.Value {
	switch w.Intent {
	case plan.Set:
		return w.Value
	case plan.Release:
		return original(k, w.Knob)
	}
	return k.Now[w.Knob]
}

// ownLimit is what the owner of a workload, or of a part of one, asked for: base
// is the limit that holds without bursts, if there is one. What somebody else
// keeps is left to him, but where it was changed since Tenon's first touch: to
// give back what was there then would undo that.
func ownLimit(k node.Knobs, w node.Workload, p node.Part) (want plan.Want, base node.CPUMax, limited bool) {
	want = plan.Want{
		Intent: plan.Release, Knob: node.Knob{Cgroup: p.Cgroup, File: node.FileCPUMax}, Owner: "limit",
		Reason: "no CPU limit was asked for", BE: w.Class == node.BE,
	}
	m, asked := p.CPULimit.Value()
	before, _ := original(k, want.Knob).(node.CPUMax)
	switch {
	case asked && !w.CPUKept:
		base = node.Limit(m)
		want.Intent, want.Value = plan.Set, base
		want.Reason = fmt.Sprintf("%s asked for at most %v of CPU", p.Name, m)
		return want, base, true
	case !isQuota(before):
		return want, base, false
	}
	base = before
	want.Reason = fmt.Sprintf("%s had at most %v of CPU before Tenon", p.Name, milliOf(before))
	if now := node.Limit(m); asked {
		base.Quota = max(time.Duration(float64(before.Period)*now.Cores()), node.MinQuota).Truncate(time.Microsecond)
		want.Reason = fmt.Sprintf("%s has at most %v of CPU", p.Name, m)
	}
	if _, touched := k.Before[want.Knob]; touched && base != before {
		want.Intent, want.Value = plan.Set, base
	}
	return want, base, true
}

// within keeps what a quota will be within that of the meeting point above it.
func within(k node.Knobs, l layout, above map[node.CgroupPath]node.CPUMax, want plan.Want) plan.Want {
	meet, below := l.meetAbove(want.Knob.Cgroup)
	bound, bounded := above[meet]
	own, known := outcome(k, want).(node.CPUMax)
	if below && bounded && known && isQuota(own) && bound.Narrower(own) < 0 {
		want.Intent, want.Value = plan.Set, bound
		want.Reason = fmt.Sprintf("cgroup v1: %s may have no more than %s above it", want.Knob.Cgroup, meet)
	}
	return want
}

// quotasBelow lists the cgroups in sight below the meeting points that have a
// quota, had one before Tenon, or are about to get one, sorted.
func quotasBelow(l layout, s node.Snapshot) []node.CgroupPath {
	asked := map[node.CgroupPath]bool{}
	for _, w := range s.Workloads {
		asked[w.Cgroup] = w.CPULimit.Known()
		for _, p := range w.Parts {
			asked[p.Cgroup] = p.CPULimit.Known()
		}
	}
	var all []node.CgroupPath
	for k, v := range s.Knobs.Now {
		if k.File != node.FileCPUMax || l.isMeet[k.Cgroup] {
			continue
		}
		now, _ := v.(node.CPUMax)
		was, _ := original(s.Knobs, k).(node.CPUMax)
		if _, below := l.meetAbove(k.Cgroup); below && (isQuota(now) || isQuota(was) || asked[k.Cgroup]) {
			all = append(all, k.Cgroup)
		}
	}
	slices.Sort(all)
	return all
}
