package suppress

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// growBack is the time in which BE work gets back 1/1000 of its budget, so the
// whole budget takes 50 s.
const growBack = 50 * time.Millisecond

// BackOff is the CPU back-off: the part of its budget that BE work loses
// because an objective is missed. Each window with a miss halves the rest of
// the budget. Later the lost part shrinks slowly.
type BackOff struct {
	Permille int64     `json:"permille,omitempty"`
	At       time.Time `json:"at,omitzero"`  // time of the last update
	Cut      time.Time `json:"cut,omitzero"` // time of the last halving
	// Miss is the missed objective; zero: no objective is missed now.
	Miss slo.Miss `json:"miss,omitzero"`
}

// Follow updates the back-off to the given time. It ignores services whose waits BE hardly
// causes, and halves nothing for those that a bound of a single workload is to help
// (alone). If several services miss their objectives in one window, Follow halves the budget
// only once, because only the next window shows what the halving did.
func (g BackOff) Follow(x slo.Tracker, alone func(node.WorkloadID) bool, at time.Time) BackOff {
	if g.At.After(at) { // g.At is from before a reboot
		g.At, g.Cut = at, at
	}
	missing := false
	for _, m := range x.Violations() {
		if m.Helpless {
			continue
		}
		if m.At.Equal(at) && at.Sub(g.Cut) >= slo.LeastWindow && !alone(m.Workload) {
			return BackOff{Permille: 1000 - (1000-g.Permille)/2, At: at, Cut: at, Miss: m}
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
		g.Miss = slo.Miss{}
	}
	if g.Permille <= 0 {
		return BackOff{}
	}
	return g
}

// subtract subtracts the back-off from the budget, but leaves at least the
// minimum of BE.
func (b Budget) subtract(g BackOff) Budget {
	if g.Permille == 0 || b.May <= b.Least {
		return b
	}
	b.May = max(b.May*unit.MilliCPU(1000-g.Permille)/1000, b.Least)
	if !g.Miss.Happened() {
		b.Reason += fmt.Sprintf("; no objective is missed any more: BE grows back slowly, to %v", b.May)
		return b
	}
	b.Reason += fmt.Sprintf("; %s: BE gives way, down to %v", g.Miss.Text(), b.May)
	return b
}
