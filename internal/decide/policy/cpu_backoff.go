package policy

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/unit"
)

// growBack is the time in which best-effort work gets a thousandth of its
// budget back: all of it in 50 s.
const growBack = 50 * time.Millisecond

// cpuBackOff is the CPU back-off: the part of its budget that best-effort work
// gives up because an objective is missed. It takes half of the rest in each
// window in which one is missed, and returns it slowly afterwards.
type cpuBackOff struct {
	Permille int64     `json:"permille,omitempty"`
	At       time.Time `json:"at,omitzero"`  // accounted up to this time
	Cut      time.Time `json:"cut,omitzero"` // the last halving
	// Reason names the missed objective; empty: none.
	Reason string `json:"reason,omitempty"`
}

// follow moves the back-off to the given time. It ignores services whose waits
// best-effort work hardly causes. One halving shows in the other objectives
// only a window later, so several missed objectives cost no more than one.
func (g cpuBackOff) follow(x slo.Tracker, at time.Time) cpuBackOff {
	if g.At.After(at) { // the clock of another boot
		g.At, g.Cut = at, at
	}
	missing := false
	for _, m := range x.Missed() {
		if m.Helpless {
			continue
		}
		if x.Work[m.Workload].At.Equal(at) && at.Sub(g.Cut) >= slo.LeastWindow {
			return cpuBackOff{Permille: 1000 - (1000-g.Permille)/2, At: at, Cut: at, Reason: m.Reason}
		}
		missing = true
	}
	switch {
	case missing:
		g.At = at
	case g.Permille > 0:
		n := min(max(at.Sub(g.At), 0), facts.LongestGap) / growBack
		g.Permille -= int64(n)
		if g.At = g.At.Add(n * growBack); at.Sub(g.At) >= growBack {
			g.At = at
		}
		g.Reason = ""
	}
	if g.Permille <= 0 {
		return cpuBackOff{}
	}
	return g
}

// less subtracts the back-off from the budget, down to the least.
func (b budget) less(g cpuBackOff) budget {
	if g.Permille == 0 || b.may <= b.least {
		return b
	}
	b.may = max(b.may*unit.MilliCPU(1000-g.Permille)/1000, b.least)
	if g.Reason == "" {
		b.reason += fmt.Sprintf("; no objective is missed any more: BE grows back slowly, to %v", b.may)
		return b
	}
	b.reason += fmt.Sprintf("; %s: BE gives way, down to %v", g.Reason, b.may)
	return b
}
