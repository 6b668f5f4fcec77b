package policy

import (
	"fmt"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
)

// limit owns cpu.max and memory of a workload's own cgroup, and sets what the
// workload's owner asked for. Where a workload's cgroup is itself the place at
// which best-effort work meets the others, cpu.max belongs to suppress.
func limit(s node.Snapshot, bounds []plan.Want) []plan.Want {
	var wants []plan.Want
	for _, w := range s.Workloads {
		if w.Class != node.BE || w.Cgroup != w.Meet {
			wants = append(wants, limitCPU(s, w, bounds))
		}
		wants = append(wants, limitMemory(s, w))
	}
	return wants
}

// limitCPU keeps a workload's quota within that of the cgroup above which
// suppress bounds: cgroup v1 refuses to lower a parent's quota below a
// child's (kernel/sched/core.c: tg_cfs_schedulable_down), so the child gives way
// first. Cgroup v2 takes the smaller of the two by itself.
func limitCPU(s node.Snapshot, w node.Workload, bounds []plan.Want) plan.Want {
	knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}
	want := plan.Want{Intent: plan.Release, Knob: knob, Owner: "limit", Reason: "no CPU limit was asked for", BE: w.Class == node.BE}
	if m, asked := w.CPULimit.Value(); asked {
		want.Intent, want.Value = plan.Set, node.Limit(m)
		want.Reason = fmt.Sprintf("%s asked for at most %v of CPU", w.ID, m)
	}
	bound, bounded := boundOf(w.Meet, bounds)
	if w.Class != node.BE || !bounded || s.Knobs.Kernel.CgroupVersion != 1 {
		return want
	}
	own, known := want.Value.(node.CPUMax)
	if !known {
		own, known = s.Knobs.Before[knob].(node.CPUMax)
	}
	if !known {
		own, known = s.Knobs.Now[knob].(node.CPUMax)
	}
	if known && own.Quota != node.NoQuota && bound.Narrower(own) < 0 {
		want.Intent, want.Value = plan.Set, bound
		want.Reason = fmt.Sprintf("cgroup v1: %s may have no more than %s above it", w.ID, w.Meet)
	}
	return want
}

// boundOf returns the quota that suppress wants for a meeting point.
func boundOf(meet node.CgroupPath, bounds []plan.Want) (node.CPUMax, bool) {
	for _, b := range bounds {
		if b.Knob == (node.Knob{Cgroup: meet, File: node.FileCPUMax}) && b.Intent == plan.Set {
			v, ok := b.Value.(node.CPUMax)
			return v, ok
		}
	}
	return node.CPUMax{}, false
}

func limitMemory(s node.Snapshot, w node.Workload) plan.Want {
	knob := node.Knob{Cgroup: w.Cgroup, File: node.FileMemory}
	want := plan.Want{Intent: plan.Release, Knob: knob, Owner: "limit", Reason: "no memory limit was asked for", BE: w.Class == node.BE}
	if b, asked := w.MemoryLimit.Value(); asked {
		v, known := s.Knobs.Now[knob].(node.Memory)
		if !known {
			v = node.NoMemoryLimit
		}
		v.Max = b
		want.Intent, want.Value = plan.Set, v
		want.Reason = fmt.Sprintf("%s asked for at most %v bytes of memory", w.ID, b)
	}
	return want
}
