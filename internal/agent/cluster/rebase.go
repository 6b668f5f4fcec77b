package cluster

import (
	"time"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// resizeDelay is the maximum time for which a cgroup has its old value after a
// resize, because the kubelet writes the new value with a delay.
const resizeDelay = 2 * time.Minute

// A resize holds the amounts of a pod before a resize, and the time at which
// Tenon noticed the resize.
type resize struct {
	was kube.Amounts
	at  time.Time
}

// addResized adds the pods whose amounts differ between before and now to the
// recent resizes. It drops resizes that are older than resizeDelay.
func addResized(recent map[node.CgroupPath]resize, before, now map[node.CgroupPath]kube.Amounts, at time.Time) map[node.CgroupPath]resize {
	next := map[node.CgroupPath]resize{}
	for p, r := range recent {
		if at.Sub(r.at) < resizeDelay {
			next[p] = r
		}
	}
	for p, is := range now {
		if was, had := before[p]; had && was != is {
			next[p] = resize{was, at}
		}
	}
	return next
}

// rebase returns a function that corrects original values in the journal after a
// resize of a pod. A release then restores what the kubelet would write now. The
// function returns nil for values that need no change: values that the kubelet did
// not enforce, and quotas if the kubelet's quotas are off.
//
// before holds the amounts of the pods when the journal was last correct. But
// Tenon may have journaled a knob after the resize and before the kubelet wrote
// the new value. Then the journaled value matches the old amounts in recent.
func rebase(before, now map[node.CgroupPath]kube.Amounts, recent map[node.CgroupPath]resize, noQuotas bool) func(node.Knob, node.Value) node.Value {
	difference := differs(before, now, noQuotas)
	return func(k node.Knob, v node.Value) node.Value {
		if next := difference(k, v); next != nil {
			return next
		}
		r, is := recent[k.Cgroup]
		if !is || !isKubeletLimit(v, r.was) {
			return nil
		}
		return differs(map[node.CgroupPath]kube.Amounts{k.Cgroup: r.was}, now, noQuotas)(k, v)
	}
}

// isKubeletLimit reports whether v is the limit that the kubelet writes for
// these amounts.
func isKubeletLimit(v node.Value, of kube.Amounts) bool {
	switch v := v.(type) {
	case node.CPUMax:
		return of.CPULimit.Known() && v.Quota == facts.QuotaOf(of.CPULimit, v.Period)
	case node.Memory:
		return of.MemoryLimit.Known() && v.Max == of.MemoryLimit.Or(0)
	}
	return false
}

func differs(before, now map[node.CgroupPath]kube.Amounts, noQuotas bool) func(node.Knob, node.Value) node.Value {
	return func(k node.Knob, v node.Value) node.Value {
		was, had := before[k.Cgroup]
		is, has := now[k.Cgroup]
		if !had || !has || was == is {
			return nil
		}
		switch v := v.(type) {
		case node.CPUMax:
			if !noQuotas && was.CPULimit != is.CPULimit && (v.Quota != node.NoQuota || !was.CPULimit.Known()) {
				v.Quota = facts.QuotaOf(is.CPULimit, v.Period)
				v.Burst = min(v.Burst, v.Quota)
				return v
			}
		case node.CPUWeight:
			if was.CPURequest != is.CPURequest && !v.Idle {
				v.Weight = kube.Weight(is.CPURequest.Or(0))
				return v
			}
		case node.Memory:
			if was.MemoryLimit != is.MemoryLimit && (v.Max != unit.MaxBytes || !was.MemoryLimit.Known()) {
				v.Max = is.MemoryLimit.Or(unit.MaxBytes)
				return v
			}
		}
		return nil
	}
}
