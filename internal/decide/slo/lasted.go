package slo

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// Lasted says for how long each verdict about an objective was in force. Time without a
// verdict counts as well, so a service about which the node can hardly tell does not look
// like one that keeps its objective. No decision depends on it.
type Lasted struct {
	// Begun is the time of the first snapshot that this agent took with the objective.
	Begun     time.Time     `json:"begun,omitzero"`
	Kept      time.Duration `json:"kept_ns,omitempty"`
	Missed    time.Duration `json:"missed_ns,omitempty"`
	Undecided time.Duration `json:"undecided_ns,omitempty"`

	at time.Time      // of the last snapshot
	of node.Objective // the objective in it
}

// Total returns the time in which there was one of the verdicts.
func (l Lasted) Total() time.Duration { return l.Kept + l.Missed + l.Undecided }

// Follow returns how long each verdict has lasted up to a snapshot, given what was so up to
// the one before. judged has the verdicts after the snapshot. The time since the one before
// counts for these, because the window of a verdict lies in the past. It returns nil if no
// workload has an objective.
func Follow(before map[node.WorkloadID]Lasted, s node.Snapshot, judged map[node.WorkloadID]Judgement) map[node.WorkloadID]Lasted {
	if len(judged) == 0 {
		return nil
	}
	now := make(map[node.WorkloadID]Lasted, len(judged))
	for i := range s.Workloads {
		w := &s.Workloads[i]
		j, has := judged[w.ID]
		if !has {
			continue
		}
		l, known := before[w.ID]
		if !known || l.of != w.Objective { // the owner has stated it, or changed it
			l = Lasted{Begun: s.At, at: s.At, of: w.Objective}
		}
		passed := max(s.At.Sub(l.at), 0) // negative: the clock was set back
		switch j.Verdict {
		case Kept:
			l.Kept += passed
		case Missed:
			l.Missed += passed
		case Undecided:
			l.Undecided += passed
		}
		l.at = s.At
		now[w.ID] = l
	}
	return now
}
