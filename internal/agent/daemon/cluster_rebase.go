package daemon

import (
	"time"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/limit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// resizing is for how long after a resize is known a value may still be that from
// before it: the kubelet writes it when it gets to it.
const resizing = 2 * time.Minute

// A resize is what the owner of a pod asked for before, and when that was found to
// have changed.
type resize struct {
	was kube.Amounts
	at  time.Time
}

// resized adds what has changed between two looks to the resizes of the last time,
// and drops those that are long ago.
func resized(recent map[node.CgroupPath]resize, before, now map[node.CgroupPath]kube.Amounts, at time.Time) map[node.CgroupPath]resize {
	next := map[node.CgroupPath]resize{}
	for p, r := range recent {
		if at.Sub(r.at) < resizing {
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

// rebase sees to it that a release gives back what the kubelet would have
// written by now, and not what stood there before Tenon: a pod may have been
// resized since. What the kubelet did not enforce at first it does not enforce
// after, nor any quota at all where it has them switched off; before is what the
// owners of pods asked for when the journal was right. A knob that was touched
// first between the resize and the kubelet's own write is found by recent: it was
// then exactly as the pod was before the resize.
func rebase(before, now map[node.CgroupPath]kube.Amounts, recent map[node.CgroupPath]resize, noQuotas bool) func(node.Knob, node.Value) node.Value {
	difference := differs(before, now, noQuotas)
	return func(k node.Knob, v node.Value) node.Value {
		if next := difference(k, v); next != nil {
			return next
		}
		r, is := recent[k.Cgroup]
		if !is || !stands(v, r.was) {
			return nil
		}
		return differs(map[node.CgroupPath]kube.Amounts{k.Cgroup: r.was}, now, noQuotas)(k, v)
	}
}

// stands reports whether a limit is exactly what the kubelet makes of amounts.
func stands(v node.Value, of kube.Amounts) bool {
	switch v := v.(type) {
	case node.CPUMax:
		return of.CPULimit.Known() && v.Quota == limit.Quota(of.CPULimit, v.Period)
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
				v.Quota = limit.Quota(is.CPULimit, v.Period)
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
