package lease

import (
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// A Bound is the widest value that a knob of best-effort work may have while no
// agent runs. A lease has at most one Bound for each knob.
type Bound struct {
	Knob node.Knob
	// Inode is the inode number of the cgroup's directory. A new cgroup with
	// the same name has another number, and the bound does not apply to it.
	Inode uint64
	Value node.Value
	// Reason is one short sentence for the step that writes the bound.
	Reason string
}

// Narrow returns the steps that bring the present knobs within the bounds, in
// the order of a plan. It never widens a knob. It returns no step for a knob
// that is within its bound, or whose value is unknown. If a value has several
// parts, it does not change the parts that are narrower than their bound.
func Narrow(now node.Knobs, bounds []Bound) []plan.Step {
	var wants []plan.Want
	for _, b := range bounds {
		has := now.Now[b.Knob]
		if has == nil || b.Value == nil {
			continue
		}
		if to := narrowTo(now.Kernel, has, b.Value); to.CompareWidth(has) < 0 {
			wants = append(wants, plan.Want{Intent: plan.Set, Knob: b.Knob, Value: to, Owner: plan.OwnerWatchdog, Reason: b.Reason, BE: true})
		}
	}
	return plan.Diff(now, wants)
}

// narrowTo returns the widest value that is within the bound and not wider than the
// present value (has). If there is none, it returns has.
func narrowTo(k node.Kernel, has, bound node.Value) node.Value {
	bound = bound.Round(k)
	switch h := has.(type) {
	case node.CPUMax:
		if b, ok := bound.(node.CPUMax); ok {
			b.Burst = min(b.Burst, h.Burst)
			return b
		}
	case node.CPUs:
		if b, ok := bound.(node.CPUs); ok {
			return commonCPUs(k, h, b)
		}
	case node.Memory:
		if b, ok := bound.(node.Memory); ok {
			return node.Memory{Min: min(h.Min, b.Min), Low: min(h.Low, b.Low), High: min(h.High, b.High), Max: min(h.Max, b.Max)}
		}
	}
	return bound
}

// commonCPUs returns the CPUs that are in both sets. On v2 an empty set means
// all CPUs of the parent. On v1 an empty set is the narrowest one, because no
// task may then enter the cgroup.
func commonCPUs(k node.Kernel, has, bound node.CPUs) node.CPUs {
	common := node.CPUs{Set: has.Set.Intersect(bound.Set)}
	switch {
	case has.Set.Empty() && k.CgroupVersion != 1:
		return bound
	case common.Set.Empty():
		return has
	}
	return common
}
