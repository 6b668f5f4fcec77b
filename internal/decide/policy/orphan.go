package policy

import (
	"slices"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// orphans releases every knob that Tenon has changed and that no policy wants
// any more. The workload of such a knob may match no rule any more.
func orphans(l facts.Layout, s node.Snapshot, wants []plan.Want) []plan.Want {
	if len(s.Knobs.Before) == 0 {
		return nil
	}
	wanted := make(map[node.Knob]bool, min(len(wants), len(s.Knobs.Before)))
	for i := range wants {
		if _, touched := s.Knobs.Before[wants[i].Knob]; touched {
			wanted[wants[i].Knob] = true
		}
	}
	if len(wanted) == len(s.Knobs.Before) {
		return nil
	}
	var left []node.Knob
	for k := range s.Knobs.Before {
		if !wanted[k] {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, node.Knob.Compare)
	var released []plan.Want
	for _, k := range left {
		_, inBE := l.RootAbove(k.Cgroup)
		released = append(released, plan.Want{Intent: plan.Release, Knob: k, Owner: plan.OwnerPolicy, Reason: "no policy wants it any more", BE: inBE})
	}
	return released
}
