// Package isolation decides how Tenon keeps best-effort (BE) work off the CPUs
// of latency-sensitive (LS) work. It selects the isolation mechanism and makes
// its wants, and the orders to the BE scheduler. It decides when Tenon tries a
// failed mechanism again, and finds the CPUs that are siblings of LS work.
package isolation

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Owned lists the knobs that this package decides.
var Owned = []node.File{node.FileSchedulerGroup, node.FileSchedulerCap}

// Orders returns the orders to the BE scheduler for each cgroup. slotless
// counts the workloads that get no own slot, because all are taken.
//
// The kernel applies neither cpu.weight nor cpu.max to threads in the BE
// scheduler, so the orders carry these values. Orders takes the values from the
// other wants, so that a new quota and its order are in the same plan. Other
// values come from the snapshot. roots holds the contention root of each
// workload of the snapshot, or "".
//
// If no want loads the scheduler, there are no orders, because an unloaded
// scheduler loses its orders.
func Orders(s node.Snapshot, roots []node.CgroupPath, wants []plan.Want) (orders []plan.Want, slotless int) {
	o := orderer{snap: s, roots: roots}
	if !o.read(wants) {
		return nil, 0
	}
	o.orders = make([]plan.Want, 0, len(s.Workloads)+len(o.kept)+1)
	o.cap()
	o.slots()
	for i := range s.Workloads {
		w := &s.Workloads[i]
		order, reason := o.orderOf(i, w)
		o.want(w.Cgroup, order, reason, w.Class == node.BE)
	}
	for _, p := range o.kept {
		o.want(p, node.SchedulerGroup{Class: node.SchedulerBE}, "it holds only BE: threads outside the cgroups of its workloads are BE, too", true)
	}
	o.dropExcess()
	o.takeBack()
	return o.orders, o.slotless
}

// An orderer computes the orders of one tick.
type orderer struct {
	snap  node.Snapshot
	roots []node.CgroupPath

	scheduler node.Scheduler
	kept      []node.CgroupPath // cgroups whose threads belong in the BE scheduler
	limits    map[node.Knob]*plan.Want
	class     map[node.CgroupPath]node.Class // of the workloads in each cgroup
	out       map[node.CgroupPath]string     // cgroups whose threads stay out of the BE scheduler, with the reason

	in       []bool                  // by workload: its threads are in the BE scheduler
	at       map[node.CgroupPath]int // number of BE workloads in the BE scheduler, by contention root
	most     unit.MilliCPU           // the cap for all work in the BE scheduler together; 0: no limit
	slot     []int                   // by workload; 0: the shared slot
	slotless int

	orders []plan.Want
	said   map[node.CgroupPath]bool
}

// read takes the values that the orderer needs from the other wants. It reports
// whether these wants load the scheduler.
func (o *orderer) read(wants []plan.Want) bool {
	limits := 0
	for i := range wants {
		switch w := &wants[i]; w.Knob.File {
		case node.FileCPUMax, node.FileCPUWeight:
			limits++
		case node.FileScheduler:
			if v, is := w.Value.(node.Scheduler); is && v.Loaded {
				o.scheduler = v
			}
		}
	}
	if !o.scheduler.Loaded {
		return false
	}
	o.limits = make(map[node.Knob]*plan.Want, limits)
	for i := range wants {
		switch w := &wants[i]; w.Knob.File {
		case node.FileCPUMax, node.FileCPUWeight:
			o.limits[w.Knob] = w
		case node.FilePolicy:
			if w.Value == node.Value(node.ThreadsBE) {
				o.kept = append(o.kept, w.Knob.Cgroup)
			}
		}
	}
	o.class = make(map[node.CgroupPath]node.Class, len(o.snap.Workloads))
	o.said = make(map[node.CgroupPath]bool, len(o.snap.Workloads))
	o.out = map[node.CgroupPath]string{}
	for i := range o.snap.Workloads {
		w := &o.snap.Workloads[i]
		if c, twice := o.class[w.Cgroup]; !twice || c == node.BE {
			o.class[w.Cgroup] = w.Class
		}
		if w.Class != node.BE {
			continue
		}
		run := node.Knob{Cgroup: w.Cgroup, File: node.FileRun}
		_, ours := o.snap.Knobs.Before[run]
		switch {
		case w.Ending != "":
			o.out[w.Cgroup] = "it is about to end"
		case ours && o.snap.Knobs.Now[run] == node.Value(node.Frozen):
			o.out[w.Cgroup] = "it is frozen"
		}
	}
	o.in, o.at = make([]bool, len(o.snap.Workloads)), map[node.CgroupPath]int{}
	for i := range o.snap.Workloads {
		w := &o.snap.Workloads[i]
		if o.in[i] = w.Class == node.BE && o.schedules(w.Cgroup); o.in[i] {
			o.at[o.root(i)]++
		}
	}
	return true
}

// schedules reports whether the threads of a cgroup belong in the BE scheduler.
func (o *orderer) schedules(p node.CgroupPath) bool {
	kept := false
	for ; p != ""; p = p.Parent() {
		if c, is := o.class[p]; is && c != node.BE {
			break
		}
		if _, out := o.out[p]; out {
			return false
		}
		kept = kept || slices.Contains(o.kept, p)
	}
	return kept
}

// root returns the contention root of a BE workload.
func (o *orderer) root(i int) node.CgroupPath {
	w := &o.snap.Workloads[i]
	return cmp.Or(o.roots[i], w.ContentionRoot, w.Cgroup)
}

// futureValue returns the value that a knob will have when all wants are
// written. It returns nil if that value is unknown.
func (o *orderer) futureValue(k node.Knob) node.Value {
	switch w := o.limits[k]; {
	case w == nil:
	case w.Intent == plan.Set:
		return w.Value.Round(o.snap.Knobs.Kernel)
	case w.Intent == plan.Release:
		if before, touched := o.snap.Knobs.Before[k]; touched {
			return before
		}
	}
	return o.snap.Knobs.Now[k]
}

// quota returns the cpu.max of a cgroup, or 0 if there is no limit. If cpu.max
// cannot be read, known is false, and the limit in the present order must stay.
func (o *orderer) quota(p node.CgroupPath) (most unit.MilliCPU, known bool) {
	v, known := o.futureValue(node.Knob{Cgroup: p, File: node.FileCPUMax}).(node.CPUMax)
	if !known || v.Quota == node.NoQuota || v.Period <= 0 {
		return 0, known
	}
	return max(unit.MilliCPU(int64(v.Quota)*int64(unit.CPUs(1))/int64(v.Period)), 1), true
}

// cap limits all threads of the BE scheduler to the sum of the quotas of the
// contention roots. If one root has no quota, there is no limit.
func (o *orderer) cap() {
	k := node.Knob{File: node.FileSchedulerCap}
	reason := "the sum of cpu.max of the contention roots of BE"
	for _, m := range sortedKeys(o.at) {
		most, known := o.quota(m)
		if !known {
			now, _ := o.snap.Knobs.Now[k].(node.SchedulerCap)
			o.most = now.Most
			o.add(plan.Want{Intent: plan.Abstain, Knob: k, Reason: fmt.Sprintf("cpu.max of %s cannot be read: the cap stays", m), BE: true})
			return
		}
		if most == 0 {
			o.most, reason = 0, fmt.Sprintf("%s has no cpu.max: all BE together has no limit", m)
			break
		}
		o.most += most
	}
	if len(o.at) == 0 {
		reason = "no BE workload is in the BE scheduler"
	}
	o.add(plan.Want{Intent: plan.Set, Knob: k, Value: node.SchedulerCap{Most: o.most}, Reason: reason, BE: true})
}

// slots gives each workload in the BE scheduler a slot: its present slot or, if
// it has none, the first free one.
func (o *orderer) slots() {
	o.slot = make([]int, len(o.snap.Workloads))
	var taken [node.SchedulerSlots]bool
	has := func(p node.CgroupPath) int {
		now, _ := o.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileSchedulerGroup}].(node.SchedulerGroup)
		if now.Slot < 0 || now.Slot >= node.SchedulerSlots {
			return 0
		}
		return now.Slot
	}
	for i := range o.snap.Workloads {
		if slot := has(o.snap.Workloads[i].Cgroup); o.in[i] && slot > 0 && !taken[slot] {
			o.slot[i], taken[slot] = slot, true
		}
	}
	next := 1
	for i := range o.snap.Workloads {
		if !o.in[i] || o.slot[i] > 0 {
			continue
		}
		for next < node.SchedulerSlots && taken[next] {
			next++
		}
		if next == node.SchedulerSlots {
			o.slotless++
			continue
		}
		o.slot[i], taken[next] = next, true
	}
}

// orderOf returns the order for the i-th workload, and its reason.
func (o *orderer) orderOf(i int, w *node.Workload) (node.SchedulerGroup, string) {
	if w.Class != node.BE {
		return o.otherOrder(w)
	}
	v := node.SchedulerGroup{Class: node.SchedulerNormal}
	if !o.in[i] {
		if why, out := o.out[w.Cgroup]; out {
			return v, "BE outside of the BE scheduler: " + why
		}
		return v, "BE outside of the BE scheduler: no known cgroup holds only BE"
	}
	v = node.SchedulerGroup{Class: node.SchedulerBE}
	if o.slot[i] == 0 {
		return v, fmt.Sprintf("all %d slots are taken: it has no weight and no quota of its own", node.SchedulerSlots-1)
	}
	v.Slot, v.Weight = o.slot[i], node.DefaultSchedulerWeight
	if weight, is := o.futureValue(node.Knob{Cgroup: w.Cgroup, File: node.FileCPUWeight}).(node.CPUWeight); is && !weight.Idle {
		v.Weight = min(max(int(weight.Weight.V2()), 1), node.MaxSchedulerWeight)
	}
	reason := "in the BE scheduler, which applies its cpu.weight and cpu.max"
	most, known := o.quota(w.Cgroup)
	m := o.root(i)
	all, allKnown := o.quota(m)
	if !known || !allKnown && o.most == 0 {
		now, _ := o.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileSchedulerGroup}].(node.SchedulerGroup)
		v.Quota = now.Quota
		return v, "in the BE scheduler; a cpu.max cannot be read: the quota stays"
	}
	v.Quota = most
	if share := max(all/unit.MilliCPU(o.at[m]), 1); o.most == 0 && all > 0 && (most == 0 || share < most) {
		v.Quota = share
		reason = fmt.Sprintf("in the BE scheduler, which applies its cpu.weight, and its part of the %v of %s", all, m)
	}
	return v, reason
}

// otherOrder returns the order for a workload of a class other than BE.
func (o *orderer) otherOrder(w *node.Workload) (node.SchedulerGroup, string) {
	asked, is := w.Overrides.Identity.Value()
	who := string(w.Class) + " work"
	if is {
		who = fmt.Sprintf("its owner asks for the identity %v", asked)
	}
	expels := o.scheduler.Expels(w.Class)
	if is {
		expels = o.scheduler.Siblings && w.Class.Sensitive() && asked >= node.IdentityExpels
	}
	switch {
	case is && asked == node.IdentityNone, !expels && !w.Class.Sensitive():
		return node.SchedulerGroup{Class: node.SchedulerNormal}, who + ": BE runs beside it"
	case expels:
		return node.SchedulerGroup{Class: node.SchedulerLSX}, who + ": BE keeps off its CPUs and their siblings"
	}
	return node.SchedulerGroup{Class: node.SchedulerLS}, who + ": BE keeps off its CPUs, and runs beside them"
}

// want adds an order for a cgroup, unless the cgroup already has one.
func (o *orderer) want(p node.CgroupPath, v node.SchedulerGroup, reason string, be bool) {
	if o.said[p] || p == "" {
		return
	}
	o.said[p] = true
	o.add(plan.Want{Intent: plan.Set, Knob: node.Knob{Cgroup: p, File: node.FileSchedulerGroup}, Value: v, Reason: reason, BE: be})
}

func (o *orderer) add(w plan.Want) {
	w.Owner = plan.OwnerOrders
	o.orders = append(o.orders, w)
}

// dropExcess drops orders if there are more than the scheduler has room for. It
// keeps the orders for the most protected classes.
func (o *orderer) dropExcess() {
	const room = node.SchedulerGroups
	if len(o.said) <= room {
		return
	}
	rank := func(w plan.Want) int {
		v, is := w.Value.(node.SchedulerGroup)
		if !is {
			return -1
		}
		return slices.Index(node.SchedulerClasses, v.Class)
	}
	slices.SortStableFunc(o.orders, func(a, b plan.Want) int { return cmp.Compare(rank(a), rank(b)) })
	for i := range o.orders[1+room:] {
		w := &o.orders[1+room+i]
		w.Intent, w.Value = plan.Abstain, nil
		if now := o.snap.Knobs.Now[w.Knob]; now != nil && now != node.Value(node.SchedulerGroup{}) {
			w.Intent, w.Value = plan.Set, node.SchedulerGroup{}
		}
		w.Reason = fmt.Sprintf("the BE scheduler has room for %d cgroups", room)
	}
}

// takeBack cancels the orders of cgroups that get no order in this tick.
func (o *orderer) takeBack() {
	var left []node.Knob
	for k, v := range o.snap.Knobs.Now {
		if k.File == node.FileSchedulerGroup && !o.said[k.Cgroup] && v != node.Value(node.SchedulerGroup{}) {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, node.Knob.Compare)
	for _, k := range left {
		o.add(plan.Want{Intent: plan.Set, Knob: k, Value: node.SchedulerGroup{}, Reason: "no workload is there any more", BE: true})
	}
}

// sortedKeys returns the keys of a map in ascending order.
func sortedKeys(m map[node.CgroupPath]int) []node.CgroupPath {
	keys := make([]node.CgroupPath, 0, len(m))
	for p := range m {
		keys = append(keys, p)
	}
	slices.Sort(keys)
	return keys
}
