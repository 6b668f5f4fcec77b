package manager

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// keepForAWhile returns the amounts of a node without a report. The present
// amounts stay for DegradeAfter; then there are none. Reports may be missing
// although agents run, for example after a deletion of the report's CRD.
func (v *Verdict) keepForAWhile(c Case) [kinds]node.Maybe[int64] {
	if v.Memory.Refused.IsZero() {
		v.Memory.Refused = c.At
	}
	since := v.Memory.Good
	if since.IsZero() {
		since = v.Memory.Refused
	}
	left := c.Rules.DegradeAfter - c.At.Sub(since)
	if c.Node.Present == noAmounts || left <= 0 {
		v.say(Unreported, "the node's agent has not reported")
		return noAmounts
	}
	v.Again = max(left, time.Millisecond)
	v.say(Vanished, "there is no report of the node's agent any more: its last amounts stay for %v (degradeTimeMinutes)", c.Rules.DegradeAfter)
	return v.keep(c)
}

// presentAmounts returns the present amounts of the node. If the agent has
// measured a smaller amount since its start, it returns that amount.
func (v *Verdict) presentAmounts(c Case, all [kinds]claim) [kinds]node.Maybe[int64] {
	kept := v.keep(c)
	for k := range kinds {
		if present, has := kept[k].Value(); has && all[k].held {
			kept[k] = node.Some(min(present, max(0, all[k].formula-c.Node.Elsewhere[k])))
		}
	}
	return kept
}

// keep returns the present amounts of the node, limited by the settings.
func (v *Verdict) keep(c Case) [kinds]node.Maybe[int64] {
	kept := c.Node.Present
	for k := range kinds {
		if present, has := kept[k].Value(); has {
			kept[k] = node.Some(min(max(0, present), k.ceiling(c)))
		}
	}
	return kept
}

// smallerAmounts returns, for each resource, the smaller amount of a and b. The
// result is absent if the resource is absent in a or b.
func smallerAmounts(a, b [kinds]node.Maybe[int64]) (low [kinds]node.Maybe[int64]) {
	for k := range kinds {
		x, hasX := a[k].Value()
		y, hasY := b[k].Value()
		if hasX && hasY {
			low[k] = node.Some(min(x, y))
		}
	}
	return low
}
