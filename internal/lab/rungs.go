package lab

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/policy"
)

// rungOf is the rung that a mode pins.
var rungOf = map[report.Mode]node.Rung{
	report.TenonWeight:    node.RungWeight,
	report.TenonIdle:      node.RungIdle,
	report.TenonSiblings:  node.RungSiblings,
	report.TenonCoreSched: node.RungCoreSched,
	report.TenonSCX:       node.RungSchedExt,
	report.TenonVendor:    node.RungVendor,
}

// controls are the modes of the kernel-qos experiment beside those of the
// rungs, as it runs them unasked.
var controls = []report.Mode{report.Exclusive, report.ExclusiveAA, report.Default, report.Burstable}

// KernelQOSModes lists every mode that the kernel-qos experiment knows.
var KernelQOSModes = slices.Concat(controls, []report.Mode{report.ExclusiveWarm}, report.RungModes)

// ladderDefaults are those of the kernel-qos experiment: together they take
// less than seven minutes.
func (c Config) ladderDefaults() Config {
	if c.Blocks == 0 && !c.UntilResolved {
		c.Blocks, c.MaxTime = 8, cmp.Or(c.MaxTime, 390*time.Second)
	}
	c.Duration = cmp.Or(c.Duration, 5*time.Second)
	return c
}

// modesHere returns the modes to run: those asked for, or, without any, those
// of the kernel-qos experiment that the node can run, and why it skips the
// others. A mode that was asked for and cannot run is an error.
func modesHere(asked []report.Mode, carries func(node.Rung) node.Answer) (modes []report.Mode, skipped []report.Skipped, err error) {
	for _, m := range asked {
		if rung, pinned := rungOf[m]; pinned {
			if a := carries(rung); a.Verdict != node.Yes {
				return nil, nil, fmt.Errorf("mode %s: this node does not carry the rung %s: %s", m, rung, a.Why)
			}
		}
	}
	if len(asked) > 0 {
		return asked, nil, nil
	}
	modes = slices.Clone(controls)
	for _, m := range report.RungModes {
		a := carries(rungOf[m])
		switch {
		case a.Verdict != node.Yes:
			skipped = append(skipped, report.Skipped{Mode: m, Why: a.Why})
		case m == report.TenonWeight && carries(node.RungIdle).Verdict == node.Yes:
			skipped = append(skipped, report.Skipped{Mode: m, Why: fmt.Sprintf("it is what %s has: kubelet gives pods without CPU requests the least weight itself; name it with --modes to run it", report.Default)})
		default:
			modes = append(modes, m)
		}
	}
	return modes, skipped, nil
}

// pinned is what CPU QoS is asked in a mode with a rung; without one it takes
// the strongest that the node has.
func pinned(rung node.Rung) policy.CPUQOS {
	return policy.CPUQOS{Enable: true, Rung: rung}
}

// carries says whether this node can carry a rung, as the policy sees it.
func (s *site) carries(rung node.Rung) node.Answer {
	for _, r := range policy.Ladder(pinned(""), s.host.Capabilities(), s.isolation).Rungs {
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
func (s *site) rungHere(c policy.CPUQOS) node.Rung {
	if !c.Enable {
		return ""
	}
	return policy.Ladder(c, s.host.Capabilities(), s.isolation).Rung
}
