package site

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// Pinned is what CPU QoS is asked in a mode with a rung; without one it takes
// the strongest that the node has.
func Pinned(rung node.Rung) policy.CPUQOS {
	return policy.CPUQOS{Enable: true, Rung: rung}
}

// Carries says whether this node can carry a rung, as the policy sees it.
func (s *Site) Carries(rung node.Rung) node.Answer {
	for _, r := range policy.Ladder(Pinned(""), s.Host.Capabilities(), s.isolation).Rungs {
		if r.Rung == rung {
			return node.Answer{Verdict: r.Can, Why: r.Why}
		}
	}
	return node.Answer{Verdict: node.No, Why: fmt.Sprintf("%q is no rung", rung)}
}

// attended are the rungs that need the loop to go on: threads come and go, the
// service moves, the scheduler wants to be told that its owner lives.
var attended = map[node.Rung]bool{node.RungSchedExt: true, node.RungCoreSched: true, node.RungSiblings: true}

// rungHere is the rung that a policy will take on this node; empty: none.
func (s *Site) rungHere(c policy.CPUQOS) node.Rung {
	if !c.Enable {
		return ""
	}
	return policy.Ladder(c, s.Host.Capabilities(), s.isolation).Rung
}
