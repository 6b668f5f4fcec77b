package burst

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/seat"
	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Input holds what Decide reads besides the configuration.
type Input struct {
	Layout   facts.Layout
	Use      facts.Use
	Own      hold.Grants
	Seats    seat.Grants
	Bounds   []plan.Want   // of the contention roots
	Single   culprit.State // the bounds of single workloads
	Snapshot node.Snapshot
}

// Decide owns cpu.max of a workload's own cgroup. The value is the limit of the workload's owner,
// plus CPU burst for LS work, and at most the bound that a BE workload alone has
// (package culprit). A workload with exclusive CPUs, or a BE workload that its seats
// limit, has no quota: its CPUs limit it. If the workload's cgroup is a contention root, cpu.max
// belongs to suppress.
//
// On cgroup v1, Decide also owns the other quotas below a contention root. The kernel refuses to
// lower a parent's quota below a child's (kernel/sched/core.c: tg_cfs_schedulable_down), so the
// child's quota is lowered first. Cgroup v2 accepts both quotas and applies the smaller one.
func Decide(c Config, had Lending, in Input) (Lending, []plan.Want) {
	l, s := in.Layout, in.Snapshot
	x := newBurster(c, had, in.Use, in.Own, s)
	wants := make([]plan.Want, 0, len(s.Workloads))
	seen := make(map[node.CgroupPath]bool, len(s.Workloads))
	for i := range s.Workloads {
		w := &s.Workloads[i]
		mine := x.wants(w)
		if _, pinned := in.Own.Exclusive(w.ID); pinned {
			for j := range mine {
				mine[j].Intent, mine[j].Value, mine[j].Reason = plan.Release, nil, "its exclusive CPUs limit it"
			}
		}
		in.Seats.Relieve(w, s.Knobs, mine)
		if b, bounded := in.Single.Bounds[w.ID]; bounded {
			tighten(s.Knobs, b, mine)
		}
		for _, want := range mine {
			if p := want.Knob.Cgroup; !l.IsRoot(p) && !seen[p] {
				wants = append(wants, want)
			}
			seen[want.Knob.Cgroup] = true
		}
	}
	if s.Knobs.Kernel.CgroupVersion != 1 {
		return x.next, wants
	}
	above := map[node.CgroupPath]node.CPUMax{}
	for _, b := range in.Bounds {
		if v, known := b.Outcome(s.Knobs).(node.CPUMax); known && facts.IsQuota(v) {
			above[b.Knob.Cgroup] = v
		}
	}
	starts := l.StartLimits(&s)
	for i := range wants {
		wants[i] = limitQuota(s.Knobs, l, above, starts, wants[i])
	}
	for _, p := range l.QuotasBelow(&s) {
		if seen[p] {
			continue
		}
		w := plan.Want{Intent: plan.Release, Knob: node.Knob{Cgroup: p, File: node.FileCPUMax}, Owner: plan.OwnerLimit, Reason: "no CPU limit is set for it", BE: true}
		if w = limitQuota(s.Knobs, l, above, starts, w); w.Intent == plan.Set {
			wants = append(wants, w)
		}
	}
	return x.next, wants
}

// tighten applies the bound of a BE workload to its limit, and to those of its
// containers, which the kernel would refuse above the bound on cgroup v1.
func tighten(k node.Knobs, b culprit.Bound, wants []plan.Want) {
	for i := range wants {
		own, known := wants[i].Outcome(k).(node.CPUMax)
		if i > 0 && (!known || !facts.IsQuota(own)) {
			continue
		}
		if v, tighter := b.Tighten(own); tighter {
			wants[i].Intent, wants[i].Value, wants[i].Reason = plan.Set, v, b.Text()
		}
	}
}

// ownLimit returns the want for the CPU limit of p. base is this limit without
// bursts. If another component manages the limit, the want releases it. If that
// component changed the limit after Tenon's first write, the want sets the
// changed value, because a release would restore the older one.
func ownLimit(k *node.Knobs, w *node.Workload, p *node.Container) (want plan.Want, base node.CPUMax, limited bool) {
	want = plan.Want{
		Intent: plan.Release, Knob: node.Knob{Cgroup: p.Cgroup, File: node.FileCPUMax}, Owner: plan.OwnerLimit,
		Reason: "no CPU limit is set for it", BE: w.Class == node.BE,
	}
	m, asked := p.CPULimit.Value()
	if own, ours := facts.CPULimit(w, p); ours && facts.IsQuota(own) {
		base = own
		want.Intent, want.Value = plan.Set, base
		want.Reason = p.Name + " has a CPU limit of " + m.String()
		return want, base, true
	}
	before, _ := facts.Original(*k, want.Knob).(node.CPUMax)
	if !facts.IsQuota(before) {
		return want, base, false
	}
	base = before
	want.Reason = p.Name + " had a CPU limit of " + facts.MilliOf(before).String() + " before Tenon"
	if asked {
		base.Quota = facts.QuotaOf(p.CPULimit, before.Period)
		want.Reason = p.Name + " has a CPU limit of " + m.String()
	}
	if _, touched := k.Before[want.Knob]; touched && base != before {
		want.Intent, want.Value = plan.Set, base
	}
	return want, base, true
}

// limitQuota reduces a wanted quota to the bound of the contention root above
// the cgroup, if that bound is smaller. If the root gets more than its bound, because a
// container in it waits to start, the bound also applies to a cgroup without a quota.
func limitQuota(k node.Knobs, l facts.Layout, above map[node.CgroupPath]node.CPUMax, starts map[node.CgroupPath]unit.MilliCPU, want plan.Want) plan.Want {
	root, below := l.RootAbove(want.Knob.Cgroup)
	bound, bounded := above[root]
	if !below || !bounded {
		return want
	}
	own, known := want.Outcome(k).(node.CPUMax)
	now, _ := k.Now[want.Knob].(node.CPUMax)
	switch {
	case !known:
		return want
	case !facts.IsQuota(own) && starts[root] > facts.MilliOf(bound):
		want.Intent, want.Value = plan.Set, bound
		want.Reason = fmt.Sprintf("cgroup v1: a container of %s waits to start, and the bound is here until then", root)
		return want
	case !facts.IsQuota(own):
		own = now // its quota is removed only after the quota above it has become smaller
	}
	if facts.IsQuota(own) && bound.CompareWidth(own) < 0 {
		want.Intent, want.Value = plan.Set, bound
		want.Reason = fmt.Sprintf("cgroup v1: %s may not exceed %s above it", want.Knob.Cgroup, root)
	}
	return want
}
