package suppress

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// growBack is the time in which BE work gets back 1/1000 of its budget, so the
	// whole budget takes 50 s.
	growBack = 50 * time.Millisecond
	// BE work does not get back more than safePercent of what it had when the service
	// missed its objective again, until a probe is due. Each probe that fails within
	// nearPercent of the same level doubles the time to the next one, and takes only a little
	// back.
	safePercent, nearPercent    = 93, 20
	firstProbe, longestInterval = 30 * time.Second, 32 * time.Minute
	// For a service that is judged by its requests, BE work gets back once in a window what
	// the window then shows: beyond the level, probeStep thousandths. The first probe is due
	// after firstRequestProbe.
	probeStep         = 10
	firstRequestProbe = 2 * time.Minute
	// The back-off takes its part from a mean of the budget over about budgetTau: the use of a
	// service is never quite constant. A fall by more than suddenPercent is no noise, and
	// counts at once: the service would miss its objective before the mean shows it.
	budgetTau     = 5 * time.Second
	suddenPercent = 5
)

// BackOff is the CPU back-off: the part of its budget that BE work loses
// because an objective is missed. Each window with a miss halves the rest of
// the budget. Later the lost part shrinks slowly.
type BackOff struct {
	Permille int64     `json:"permille,omitempty"`
	At       time.Time `json:"at,omitzero"`  // time of the last update
	Cut      time.Time `json:"cut,omitzero"` // time of the last halving
	// Miss is the missed objective; zero: no objective is missed now. Victim is the
	// service for which the budget was last halved.
	Miss   slo.Miss        `json:"miss,omitzero"`
	Victim node.WorkloadID `json:"victim,omitempty"`
	// Levels are what BE work had when a service missed its objective again, by the name of
	// the service (see slo.Of).
	Levels map[string]Level `json:"levels,omitempty"`
	// Budget is the mean of the budget of which Permille is lost; 0: not known yet.
	Budget unit.MilliCPU `json:"budget_mcpu,omitempty"`
}

// A Level is what was left of the budget, in thousandths, when a service missed its
// objective.
type Level struct {
	Left  int64         `json:"left_permille"`
	At    time.Time     `json:"at"`
	Probe time.Duration `json:"probe_ns"` // the level holds until At + Probe
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
		// A window of requests in which the budget was halved does not show what that did.
		halved := at.Sub(g.Cut) < slo.LeastWindow || m.Percentile != "" && g.Cut.After(x.Judged(m).Begun)
		if m.At.Equal(at) && !halved && !alone(m.Workload) {
			levels, again := g.learn(x, m, at)
			left := (1000 - g.Permille) / 2
			if again {
				left = (1000 - g.Permille) * safePercent / 100
			}
			return BackOff{Permille: 1000 - left, At: at, Cut: at, Miss: m, Victim: m.Workload, Levels: levels, Budget: g.Budget}
		}
		missing = true
	}
	switch {
	case missing:
		g.At = at
	case g.Permille > 0:
		g = g.shrink(x, at)
		g.Miss = slo.Miss{}
	}
	if g.Permille <= 0 {
		return BackOff{Levels: g.Levels}
	}
	return g
}

// shrink gives BE work back what the time since the last update allows.
func (g BackOff) shrink(x slo.Tracker, at time.Time) BackOff {
	n := int64(min(max(at.Sub(g.At), 0), facts.LongestGap) / growBack)
	window, byRequests := x.Window(g.Victim)
	if byRequests {
		if !window.After(g.At) {
			return g
		}
		g.At = at
	} else if g.At = g.At.Add(time.Duration(n) * growBack); at.Sub(g.At) >= growBack {
		g.At = at
	}
	left := 1000 - g.Permille
	may := left + n
	services := x.Services()
	for service, l := range g.Levels {
		age := at.Sub(l.At)
		if services[service] == nil || !l.counts(at) {
			continue
		}
		safe := max(l.Left*safePercent/100, left)
		if age < l.Probe {
			may = min(may, safe)
		} else if byRequests {
			may = min(may, max(safe, left+probeStep))
		}
	}
	g.Permille = 1000 - may
	return g
}

// learn remembers what BE work had when a service missed its objective, if it had lost
// something and was getting it back. It reports whether that was at about the known level.
func (g BackOff) learn(x slo.Tracker, m slo.Miss, at time.Time) (all map[string]Level, again bool) {
	if g.Permille == 0 || g.Miss.Happened() {
		return g.Levels, false
	}
	next := Level{Left: 1000 - g.Permille, At: at, Probe: firstProbe}
	if m.Percentile != "" {
		next.Probe = firstRequestProbe
	}
	service := x.Service(m.Workload)
	if l, known := g.Levels[service]; known && 100*max(next.Left-l.Left, l.Left-next.Left) <= nearPercent*l.Left {
		next.Probe, again = min(2*l.Probe, longestInterval), true
		if m.Percentile == "" { // a miss in a second may be chance
			next.Left = max(next.Left, (next.Left+l.Left)/2)
		}
	}
	all = map[string]Level{service: next}
	for other, l := range g.Levels {
		if other != service && l.counts(at) { // its next pod may come yet
			all[other] = l
		}
	}
	return facts.Newest(all, culprit.MaxLevels, func(l Level) time.Time { return l.At }), again
}

// counts reports whether a level is not forgotten yet. Its time is in the future if the
// clock was set back.
func (l Level) counts(at time.Time) bool {
	age := at.Sub(l.At)
	return age >= 0 && age < culprit.ForgetAfter
}

// observe adds the present budget to the mean, the given time after the last one. A budget
// that is the minimum of BE says nothing: an input of it may be missing.
func (g BackOff) observe(b Budget, elapsed time.Duration) BackOff {
	switch {
	case g.Permille == 0 || b.May <= b.Least:
	case g.Budget == 0 || b.May < g.Budget*(100-suddenPercent)/100:
		g.Budget = b.May
	default:
		g.Budget = trend.Decay(g.Budget, b.May, elapsed, budgetTau)
	}
	return g
}

// subtract subtracts the back-off from the budget, but leaves at least the
// minimum of BE.
func (b Budget) subtract(g BackOff) Budget {
	if g.Permille == 0 || b.May <= b.Least {
		return b
	}
	b.May = max(min(b.May, g.Budget*unit.MilliCPU(1000-g.Permille)/1000), b.Least)
	if !g.Miss.Happened() {
		b.Reason += fmt.Sprintf("; BE is to blame for no miss now, and grows back slowly, to %v", b.May)
		return b
	}
	b.Reason += fmt.Sprintf("; %s: BE gives way, down to %v", g.Miss.Text(), b.May)
	return b
}
