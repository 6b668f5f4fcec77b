package control

import "tenon.sh/tenon/internal/model/node"

// stoppedBy returns Frozen or Ended if the workload does not run. It returns ""
// if the workload runs or if this is not known.
func stoppedBy(k node.Knobs, w node.Workload) node.Run {
	v, _ := k.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}].(node.Run)
	if v == node.Running {
		return ""
	}
	return v
}

// Named returns the name of a workload. It adds the state if the workload is frozen or has ended.
func (w Workload) Named() string {
	if w.Run == "" {
		return string(w.ID)
	}
	return string(w.ID) + " (" + w.Run.String() + ")"
}
