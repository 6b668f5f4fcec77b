package daemon

import (
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// logRun logs a step that freezes, thaws or ends best-effort work. It logs a
// warning, because the owner of the work must know of the step; other steps are
// logged at debug level. With a thaw as a warning, no log shows running work as
// frozen.
func (r *changeLogger) logRun(s plan.Step) {
	v, isRun := s.To.(node.Run)
	if !isRun {
		return
	}
	r.log.Warn("best-effort work is "+map[node.Run]string{
		node.Running: "let go on", node.Frozen: "frozen", node.AskedToEnd: "asked to end", node.Ended: "killed",
	}[v], "cgroup", s.Knob.Cgroup, "reason", s.Reason)
}

// addUndead adds to failing the workloads that should have ended but still run.
// It omits a workload while a want still tries to end it.
func (r *changeLogger) addUndead(wants []plan.Want, failing map[node.Knob]string) {
	if len(r.failing) == 0 {
		return
	}
	for _, w := range wants {
		if cause, fails := r.failing[w.Knob]; fails && w.Knob.File == node.FileRun && w.Intent == plan.Abstain {
			failing[w.Knob] = cause
		}
	}
}
