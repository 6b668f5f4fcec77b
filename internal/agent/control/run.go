package control

import "tenon.sh/tenon/internal/model/node"

// stoppedBy returns Frozen or Ended if a workload is frozen or has ended. It
// returns "" if the workload runs, or if its state is unknown.
func stoppedBy(k node.Knobs, w node.Workload) node.Run {
	v, _ := k.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}].(node.Run)
	if v == node.Running {
		return ""
	}
	return v
}

// Named returns the name of a workload, with its state if it is frozen or has ended.
func (w Workload) Named() string {
	if w.Run == "" {
		return string(w.ID)
	}
	return string(w.ID) + " (" + w.Run.String() + ")"
}
