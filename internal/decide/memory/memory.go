// Package memory decides the memory protection and limits of each workload: how
// much memory the kernel must not reclaim, when the kernel throttles the
// workload, and what its limit is.
package memory

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Owned lists the knobs that this package decides.
var Owned = []node.File{node.FileMemory}

// Config holds the key memoryQOS of resource-qos-config.
type Config struct {
	// Classes holds the shares for each workload of a class. A class that is
	// absent has no shares.
	Classes map[node.Class]Shares `json:"classes,omitempty"`
	// Off holds shares that the configuration sets for a class but does not
	// enable. They apply only to workloads of the class whose overrides enable
	// them (node.MemoryOverride.Enabled).
	Off map[node.Class]Shares `json:"off,omitempty"`
	// ProtectedExternally says that the kubelet writes memory.min and memory.low of pods
	// by their requests. Then Decide protects no memory of pods of services. Best-effort
	// pods request no memory of the kubelet, and keep what the configuration gives them.
	ProtectedExternally bool `json:"protected_externally,omitempty"`
}

// KubeletProtects says why Decide protects no memory of a service.
const KubeletProtects = "the kubelet protects the memory of pods here (memoryReservationPolicy: TieredReservation)"

// Files lists the knobs that Decide may set for these workloads.
func (c Config) Files(workloads []node.Workload) []node.File {
	limited := func(w node.Workload) bool {
		return w.MemoryLimit.Known() && !w.MemoryManagedExternally || w.Overrides.Memory != node.MemoryOverride{}
	}
	if len(c.Classes) == 0 && !slices.ContainsFunc(workloads, limited) {
		return nil
	}
	return Owned
}

// Shares says how much of a workload's memory the kernel protects, and at which
// memory usage it throttles the workload. Each value is 0 to 100. A value of 0
// sets nothing.
type Shares struct {
	// MinPercent is the part of the request that the kernel never reclaims
	// (memory.min).
	MinPercent unit.Percent `json:"minLimitPercent"`
	// LowPercent is the part of the request that the kernel reclaims last
	// (memory.low). memory.low is at least memory.min.
	LowPercent unit.Percent `json:"lowLimitPercent"`
	// The kernel throttles a workload (memory.high) that uses more than its
	// request plus ThrottlingPercent of the range from request to limit. If
	// there is no limit, the memory of the node counts as the limit.
	ThrottlingPercent unit.Percent `json:"throttlingPercent"`
}

// Decide returns the wanted memory (min, low, high and max) of the workloads'
// cgroups and of their ancestors. The kernel protects a cgroup only as far as
// each ancestor is protected (Documentation/admin-guide/cgroup-v2.rst,
// "memory.low"). An ancestor therefore gets the sum of the protection below it,
// or as much as the protected memory below it needs if the kernel would protect
// other work with the rest (see follower). Decide never lowers the protection,
// and never raises memory.high, beyond the values before Tenon's first write.
func Decide(c Config, s node.Snapshot) []plan.Want {
	refusal := refusalOfProtection(s)
	holders := holdersOf(c, s)
	asks := make([]memoryAsk, len(holders))
	leaves := map[node.CgroupPath]protection{}
	for i := range holders {
		h := &holders[i]
		asks[i] = askOf(h, &s).refuseIf(refusal)
		if asks[i].protection != (protection{}) {
			leaves[h.Cgroup] = asks[i].protection
		}
	}
	follow := followerOf(&s, leaves)
	kubelets := c.kubeletsAbove(&s)
	needs, paths := protectAbove(leaves, follow)
	own := make(map[node.CgroupPath]bool, min(len(paths), len(holders)))
	wants := make([]plan.Want, 0, len(holders)+len(paths))
	for i := range holders {
		if len(paths) > 0 {
			own[holders[i].Cgroup] = true
		}
		wants = append(wants, asks[i].want(&holders[i], &s, needs[holders[i].Cgroup]))
	}
	for _, p := range paths {
		if !own[p] {
			wants = append(wants, protectionWant(p, s, needs[p], follow.follows(p), kubelets[p]))
		}
	}
	return wants
}

// refusalOfProtection returns the reason why this node cannot write memory.min,
// low and high, or "" if it can.
func refusalOfProtection(s node.Snapshot) string {
	switch a := s.Capabilities[node.FeatureMemoryProtect]; {
	case s.Knobs.Kernel.CgroupVersion == 1:
		return "cgroup v1 has no memory.min, low and high"
	case a.Verdict == node.Yes:
		return ""
	case a.Why != "":
		return "no memory.min, low and high: " + a.Why
	}
	return "no memory.min, low and high here"
}

// A holder is a workload or one of its containers.
type holder struct {
	node.Container
	Shares
	kept, be bool
	// kubelets says that the kubelet protects the memory in place of Tenon, and left that
	// the configuration asks Tenon for it.
	kubelets, left bool
}

// holdersOf lists the workloads and their containers with their shares. If a
// workload has containers, Tenon throttles each container by its own request,
// and does not throttle the workload as a whole.
func holdersOf(c Config, s node.Snapshot) []holder {
	all := make([]holder, 0, len(s.Workloads))
	for i := range s.Workloads {
		w := &s.Workloads[i]
		shares, on := c.Classes[w.Class]
		if !on && w.Overrides.Memory.Enabled {
			shares = c.Off[w.Class]
		}
		shares = shares.override(w.Overrides.Memory)
		kubelets := c.ProtectedExternally && w.Pod && w.Class.Sensitive()
		left := kubelets && (shares.MinPercent > 0 || shares.LowPercent > 0)
		if left {
			shares.MinPercent, shares.LowPercent = 0, 0
		}
		whole := holder{
			Container: node.Container{Name: string(w.ID), Cgroup: w.Cgroup, MemoryRequest: w.MemoryRequest, MemoryLimit: w.MemoryLimit},
			Shares:    shares, kept: w.MemoryManagedExternally, be: w.Class == node.BE, kubelets: kubelets, left: left,
		}
		if len(w.Containers) > 0 {
			whole.ThrottlingPercent = 0
		}
		all = append(all, whole)
		for _, p := range w.Containers {
			p.Name = facts.PartName(w.ID, p.Name)
			all = append(all, holder{p, shares, w.MemoryManagedExternally, w.Class == node.BE, kubelets, left})
		}
	}
	return all
}

// override returns the shares c after the overrides of one workload.
func (c Shares) override(ask node.MemoryOverride) Shares {
	if ask.OwnOnly {
		c = Shares{}
	}
	return Shares{ask.MinPercent.Or(c.MinPercent), ask.LowPercent.Or(c.LowPercent), ask.ThrottlingPercent.Or(c.ThrottlingPercent)}
}

// A memoryAsk is the memory protection and throttling that the shares of a
// holder demand.
type memoryAsk struct {
	protection
	high    unit.Bytes // 0: there is no value for high
	reasons []string
	missing []string // reasons why requested values cannot be set
}

func askOf(w *holder, s *node.Snapshot) memoryAsk {
	var a memoryAsk
	c := &w.Shares
	request, known := w.MemoryRequest.Value()
	switch {
	case w.left:
		a.missing = append(a.missing, "no protection: "+KubeletProtects)
	case c.MinPercent <= 0 && c.LowPercent <= 0:
	case !known:
		a.missing = append(a.missing, "no protection: it has no memory request")
	default:
		a.min = request.Percent(c.MinPercent)
		a.low = max(a.min, request.Percent(c.LowPercent))
		a.reasons = append(a.reasons, w.Name+" requests "+request.String()+" bytes: "+c.MinPercent.String()+" are its min, "+c.LowPercent.String()+" its low")
	}
	if c.ThrottlingPercent <= 0 {
		return a
	}
	limit := w.MemoryLimit
	if limit.Or(unit.MaxBytes) == unit.MaxBytes {
		limit = s.MemoryTotal
	}
	most, known := limit.Value()
	if !known {
		a.missing = append(a.missing, "no memory.high: the memory of the node is unknown")
		return a
	}
	if room := most - request; room > 0 {
		page := max(s.Knobs.Kernel.PageSize, 1)
		a.high = (request + room.Percent(c.ThrottlingPercent)) / page * page
	}
	if a.high > 0 {
		a.reasons = append(a.reasons, w.Name+" is throttled above "+a.high.String()+" bytes")
	}
	return a
}

// refuseIf removes the values of a if this node cannot write them. refusal is
// the reason, or "" if the node can.
func (a memoryAsk) refuseIf(refusal string) memoryAsk {
	if refusal == "" || (a.protection == protection{} && a.high == 0) {
		return a
	}
	return memoryAsk{missing: append(a.missing, refusal)}
}

// want returns the want for the cgroup of w. need is the protection for w and
// all its descendants. If another component manages the limit and has changed
// it since Tenon's first write, the want takes over the new limit.
func (a *memoryAsk) want(w *holder, s *node.Snapshot, need protection) plan.Want {
	knob := node.Knob{Cgroup: w.Cgroup, File: node.FileMemory}
	v, known := facts.Original(s.Knobs, knob).(node.Memory)
	if !known {
		v = node.NoMemoryLimit
	}
	reasons := a.reasons
	_, touched := s.Knobs.Before[knob]
	if w.kubelets && touched && differs(s.Knobs.Now[knob], v) {
		return plan.Want{Intent: plan.Release, Knob: knob, Owner: plan.OwnerMemory, Reason: releasedFirst, BE: w.be}
	}
	switch b, asked := w.MemoryLimit.Value(); {
	case !asked:
	case !w.kept:
		v.Max, _ = facts.MemoryLimit(&node.Workload{}, &w.Container)
		reasons = append([]string{fmt.Sprintf("%s has a memory limit of %v bytes", w.Name, b)}, reasons...)
	case v.Max != unit.MaxBytes && touched && b != v.Max:
		v.Max = b
		reasons = append([]string{fmt.Sprintf("the limit of %s is %v bytes now", w.Name, b)}, reasons...)
	}
	if a.high > 0 {
		v.High = min(v.High, a.high)
	}
	if need != a.protection {
		reasons = append(reasons, "its descendants are protected")
	}
	want := plan.Want{
		Intent: plan.Set, Knob: knob, Owner: plan.OwnerMemory,
		Reason: strings.Join(append(reasons, a.missing...), "; "), BE: w.be,
	}
	if len(reasons) > 0 {
		want.Value = need.protect(v)
		return want
	}
	switch {
	case len(a.missing) > 0 && !touched:
		want.Intent = plan.Abstain
	case len(a.missing) > 0:
		want.Intent = plan.Release
	default:
		want.Intent, want.Reason = plan.Release, "no memory protection or limit is set for it"
	}
	return want
}

// releasedFirst is the reason to release a knob whose protection Tenon has written, before
// anything else is written to it: the value before Tenon's first write may be an old one of
// the kubelet. A release keeps what the kubelet has written since, and so does what follows.
const releasedFirst = "the kubelet protects the memory of pods here, and may have written another value since Tenon's first write"

// differs reports whether the protection now is another one than before Tenon's first
// write. If it is, Tenon has written it: otherwise the value before is that of now.
func differs(now node.Value, before node.Memory) bool {
	m, read := now.(node.Memory)
	return read && (m.Min != before.Min || m.Low != before.Low)
}

// kubeletsAbove returns the ancestors of pods if the kubelet writes their protection, too.
func (c Config) kubeletsAbove(s *node.Snapshot) map[node.CgroupPath]bool {
	if !c.ProtectedExternally {
		return nil
	}
	above := map[node.CgroupPath]bool{}
	for i := range s.Workloads {
		if !s.Workloads[i].Pod {
			continue
		}
		for p := s.Workloads[i].Cgroup.Parent(); p != "" && !above[p]; p = p.Parent() {
			above[p] = true
		}
	}
	return above
}

// protectionWant returns the want for a cgroup that is only an ancestor of
// protected work. Its limits keep their present values, because the kubelet
// manages them. follows says that need follows the memory of that work. kubelets says
// that the kubelet writes the protection of this cgroup, too. Then Tenon only raises it:
// a value above the wanted one is either the kubelet's or an older one of Tenon, and only
// a release tells them apart.
func protectionWant(p node.CgroupPath, s node.Snapshot, need protection, follows, kubelets bool) plan.Want {
	knob := node.Knob{Cgroup: p, File: node.FileMemory}
	want := plan.Want{Intent: plan.Set, Knob: knob, Owner: plan.OwnerMemory, Reason: "protection of its descendants has an effect only as far as it is protected itself"}
	if follows {
		want.Reason += "; it follows their memory, because the kernel protects other work below it with what they leave"
	}
	v, known := facts.Original(s.Knobs, knob).(node.Memory)
	if !known {
		want.Intent, want.Reason = plan.Abstain, "its value before Tenon's first write is unknown"
		return want
	}
	v = need.protect(v)
	if now, read := s.Knobs.Now[knob].(node.Memory); read {
		v.High, v.Max = now.High, now.Max
		if _, touched := s.Knobs.Before[knob]; kubelets && touched && (now.Min > v.Min || now.Low > v.Low) {
			want.Intent, want.Reason = plan.Release, releasedFirst
			return want
		}
	}
	want.Value = v
	return want
}

// A protection is the memory that the kernel never reclaims (min), and the
// memory that it reclaims last (low).
type protection struct{ min, low unit.Bytes }

// protect returns v with its protection raised to at least p.
func (p protection) protect(v node.Memory) node.Memory {
	v.Min, v.Low = max(v.Min, p.min), max(v.Low, p.low)
	return v
}

func (p protection) add(o protection) protection {
	return protection{addBytes(p.min, o.min), addBytes(p.low, o.low)}
}

// protectAbove returns the protection that each leaf and each of its ancestors
// needs, so that the protection of the leaves has an effect. A cgroup needs its
// own protection or the sum over its children, whichever is larger. An ancestor
// that follows needs less. The paths are sorted.
func protectAbove(leaves map[node.CgroupPath]protection, f *follower) (map[node.CgroupPath]protection, []node.CgroupPath) {
	needs := map[node.CgroupPath]protection{}
	var paths []node.CgroupPath
	for leaf := range leaves {
		for p := leaf; p != ""; p = p.Parent() {
			if _, seen := needs[p]; seen {
				break
			}
			needs[p] = leaves[p]
			paths = append(paths, p)
		}
	}
	// A path sorts before its descendants. A loop from the end therefore comes
	// to the children first.
	slices.Sort(paths)
	sums := make(map[node.CgroupPath]children, len(paths))
	for _, p := range slices.Backward(paths) {
		c := sums[p]
		if leaves[p] == (protection{}) && f.follows(p) {
			needs[p] = f.needOf(p, c)
			c.claims = needs[p]
		} else {
			all := protection{max(leaves[p].min, c.settings.min), max(leaves[p].low, c.settings.low)}
			needs[p] = all
			part := f.part(p, all)
			c = children{all, part, part}
		}
		sums[p.Parent()] = sums[p.Parent()].add(c)
	}
	return needs, paths
}

// addBytes adds without overflow. A sum beyond MaxBytes is MaxBytes.
func addBytes(a, b unit.Bytes) unit.Bytes {
	if a > unit.MaxBytes-b {
		return unit.MaxBytes
	}
	return a + b
}
