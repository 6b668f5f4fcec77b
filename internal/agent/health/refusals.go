package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// refusedAfter is the time after which a knob that fails in each tick counts
	// as refused. A single failure may be a race with another program.
	refusedAfter = 3 * time.Second
	// maxNamed is the maximum number of refusals in a text.
	maxNamed = 3
)

// Refusals follows the knobs whose writes fail. The zero value is ready to use.
type Refusals struct{ failing map[node.Knob]tick.Refusal }

// Observe takes the outcomes of a tick, and returns the knobs that have failed in
// each tick for refusedAfter. passes reports whether an error is no refusal, such
// as that of a cgroup that is gone. A tick that could not read the node changes
// nothing.
func (r *Refusals) Observe(t tick.Tick, passes func(error) bool) []tick.Refusal {
	if !t.Snapshot.At.IsZero() {
		failing := map[node.Knob]tick.Refusal{}
		for _, o := range t.Done {
			if o.Err == nil || passes(o.Err) {
				continue
			}
			k := o.Step.Knob
			now := tick.Refusal{Knob: k, Since: t.Begun, BE: o.Step.BE, Err: o.Err}
			if before, failed := r.failing[k]; failed {
				now.Since = before.Since
			}
			failing[k] = now
		}
		r.failing = failing
	}
	var all []tick.Refusal
	for _, f := range r.failing {
		if t.Begun.Sub(f.Since) >= refusedAfter {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b tick.Refusal) int { return a.Knob.Compare(b.Knob) })
	return all
}

// TextOf returns refusals as the text of a trouble. It is empty if there are none.
func TextOf(refused []tick.Refusal) string {
	if len(refused) == 0 {
		return ""
	}
	var named []string
	for _, r := range refused[:min(len(refused), maxNamed)] {
		named = append(named, r.String())
	}
	if more := len(refused) - maxNamed; more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("each tick fails to write %d knobs: %s", len(refused), strings.Join(named, "; "))
}
