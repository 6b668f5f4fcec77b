package daemon

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/report"
)

const (
	// remembersFor is for how long it counts that somebody else wrote a knob.
	remembersFor = 10 * time.Minute
	// contestedFrom is from how often on in that time it is worth a remark.
	contestedFrom = 3
	// restAfter is how long a contested knob is left to the others before it is
	// written again, and longRest what becomes of it after longFrom times. What
	// narrows best-effort work does not wait: somebody must protect the others.
	restAfter = 10 * time.Second
	longRest  = time.Minute
	longFrom  = 10
)

// fights are the knobs that somebody else writes, too: the kubelet, which puts
// some right every minute, or another agent. Tenon puts them right again, but
// does not write them back and forth all day.
type fights struct {
	knobs map[node.Knob]*fight
	swept time.Time
}

type fight struct {
	wrote node.Value  // by us, last
	at    time.Time   // when
	back  []time.Time // when somebody else's value was found, the oldest first
}

// before says whether a step may be written now.
func (f *fights) before(s plan.Step, now time.Time) error {
	k := f.knobs[s.Knob]
	if k == nil || s.Release || s.From == nil || s.From == k.wrote {
		return nil
	}
	if n := len(k.back); n == 0 || k.back[n-1].Before(k.at) { // found for the first time since our last write
		k.back = append(k.back, now)
	}
	k.back = slices.DeleteFunc(k.back, func(at time.Time) bool { return now.Sub(at) > remembersFor })
	if len(k.back) < contestedFrom || s.BE && s.To.Narrower(s.From) < 0 {
		return nil
	}
	rest := restAfter
	if len(k.back) >= longFrom {
		rest = longRest
	}
	if left := rest - now.Sub(k.at); left > 0 {
		return fmt.Errorf("%v is %v instead of %v, and left so for %v: %w", s.Knob, s.From, k.wrote, left.Round(time.Second), report.ErrContested)
	}
	return nil
}

// after notes that a step was written, and what the kernel made of it.
func (f *fights) after(s plan.Step, became node.Value, now time.Time) {
	if s.Release {
		delete(f.knobs, s.Knob)
		return
	}
	if f.knobs == nil {
		f.knobs = map[node.Knob]*fight{}
	}
	k := f.knobs[s.Knob]
	if k == nil {
		k = &fight{}
		f.knobs[s.Knob] = k
	}
	k.wrote, k.at = became, now
	f.sweep(now)
}

// sweep forgets knobs that nobody has written for long.
func (f *fights) sweep(now time.Time) {
	if now.Sub(f.swept) < remembersFor {
		return
	}
	f.swept = now
	for knob, k := range f.knobs {
		if now.Sub(k.at) > 6*remembersFor {
			delete(f.knobs, knob)
		}
	}
}

// remarks names the knobs that are contested, sorted.
func (f *fights) remarks(now time.Time) []string {
	var all []string
	for knob, k := range f.knobs {
		n := 0
		for _, at := range k.back {
			if now.Sub(at) <= remembersFor {
				n++
			}
		}
		if n >= contestedFrom {
			all = append(all, fmt.Sprintf("somebody else wrote %v %d times in %v", knob, n, remembersFor))
		}
	}
	slices.Sort(all)
	return all
}
