package site

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// Pinned is the CPU QoS of a mode with an isolation mechanism; without one it
// selects the strongest that the node supports.
func Pinned(rung node.Rung) policy.CPUQOS {
	return policy.CPUQOS{Enable: true, Rung: rung}
}

// Carries returns whether this node supports an isolation mechanism, by the
// policy's rules.
func (s *Site) Carries(rung node.Rung) node.Answer {
	for _, r := range policy.Ladder(Pinned(""), s.Host.Capabilities(), s.isolation).Rungs {
		if r.Rung == rung {
			return node.Answer{Verdict: r.Can, Why: r.Why}
		}
	}
	return node.Answer{Verdict: node.No, Why: fmt.Sprintf("%q is no rung", rung)}
}

// attended are the mechanisms that need a running loop: for new threads, for a
// service that moves, or for the scheduler's heartbeat.
var attended = map[node.Rung]bool{node.RungSchedExt: true, node.RungCoreSched: true, node.RungSiblings: true}

// rungHere is the isolation mechanism that a policy selects on this node;
// empty: none.
func (s *Site) rungHere(c policy.CPUQOS) node.Rung {
	if !c.Enable {
		return ""
	}
	return policy.Ladder(c, s.Host.Capabilities(), s.isolation).Rung
}
