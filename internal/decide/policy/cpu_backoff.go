package policy

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/unit"
)

// growBack is the time in which BE work gets back 1/1000 of its budget, so the
// whole budget takes 50 s.
const growBack = 50 * time.Millisecond

// cpuBackOff is the CPU back-off: the part of its budget that BE work loses
// because an objective is missed. Each window with a miss halves the rest of
// the budget. Later the lost part shrinks slowly.
type cpuBackOff struct {
	Permille int64     `json:"permille,omitempty"`
	At       time.Time `json:"at,omitzero"`  // time of the last update
	Cut      time.Time `json:"cut,omitzero"` // time of the last halving
	// Reason names the missed objective; empty: no objective is missed now.
	Reason string `json:"reason,omitempty"`
}

// follow updates the back-off to the given time. It ignores services whose waits BE hardly
// causes. If several services miss their objectives in one window, follow halves the budget
// only once, because only the next window shows what the halving did.
func (g cpuBackOff) follow(x slo.Tracker, at time.Time) cpuBackOff {
	if g.At.After(at) { // g.At is from before a reboot
		g.At, g.Cut = at, at
	}
	missing := false
	for _, m := range x.Violations() {
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

// subtract subtracts the back-off from the budget, but leaves at least the
// minimum of BE.
func (b budget) subtract(g cpuBackOff) budget {
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
