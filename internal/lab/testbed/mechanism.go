package testbed

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
)

// Pinned returns the CPU QoS strategy that uses the given isolation mechanism.
// If the mechanism is empty, it returns tenond's default without trials, which
// is the floor. Trials would begin only after a minute.
func Pinned(mechanism node.Mechanism) isolation.Config {
	floor := mechanism == ""
	return isolation.Config{Enable: true, Mechanism: mechanism, Measured: floor, NoTrials: floor}
}

// IsolationOf returns the CPU QoS strategy of a mode.
func IsolationOf(t report.ModeSpec) isolation.Config {
	c := Pinned(t.Mechanism)
	c.SlicesUnmanaged = t.NoSlices
	return c
}

// Supports returns whether the policy can use an isolation mechanism on this
// node, with the reason if it cannot.
func (s *Site) Supports(mechanism node.Mechanism) node.Answer {
	for _, r := range isolation.Mechanisms(Pinned(""), s.Host.Capabilities(), s.isolation).Mechanisms {
		if r.Mechanism == mechanism {
			return node.Answer{Verdict: r.Can, Why: r.Why}
		}
	}
	return node.Answer{Verdict: node.No, Why: fmt.Sprintf("%q is not an isolation mechanism", mechanism)}
}

// mechanismHere returns the isolation mechanism that the policy selects on this
// node. It returns "" if it selects none.
func (s *Site) mechanismHere(c isolation.Config) node.Mechanism {
	if !c.Enable {
		return ""
	}
	return isolation.Mechanisms(c, s.Host.Capabilities(), s.isolation).Mechanism
}
