package evict

import (
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/unit"
)

// A balance holds three amounts of CPU for all BE work together: its bound, its
// usage and its requests.
type balance struct{ Bound, Used, Request unit.MilliCPU }

// isStarved reports whether BE gets too little CPU: BE uses most of its bound,
// and the bound is a small part of its requests.
func (b balance) isStarved(c CPUConfig) bool {
	near := b.Bound < unit.CPUs(1) || b.Used*100 >= b.Bound*unit.MilliCPU(c.UsageThreshold)
	return b.Request > 0 && near && b.Bound*100 <= b.Request*unit.MilliCPU(c.SatisfactionLower)
}

// A satisfaction sums the bound, CPU usage and requests of BE over a window.
// Tenon decides by the mean over the window, because a single tick misleads.
// CPU suppress changes the bound in each tick, but the measured usage is from
// before the tick. After a rise of the bound, BE would therefore seem to use
// less than it may.
type satisfaction struct {
	// Last is the bound of the last tick.
	Last  unit.MilliCPU `json:"last_mcpu,omitempty"`
	Parts []period      `json:"parts,omitempty"` // newest first
}

// A period is a part of the window. Its amounts are sums of CPU multiplied by
// time, in millicpu × ms.
type period struct {
	Lasted  time.Duration `json:"lasted_ns"`
	Bound   int64         `json:"bound,omitempty"`
	Used    int64         `json:"used,omitempty"`
	Request int64         `json:"request,omitempty"`
}

// periods is the number of parts of a window.
const periods = 10

// next adds the time since the last tick, and drops the parts that are older
// than the window. It adds at most facts.LongestGap, for example after a pause
// of the agent.
func (s satisfaction) next(b balance, elapsed, window time.Duration) satisfaction {
	next := satisfaction{Last: b.Bound}
	elapsed = min(max(elapsed, 0), facts.LongestGap)
	ms := elapsed.Milliseconds()
	newest := period{Lasted: elapsed, Bound: int64(b.Bound) * ms, Used: int64(b.Used) * ms, Request: int64(b.Request) * ms}
	// The counters show the CPU usage since the last tick. During that time,
	// the bound of the last tick applied.
	if s.Last > 0 {
		newest.Bound = int64(s.Last) * ms
	}
	older := s.Parts
	if len(older) > 0 && older[0].Lasted < window/periods {
		newest, older = newest.plus(older[0]), older[1:]
	}
	total := newest.Lasted
	next.Parts = append(next.Parts, newest)
	for _, p := range older {
		if total >= window {
			break
		}
		next.Parts = append(next.Parts, p)
		total += p.Lasted
	}
	return next
}

func (p period) plus(o period) period {
	return period{p.Lasted + o.Lasted, p.Bound + o.Bound, p.Used + o.Used, p.Request + o.Request}
}

// mean returns the means over the window. It returns false if less time than a
// window has passed.
func (s satisfaction) mean(window time.Duration) (balance, bool) {
	var all period
	for _, p := range s.Parts {
		all = all.plus(p)
	}
	ms := all.Lasted.Milliseconds()
	if ms == 0 || all.Lasted < window {
		return balance{}, false
	}
	return balance{unit.MilliCPU(all.Bound / ms), unit.MilliCPU(all.Used / ms), unit.MilliCPU(all.Request / ms)}, true
}
