package control

import "tenon.sh/tenon/internal/model/node"

// stoppedBy is how a workload runs; empty: it runs, or that is not known.
func stoppedBy(k node.Knobs, w node.Workload) node.Run {
	v, _ := k.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}].(node.Run)
	if v == node.Running {
		return ""
	}
	return v
}

// Named is the name of a workload, after how it runs where it does not.
func (w Workload) Named() string {
	if w.Run == "" {
		return string(w.ID)
	}
	return string(w.ID) + " (" + w.Run.String() + ")"
}
