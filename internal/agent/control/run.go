package control

import "tenon.sh/tenon/internal/model/node"

// stoppedBy returns whether a workload is frozen or has ended; empty: it runs,
// or that is not known.
func stoppedBy(k node.Knobs, w node.Workload) node.Run {
	v, _ := k.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}].(node.Run)
	if v == node.Running {
		return ""
	}
	return v
}

// Named returns the name of a workload, with its state unless it runs.
func (w Workload) Named() string {
	if w.Run == "" {
		return string(w.ID)
	}
	return string(w.ID) + " (" + w.Run.String() + ")"
}
