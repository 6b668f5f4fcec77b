// Package writeconflict decides when Tenon leaves a knob for a while because another
// component writes it. The other component is the kubelet, which restores some
// of its knobs every minute, or another agent. Tenon writes its own value
// again, but two components must not overwrite each other's value without end.
//
// systemd is no such component. It writes all settings of a unit when one of them is
// set, and it does not know Tenon's values. It never defends a value against Tenon, so
// Tenon writes again at once, and goes on (decision 126).
//
// The conflicts are part of the snapshot, and Pause runs before the plan. A dry
// run, a replay and the audit log therefore show the result.
package writeconflict

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// Remembered is the time for which Tenon remembers that another component wrote
// a knob.
const Remembered = 10 * time.Minute

const (
	// minConflicts is the number of conflicts, all younger than Remembered,
	// that make a knob contested.
	minConflicts = 3
	// After its last write to a contested knob, Tenon leaves the knob to the
	// other component for a pause. After manyConflicts conflicts the pause is
	// longPause. It must be clearly shorter than the minute after which the kubelet
	// writes again. Otherwise Tenon would write a little later each minute, because
	// it writes only in ticks, and would in the end be a minute late.
	pause         = 10 * time.Second
	longPause     = 50 * time.Second
	manyConflicts = 10
	// maxResets is the number of resets within Remembered that do not count. Above it,
	// all of them count, because another component may write the same value. The kubelet
	// has systemd set the weights of its levels each minute, and about twice when a pod
	// starts and twice when it ends, so this is enough for 70 short jobs. A component that
	// writes the same value each second is found after five minutes, and one that writes
	// it less often than each two seconds is not: Tenon writes its value again each time.
	maxResets = 300
)

// Pause changes wants that would write a contested knob before its pause is
// over: their intent becomes plan.Pause. It changes neither releases nor wants
// that narrow BE, because LS must not wait for its protection.
func Pause(s node.Snapshot, wants []plan.Want) []plan.Want {
	for _, c := range s.Conflicts {
		left := remainingPause(c, s.At)
		if left <= 0 {
			continue
		}
		for i := range wants {
			w := &wants[i]
			if w.Knob != c.Knob || w.Intent != plan.Set {
				continue
			}
			now := s.Knobs.Now[w.Knob]
			to := w.Value.Round(s.Knobs.Kernel)
			if now == nil || now == to || w.BE && to.CompareWidth(now) < 0 {
				continue
			}
			w.Reason = fmt.Sprintf("another component keeps writing it: it stays %v instead of %v for %v more; %s", now, to, left.Round(time.Second), w.Reason)
			w.Intent = plan.Pause
		}
	}
	return wants
}

// remainingPause returns how long Tenon still leaves a knob to the other
// component.
func remainingPause(c node.WriteConflict, now time.Time) time.Duration {
	n := countConflicts(c, now)
	switch {
	case n < minConflicts:
		return 0
	case n < manyConflicts:
		return pause - now.Sub(c.Wrote)
	}
	return longPause - now.Sub(c.Wrote)
}

// Contested reports whether another component writes a knob again and again.
func Contested(s node.Snapshot, k node.Knob) bool {
	return slices.ContainsFunc(s.Conflicts, func(c node.WriteConflict) bool { return c.Knob == k && countConflicts(c, s.At) >= minConflicts })
}

// countConflicts returns the number of conflicts of a knob: the writes of other
// components that are younger than Remembered.
func countConflicts(c node.WriteConflict, now time.Time) int {
	n := countRecent(c.Found, now)
	if resets := countRecent(c.Resets, now); resets > maxResets {
		n += resets
	}
	return n
}

// countRecent counts the times that are younger than Remembered.
func countRecent(times []time.Time, now time.Time) (n int) {
	for _, at := range times {
		if now.Sub(at) <= Remembered {
			n++
		}
	}
	return n
}

// Remarks describes the contested knobs of the snapshot, sorted.
func Remarks(s node.Snapshot) []string {
	var all []string
	for _, c := range s.Conflicts {
		if n := countConflicts(c, s.At); n >= minConflicts {
			all = append(all, fmt.Sprintf("another component wrote %v %d times in %v", c.Knob, n, Remembered))
		}
	}
	slices.Sort(all)
	return all
}
