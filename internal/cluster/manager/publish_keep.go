package manager

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// keepForAWhile returns the amounts of a node without a report: the present
// amounts for DegradeAfter, and then none. Reports may be missing although all
// agents run, for example if their CustomResourceDefinition was deleted.
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

// presentAmounts returns the present amounts of the node, or a smaller amount
// that the agent has measured since its start.
func (v *Verdict) presentAmounts(c Case, all [kinds]claim) [kinds]node.Maybe[int64] {
	kept := v.keep(c)
	for k := range kinds {
		if present, has := kept[k].Value(); has && all[k].held {
			kept[k] = node.Some(min(present, max(0, all[k].formula-c.Node.Elsewhere[k])))
		}
	}
	return kept
}

// keep returns the present amounts of the node, but at most what the settings allow.
func (v *Verdict) keep(c Case) [kinds]node.Maybe[int64] {
	kept := c.Node.Present
	for k := range kinds {
		if present, has := kept[k].Value(); has {
			kept[k] = node.Some(min(max(0, present), k.ceiling(c)))
		}
	}
	return kept
}

// smallerAmounts returns the smaller amount of each resource. It is absent if
// the resource is absent in a or b.
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
