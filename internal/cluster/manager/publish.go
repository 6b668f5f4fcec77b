package manager

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
)

// Pause is the minimum time between two writes of the status of a node, because etcd and every
// scheduler receive each write. A large decrease is written without a pause, and so is what
// follows a decrease within fallTime.
const Pause = 10 * time.Second

// fallTime is the time in which a step of load reaches the reports of the agent: the
// decreases in it are parts of one fall. Without it, the last part of a fall is mostly
// too small to be written without a pause.
const fallTime = 3 * time.Second

// A Case contains all inputs of the decision about the batch resources of a node.
type Case struct {
	At     time.Time
	Rules  overcommit.Config
	Node   Facts
	Report Sighting
	Memory Memory
}

// A Sighting is a report, with the time at which this process last saw it change.
type Sighting struct {
	Batch *v1alpha1.Batch // nil: the node has no report
	// Seen is the time at which this process saw the last change of the report.
	// It does not depend on the clock of the node.
	Seen time.Time
	// Fresh means that this process saw the report change, or that the report's
	// own time is recent. Other reports may be very old, and do not cause an
	// increase of an amount.
	Fresh bool
}

// Memory is the state that one decision about a node passes to the next.
type Memory struct {
	// Wrote is the time of the last write of the node's amounts; zero: long ago.
	Wrote time.Time
	// Fell is the time of the first write of the last fall. The next fall begins with a
	// decrease that is written at least Pause later.
	Fell time.Time
	// Refused is the time since which the manager refuses all reports. It is zero
	// if it accepts them. Good is the time of the last accepted report.
	Refused, Good time.Time
}

// State says in one word how the manager treats the report of a node.
type State string

// The states of a node.
const (
	Off        State = "off"        // colocation is disabled for the node
	Unreported State = "unreported" // the node has no report
	Vanished   State = "vanished"   // the report is gone: the last amounts stay for a while
	Published  State = "published"  // the node has the reported amounts
	Bounded    State = "bounded"    // the node has less than reported: the manager knows a lower limit
	Held       State = "held"       // the node has more than reported: running pods request it
	Waiting    State = "waiting"    // the node has less than reported: increases are published slowly
	Starting   State = "starting"   // the agent has only just started: the amounts stay
	Doubtful   State = "doubtful"   // the amounts do not rise, because an input is unknown
	Refused    State = "refused"    // the report has errors: the last good amounts stay
	Stale      State = "stale"      // the report is too old: the node has no batch resources
)

// allStates lists the states above. The metric tenon_manager_nodes has a series
// for each state.
var allStates = []State{Off, Unreported, Vanished, Published, Bounded, Held, Waiting, Starting, Doubtful, Refused, Stale}

// A Verdict is the decision about the batch resources of a node, with its reason.
type Verdict struct {
	State  State
	Reason string
	// Want contains the amounts for the status. If an amount is absent, the node
	// must not have the resource.
	Want [kinds]node.Maybe[int64]
	// Origin is the value for the annotation originExtendedAllocatable, or
	// empty if the node must not have the annotation.
	Origin string
	// Write means that the status or the annotation must change.
	Write bool
	// Again is the time until the next decision if nothing changes. 0 means never.
	Again  time.Duration
	Memory Memory
}

// Decide decides the batch resources in the status of a node.
//
// Decide publishes at most the reported amounts, with one exception: it keeps a published
// amount that running pods request. It publishes less than reported in three cases: the node
// reserves more than the agent assumed, the threshold of the settings is lower, or other
// schedulers have allocated a part. A decrease is written at once. An increase is written
// only if it is large enough, and at most once every Pause.
func Decide(c Case) Verdict {
	v := Verdict{Memory: c.Memory}
	target, origin, all := v.target(c)
	raised := v.hold(c, target, all)
	v.Want = v.settle(c, raised)
	if c.Node.Shared && origin != noAmounts {
		// Other schedulers cannot use the amount that is held for running pods. This
		// amount is missing in their annotation, so that they release resources.
		theirs := v.Want
		for k := range kinds {
			if raised[k] != target[k] {
				theirs[k] = target[k]
			}
		}
		v.Origin = originOf(undoOthers(origin, theirs, c.Node.Elsewhere))
	}
	v.Write = v.Want != c.Node.Present || v.Want != c.Node.Capped
	if v.Origin != c.Node.Origin && !v.Write {
		// While an amount is held, the status stays the same, but the annotation
		// changes with each report.
		rest := Pause - c.At.Sub(c.Memory.Wrote)
		if v.Write = raised == target || rest <= 0; !v.Write {
			v.Again = min(v.Again, rest)
		}
	}
	return v
}

// hold raises a target to the amount that running pods request, but not above the present amount
// of the node. The reason: a kubelet that restarts admits all pods of its node again, also
// running ones, and ends the pods that do not fit into the amount.
//
// No other pod can use a held amount, because the requests of the running pods use it up. When a
// pod ends, a new pod may start before the published amount has decreased. The agent does not
// count the new pod as requested, so the amount decreases as pods end. Services stay protected,
// because the agent bounds batch work by usage and not by the published amount. A false report
// can only delay a decrease, because the target never rises above the present amount.
//
// hold does not change an absent target. If colocation is disabled or no agent manages the node,
// the node has no batch resources, and a kubelet that restarts ends batch pods. hold also applies
// if the report is refused: then the present amounts stay. The threshold of the settings may
// lower the target, but a lower threshold is no reason to end running pods.
func (v *Verdict) hold(c Case, target [kinds]node.Maybe[int64], all [kinds]claim) [kinds]node.Maybe[int64] {
	var notes []string
	for k := range kinds {
		next, has := target[k].Value()
		floor := min(all[k].requested, c.Node.Present[k].Or(0), k.upperBound(c))
		if !has || floor <= next {
			continue
		}
		target[k] = node.Some(floor)
		notes = append(notes, fmt.Sprintf("%v: running pods request %s: with less, a kubelet that restarts ends them", k, k.printAmount(all[k].requested)))
	}
	switch {
	case len(notes) == 0:
	case v.State == Published:
		v.say(Held, "%s", strings.Join(notes, "; "))
	case v.State == Bounded:
		v.say(Held, "%s; %s", v.Reason, strings.Join(notes, "; "))
	default:
		v.say(v.State, "%s; %s", v.Reason, strings.Join(notes, "; "))
	}
	return target
}

// noAmounts are the amounts of a node without batch resources.
var noAmounts [kinds]node.Maybe[int64]

// say sets the state and its reason.
func (v *Verdict) say(s State, format string, args ...any) {
	v.State, v.Reason = s, fmt.Sprintf(format, args...)
}

// target returns the amounts that would be published if increases were not
// delayed. origin also includes the amounts that other schedulers have
// allocated. all contains the readable claims of the report.
func (v *Verdict) target(c Case) (target, origin [kinds]node.Maybe[int64], all [kinds]claim) {
	switch {
	case !c.Rules.Enable:
		v.say(Off, "colocation is not enabled for this node")
		return noAmounts, noAmounts, all
	case c.Report.Batch == nil:
		kept := v.keepForAWhile(c)
		return kept, kept, all
	}
	all, err := v.judge(c)
	since, starting := c.Report.Seen, startingUp(all)
	if err != nil || starting {
		if v.Memory.Refused.IsZero() {
			v.Memory.Refused = c.At
		}
		if since = v.Memory.Good; since.IsZero() {
			since = v.Memory.Refused
		}
	} else {
		v.Memory.Refused, v.Memory.Good = time.Time{}, c.Report.Seen
	}
	left := c.Rules.DegradeAfter - c.At.Sub(since)
	if left <= 0 {
		v.say(Stale, "no good report for %v (degradeTimeMinutes)", c.Rules.DegradeAfter)
		return noAmounts, noAmounts, all
	}
	v.Again = max(left, time.Millisecond)
	v.say(Published, "as the agent reports")
	switch {
	case err != nil:
		v.say(Refused, "the report is refused: %v", err)
		return v.keep(c), v.keep(c), all
	case starting:
		v.say(Starting, "the agent has just started: its last amounts stay until it has measured")
		target = v.presentAmounts(c, all)
		return target, target, all
	}
	var notes []string
	for k := range kinds {
		one := all[k]
		if !one.promised {
			continue
		}
		amount, why := k.bound(one, c)
		if why != "" {
			notes = append(notes, fmt.Sprintf("%v: %s", k, why))
		}
		if one.degraded != "" {
			notes = append(notes, fmt.Sprintf("%v: %s", k, one.degraded))
		}
		origin[k], target[k] = node.Some(amount), node.Some(max(0, amount-c.Node.Elsewhere[k]))
		if amount > 0 && c.Node.Elsewhere[k] > 0 {
			notes = append(notes, fmt.Sprintf("%v: %s of it are given away by others (thirdPartyAllocations)", k, k.printAmount(c.Node.Elsewhere[k])))
		}
	}
	if len(notes) > 0 {
		v.say(Bounded, "%s", strings.Join(notes, "; "))
	}
	switch {
	case len(c.Node.Faults) > 0:
		v.say(Doubtful, "more is promised when all is known: %s", strings.Join(c.Node.Faults, "; "))
	case !c.Report.Fresh:
		v.say(Doubtful, "more is promised when the agent reports again: the age of its report is not known")
	default:
		return target, origin, all
	}
	return smallerAmounts(target, v.keep(c)), origin, all
}

// undoOthers returns the amounts of the node before the allocations of other
// schedulers (elsewhere) were subtracted.
func undoOthers(origin, want [kinds]node.Maybe[int64], elsewhere [kinds]int64) [kinds]node.Maybe[int64] {
	for k := range kinds {
		if w := want[k].Or(0); w > 0 {
			origin[k] = node.Some(w + elsewhere[k])
		}
	}
	return origin
}

// startingUp reports whether the agent has not measured for long enough to compute
// an amount. Such an agent reports the amount 0, which must not be published.
// Otherwise each update of the agent would take the resource away from running pods.
// A kubelet that restarts in this time would end them.
func startingUp(all [kinds]claim) bool {
	any := false
	for _, c := range all {
		if c.promised && (c.amount > 0 || c.sum || !c.held && c.degraded != node.Unmeasured) {
			return false
		}
		any = any || c.promised
	}
	return any
}

// judge reads the report and checks it against the node.
func (v *Verdict) judge(c Case) ([kinds]claim, error) {
	all, err := claims(*c.Report.Batch)
	if err != nil {
		return all, err
	}
	for k := range kinds {
		if all[k].amount > k.upperBound(c) {
			return all, fmt.Errorf("%v: %s are reported of a node that has %s", k, k.printAmount(all[k].amount), k.printAmount(c.Node.Capacity[k]))
		}
	}
	return all, nil
}

// upperBound returns the largest amount that a correct report can contain.
func (k kind) upperBound(c Case) int64 {
	return percent(c.Node.Capacity[k], max(100, k.reclaim(c.Rules).ThresholdPercent))
}

// bound computes a claim again with the manager's knowledge of the node. If the
// result is less than the claim, it also returns the reason. The result is
//
//	min(share) − max(use of the system, reservation) − others
func (k kind) bound(one claim, c Case) (int64, string) {
	r := k.reclaim(c.Rules)
	capacity, most := c.Node.Capacity[k], k.ceiling(c)
	amount, why := min(one.amount, most), ""
	if one.sum {
		share := min(one.share, percent(capacity, r.ThresholdPercent))
		system := max(one.system, k.reservedAmount(c))
		amount = min(amount, max(0, share-system-one.others))
	}
	switch {
	case amount == one.amount:
	case one.system < k.reservedAmount(c):
		why = fmt.Sprintf("%s are reserved for the node, more than the agent counts", k.printAmount(k.reservedAmount(c)))
	case most < one.amount:
		why = fmt.Sprintf("no more than %s by the owner's thresholds", k.printAmount(most))
	default:
		why = fmt.Sprintf("the owner's threshold is %v now, the agent goes by another", r.ThresholdPercent)
	}
	return amount, why
}

// reservedAmount returns the amount that no pod may use. It comes from the
// settings of the kubelet or from an annotation of the node.
func (k kind) reservedAmount(c Case) int64 {
	if k == cpu {
		return max(c.Node.Reserved[k], int64(c.Rules.ReservedCPU))
	}
	return max(c.Node.Reserved[k], int64(c.Rules.ReservedMemory))
}

// ceiling returns the maximum amount under the settings, whatever the report says.
func (k kind) ceiling(c Case) int64 {
	r := k.reclaim(c.Rules)
	most := max(0, percent(c.Node.Capacity[k], r.ThresholdPercent)-k.reservedAmount(c))
	if p, limited := r.LimitPercent.Value(); limited {
		most = min(most, percent(c.Node.Capacity[k], max(0, p)))
	}
	return most
}

// wrote records the write of a decision.
func (m *Memory) wrote(c Case, v Verdict) {
	m.Wrote = c.At
	if direction(c, v) == "less" && c.At.Sub(m.Fell) >= Pause {
		m.Fell = c.At
	}
}

// settle decides which part of the change to the target is written now.
func (v *Verdict) settle(c Case, target [kinds]node.Maybe[int64]) [kinds]node.Maybe[int64] {
	age := c.At.Sub(c.Memory.Wrote)
	paused, falling := age < Pause, c.At.Sub(c.Memory.Fell) <= fallTime
	want, due, slow := c.Node.Present, false, ""
	later := v.Again
	wait := func(d time.Duration) { later = min(later, d) }
	for k := range kinds {
		next, has := target[k].Value()
		present, had := c.Node.Present[k].Value()
		worth := ppm(present, c.Rules.WorthPPM)
		switch more := next - present; {
		case !has || (had && more < 0 && (next == 0 || -more > worth || falling || !paused)):
			want[k] = target[k] // a large decrease is written at once
			due = due || has != had || more < 0
		case had && more < 0:
			wait(Pause - age)
		case had && more == 0:
		case had && more <= worth && age < c.Rules.RenewAfter:
			slow = fmt.Sprintf("more is promised when it is %g%% more, or %v after the last update", float64(c.Rules.WorthPPM)/10_000, c.Rules.RenewAfter)
			wait(c.Rules.RenewAfter - age)
		case paused:
			slow = fmt.Sprintf("more is promised at most every %v", Pause)
			wait(Pause - age)
		default:
			due = true
		}
	}
	if due && !paused {
		return target // one write includes all changes that are not due yet
	}
	for k := range kinds {
		if next, has := target[k].Value(); due && has && next < c.Node.Present[k].Or(0) {
			want[k] = target[k] // one write includes all decreases
		}
	}
	v.Again = later
	if slow != "" && v.State == Published {
		v.say(Waiting, "%s", slow)
	}
	return want
}

// ppm returns v × millionths / 1,000,000, and does not overflow.
func ppm(v, millionths int64) int64 { return v/1_000_000*millionths + v%1_000_000*millionths/1_000_000 }
