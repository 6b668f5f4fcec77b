package policy

import (
	"fmt"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
)

// limit owns cpu.max and memory of a workload's own cgroup, and sets what the
// workload's owner asked for. Where a workload's cgroup is itself the place at
// which best-effort work meets the others, cpu.max belongs to suppress.
func limit(s node.Snapshot) []plan.Want {
	var wants []plan.Want
	for _, w := range s.Workloads {
		if w.Class != node.BE || w.Cgroup != w.Meet {
			want := plan.Want{Intent: plan.Release, Knob: node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax},
				Owner: "limit", Reason: "no CPU limit was asked for", BE: w.Class == node.BE}
			if m, asked := w.CPULimit.Value(); asked {
				want.Intent, want.Value = plan.Set, node.Limit(m)
				want.Reason = fmt.Sprintf("%s asked for at most %v of CPU", w.ID, m)
			}
			wants = append(wants, want)
		}
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileMemory}
		want := plan.Want{Intent: plan.Release, Knob: knob,
			Owner: "limit", Reason: "no memory limit was asked for", BE: w.Class == node.BE}
		if b, asked := w.MemoryLimit.Value(); asked {
			v, known := s.Knobs.Now[knob].(node.Memory)
			if !known {
				v = node.NoMemoryLimit
			}
			v.Max = b
			want.Intent, want.Value = plan.Set, v
			want.Reason = fmt.Sprintf("%s asked for at most %v bytes of memory", w.ID, b)
		}
		wants = append(wants, want)
	}
	return wants
}
