package outlook

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/table"
)

// jobsSection says what Jobs requested, where what they used is not known.
func (v View) jobsSection(s page.Section, j prospect.Jobs) page.Section {
	if j.Pods+j.Waiting+j.Running+j.Starting+j.Untimed == 0 {
		where := "these nodes"
		if v.Fleet.Nodes == 1 {
			where = "this node"
		}
		s.Text = "On " + where + ", in this time, no pod of a Job is known that could be batch work. Pods that were deleted are not seen."
		return s
	}
	s.Text = fmt.Sprintf("Pods of Jobs that run as services requested %s CPUs and %s of memory on average over this time, %s CPU-hours a day: %s.",
		cores(j.CPU), size(j.Memory), decimal(j.CPU.Cores()*24), table.Count(j.Pods, "pod"))
	if f := v.Fleet; f.CPU.Nodes > 0 {
		s.Items = append(s.Items, fitText(j, f))
	}
	if j.Running > 0 {
		used := "what they use is not known"
		if cpu, known := j.Used.Value(); known {
			used = "they use " + cores(cpu)
			if n := j.Unmeasured; n > 0 {
				used = fmt.Sprintf("the use of %d is not known, and that of the others is %s", n, cores(cpu))
			}
		}
		s.Items = append(s.Items, fmt.Sprintf("Now running: %s with %s CPUs requested; %s.", table.Count(j.Running, "pod"), cores(j.RunningCPU), used))
	}
	if j.Starting > 0 {
		s.Items = append(s.Items, fmt.Sprintf("On a node and not running yet: %s with %s CPUs requested.", table.Count(j.Starting, "pod"), cores(j.StartingCPU)))
	}
	if j.Waiting > 0 {
		s.Items = append(s.Items, fmt.Sprintf("Waiting for a node: %s with %s CPUs requested.", table.Count(j.Waiting, "pod"), cores(j.WaitingCPU)))
	}
	missing := "Pods that were deleted are missing, so Jobs may have requested more."
	if j.Untimed > 0 {
		missing += fmt.Sprintf(" Missing, too, are ended pods that do not say when: %d.", j.Untimed)
	}
	use := "What they used in this time is not known, and a request is not use, so no saving in nodes is counted."
	if hint := v.Hints[prospect.GapBatch]; hint != "" {
		use += " " + hint
	}
	s.Items = append(s.Items, missing, use)
	return s
}

// fitText says how much of what the Jobs requested would fit into the room, and which nodes
// these two are of.
func fitText(j prospect.Jobs, f prospect.Fleet) string {
	cpu, memory := f.CPU.All, f.Memory.All
	low, mean := cores(min(j.CPU, cpu.Low))+" CPUs", cores(min(j.CPU, cpu.Mean))+" CPUs"
	if f.Memory.Nodes > 0 {
		low, mean = low+" and "+size(min(j.Memory, memory.Low)), mean+" and "+size(min(j.Memory, memory.Mean))
	}
	text := "If they ran" + evenly(low, mean)
	// A Job may run on another node, so all count. The room of some nodes is in no sum.
	if f.CPU.Nodes < f.Nodes {
		text += fmt.Sprintf(" The room of CPUs is that of %d of the %d nodes, and the Jobs are those of all.", f.CPU.Nodes, f.Nodes)
	}
	if n := f.Memory.Nodes; n > 0 && n < f.Nodes {
		text += fmt.Sprintf(" The room of memory is that of %d of the %d.", n, f.Nodes)
	}
	return text
}
