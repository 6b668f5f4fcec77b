package daemon

import (
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// logRun logs a step that freezes, thaws or ends best-effort work as a warning,
// and not only at debug level like other steps: the owner of the work must know
// of it. A thaw is a warning, too, so that no log shows work as frozen that
// runs.
func (r *changeLogger) logRun(s plan.Step) {
	v, isRun := s.To.(node.Run)
	if !isRun {
		return
	}
	r.log.Warn("best-effort work is "+map[node.Run]string{
		node.Running: "let go on", node.Frozen: "frozen", node.AskedToEnd: "asked to end", node.Ended: "killed",
	}[v], "cgroup", s.Knob.Cgroup, "reason", s.Reason)
}

// addUndead adds to failing the workloads that should have ended and have not,
// while no want tries again to end them.
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
