// Package contest decides when Tenon leaves a knob for a while as another
// component wrote it: the kubelet, which puts some of its knobs right every
// minute, or another agent. Tenon puts a value of its own right again, but two
// components must not write one knob back and forth all day.
//
// Which knobs are in conflict is a fact of the snapshot, and what follows is
// decided before the plan, so that a dry run, a replay and the audit show it.
package contest

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// Remembered is for how long it counts that another component wrote a knob.
const Remembered = 10 * time.Minute

const (
	// contestedFrom is from how many conflicts within Remembered on a knob is
	// contested.
	contestedFrom = 3
	// pause is how long after Tenon's last write a contested knob is left to the
	// other component, and longPause from longFrom conflicts on.
	pause     = 10 * time.Second
	longPause = time.Minute
	longFrom  = 10
)

// Hold returns the wants with those held that would write a contested knob too
// early. A release is not held, and neither is a value that narrows BE: that
// protects LS and must not wait.
func Hold(s node.Snapshot, wants []plan.Want) []plan.Want {
	for _, c := range s.Conflicts {
		left := remaining(c, s.At)
		if left <= 0 {
			continue
		}
		for i := range wants {
			w := &wants[i]
			if w.Knob != c.Knob || w.Intent != plan.Set {
				continue
			}
			now := s.Knobs.Now[w.Knob]
			to := w.Value.Rounded(s.Knobs.Kernel)
			if now == nil || now == to || w.BE && to.Narrower(now) < 0 {
				continue
			}
			w.Reason = fmt.Sprintf("another component keeps writing it: it stays %v instead of %v for %v more; %s", now, to, left.Round(time.Second), w.Reason)
			w.Intent = plan.Hold
		}
	}
	return wants
}

// remaining is how long a knob is still left to the other component.
func remaining(c node.WriteConflict, now time.Time) time.Duration {
	n := recent(c, now)
	switch {
	case n < contestedFrom:
		return 0
	case n < longFrom:
		return pause - now.Sub(c.Wrote)
	}
	return longPause - now.Sub(c.Wrote)
}

// recent counts the conflicts that still count.
func recent(c node.WriteConflict, now time.Time) (n int) {
	for _, at := range c.Found {
		if now.Sub(at) <= Remembered {
			n++
		}
	}
	return n
}

// Remarks names the knobs of the snapshot that are contested, sorted.
func Remarks(s node.Snapshot) []string {
	var all []string
	for _, c := range s.Conflicts {
		if n := recent(c, s.At); n >= contestedFrom {
			all = append(all, fmt.Sprintf("another component wrote %v %d times in %v", c.Knob, n, Remembered))
		}
	}
	slices.Sort(all)
	return all
}
