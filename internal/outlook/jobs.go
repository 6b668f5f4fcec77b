package outlook

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/table"
)

// jobsSection says what Jobs requested, where what they used is not known.
func (v View) jobsSection(s page.Section, j prospect.Jobs) page.Section {
	if j.Pods+j.Waiting+j.Running+j.Untimed == 0 {
		where := "these nodes"
		if v.Fleet.Nodes == 1 {
			where = "this node"
		}
		s.Text = "On " + where + ", in this time, no pod of a Job is known that could be batch work. Pods that were deleted are not seen."
		return s
	}
	s.Text = fmt.Sprintf("Pods of Jobs that run as services requested %s CPUs and %s of memory on average over this time, %s CPU-hours a day: %s.",
		cores(j.CPU), size(j.Memory), decimal(j.CPU.Cores()*24), table.Count(j.Pods, "pod"))
	if cpu, memory := v.Fleet.CPU.All, v.Fleet.Memory.All; v.Fleet.CPU.Nodes > 0 && v.Fleet.Memory.Nodes > 0 {
		s.Items = append(s.Items, fmt.Sprintf("Of it, %s CPUs and %s fit into the room of 95%% of the time, and %s CPUs and %s into the mean room.",
			cores(min(j.CPU, cpu.Low)), size(min(j.Memory, memory.Low)), cores(min(j.CPU, cpu.Mean)), size(min(j.Memory, memory.Mean))))
	} else if v.Fleet.CPU.Nodes > 0 {
		s.Items = append(s.Items, fmt.Sprintf("Of it, %s CPUs fit into the room of 95%% of the time, and %s into the mean room.", cores(min(j.CPU, cpu.Low)), cores(min(j.CPU, cpu.Mean))))
	}
	if j.Running > 0 {
		used := "what they use is not known"
		if cpu, known := j.Used.Value(); known {
			used = "they use " + cores(cpu)
		}
		s.Items = append(s.Items, fmt.Sprintf("Now running: %s with %s CPUs requested; %s.", table.Count(j.Running, "pod"), cores(j.RunningCPU), used))
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
