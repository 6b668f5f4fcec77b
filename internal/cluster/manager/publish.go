package manager

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
)

// Pause is the least time between two writes of a node's status, except where
// batch work loses much: etcd and every scheduler get each of them.
const Pause = 10 * time.Second

// A Case holds all inputs of the decision on a node's batch resources.
type Case struct {
	At     time.Time
	Rules  policy.Overcommit
	Node   Facts
	Report Sighting
	Memory Memory
}

// A Sighting is a report, and what this process knows of its age.
type Sighting struct {
	Batch *v1alpha1.Batch // nil: the node has no report
	// Seen is when this process saw it change: the clock of the node decides
	// nothing.
	Seen time.Time
	// Fresh: it changed before this process's eyes, or calls itself young. A
	// report that is not may be as old as you like, so it raises nothing.
	Fresh bool
}

// Memory is the state of a node that is kept between two cases.
type Memory struct {
	// Wrote is when its amounts were last written. The zero time is long ago.
	Wrote time.Time
	// Refused is the time since which its reports have been refused or empty,
	// and Good the time of the last report that was neither.
	Refused, Good time.Time
}

// State says in one word what became of a report.
type State string

// The states of a node.
const (
	Off        State = "off"        // the owner does not want batch resources here
	Unreported State = "unreported" // there is no report
	Published  State = "published"  // the node has what is reported
	Bounded    State = "bounded"    // it has less, because the manager knows better
	Held       State = "held"       // it has more, because running pods request it
	Waiting    State = "waiting"    // it has less, because more is promised slowly
	Starting   State = "starting"   // the agent has only just started: what was there stays
	Doubtful   State = "doubtful"   // it has no more than before, until an input is known
	Refused    State = "refused"    // the report cannot be right: what was good before stays
	Stale      State = "stale"      // the report is too old: nothing is promised
)

// A Verdict is the decision on a node's batch resources, with its reason.
type Verdict struct {
	State  State
	Reason string
	// Want is the amounts for the status; absent: no such resource.
	Want [kinds]node.Maybe[int64]
	// Origin is the value for the annotation originExtendedAllocatable; empty:
	// there should be none.
	Origin string
	// Write: the status or the annotation is not like that.
	Write bool
	// Again is the time until the next look if nothing happens; 0: never.
	Again  time.Duration
	Memory Memory
}

// Decide says what a node's status should have of batch resources.
//
// It never promises more than the report does, unless that was promised before
// and running pods request it. It promises less where the node reserves more than
// the agent knew of, where the owner's threshold is lower, and where other
// schedulers have given away a part. Less is written at once; more at most every
// Pause, and if it is worth it.
func Decide(c Case) Verdict {
	v := Verdict{Memory: c.Memory}
	target, origin, all := v.target(c)
	raised := v.hold(c, target, all)
	v.Want = v.settle(c, raised)
	if c.Node.Shared && origin != nothing {
		// What is held for pods is not there for other schedulers: these are told
		// what there would be without it, so that they give way.
		theirs := v.Want
		for k := range kinds {
			if raised[k] != target[k] {
				theirs[k] = target[k]
			}
		}
		v.Origin = originOf(before(origin, theirs, c.Node.Elsewhere))
	}
	v.Write = v.Want != c.Node.Present || v.Want != c.Node.Capped
	if v.Origin != c.Node.Origin && !v.Write {
		// While an amount is held, the annotation alone follows each report.
		rest := Pause - c.At.Sub(c.Memory.Wrote)
		if v.Write = raised == target || rest <= 0; !v.Write {
			v.Again = min(v.Again, rest)
		}
	}
	return v
}

// hold raises a target to what running pods request, and never above what the
// node has. A kubelet that starts admits all pods of its node anew, also those
// that run, and ends those for which the node has less.
//
// This lets no other pod in: to the scheduler nothing is left of a resource that
// pods request in full. Where one ends another may come before the amount has
// followed; but that one is not counted as requested, so that the amount falls
// as pods end. It protects no service less: what the agent does for them goes by
// what is used, and not by what is published. And as no more is held than there
// is, a false report gains nothing; it makes a fall late.
//
// A target that is absent stays so: where colocation is off, or no agent
// manages the node, nothing is promised, and a kubelet that starts then ends
// batch work. A report that is refused for what it promises may hold, too: what
// there was stays but for the owner's threshold, and that is no reason to end
// work.
func (v *Verdict) hold(c Case, target [kinds]node.Maybe[int64], all [kinds]claim) [kinds]node.Maybe[int64] {
	var notes []string
	for k := range kinds {
		next, has := target[k].Value()
		floor := min(all[k].requested, c.Node.Present[k].Or(0), k.bounded(c))
		if !has || floor <= next {
			continue
		}
		target[k] = node.Some(floor)
		notes = append(notes, fmt.Sprintf("%v: running pods request %s: with less, a kubelet that restarts ends them", k, k.readable(all[k].requested)))
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

// nothing is no batch resource at all.
var nothing [kinds]node.Maybe[int64]

// say sets the state and its reason.
func (v *Verdict) say(s State, format string, args ...any) {
	v.State, v.Reason = s, fmt.Sprintf(format, args...)
}

// target is what should be promised if nothing had to be slow, after and before
// what other schedulers gave away is taken from it. All is what the report says,
// as far as it can be read.
func (v *Verdict) target(c Case) (target, origin [kinds]node.Maybe[int64], all [kinds]claim) {
	switch {
	case !c.Rules.Enable:
		v.say(Off, "colocation is not enabled for this node")
		return nothing, nothing, all
	case c.Report.Batch == nil:
		v.say(Unreported, "the node's agent has not reported")
		return nothing, nothing, all
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
		return nothing, nothing, all
	}
	v.Again = max(left, time.Millisecond)
	v.say(Published, "as the agent reports")
	switch {
	case err != nil:
		v.say(Refused, "the report is refused: %v", err)
		return v.keep(c), v.keep(c), all
	case starting:
		v.say(Starting, "the agent has just started: what it promised before stays until it has measured")
		target = v.soFar(c, all)
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
			notes = append(notes, fmt.Sprintf("%v: %s of it are given away by others (thirdPartyAllocations)", k, k.readable(c.Node.Elsewhere[k])))
		}
	}
	if len(notes) > 0 {
		v.say(Bounded, "%s", strings.Join(notes, "; "))
	}
	switch {
	case len(c.Node.Faults) > 0:
		v.say(Doubtful, "more is promised when all is known: %s", strings.Join(c.Node.Faults, "; "))
	case !c.Report.Fresh:
		v.say(Doubtful, "more is promised when the agent reports again: nobody knows how old its report is")
	default:
		return target, origin, all
	}
	return lower(target, v.keep(c)), origin, all
}

// before is what there would be if other schedulers had given away nothing.
func before(origin, want [kinds]node.Maybe[int64], elsewhere [kinds]int64) [kinds]node.Maybe[int64] {
	for k := range kinds {
		if w := want[k].Or(0); w > 0 {
			origin[k] = node.Some(w + elsewhere[k])
		}
	}
	return origin
}

// startingUp reports whether an agent has found no amount yet: it has measured
// nothing, or not for long enough to promise anything. Its 0 is no finding: to
// publish it would take the resource from all that runs whenever an agent is
// updated, and a kubelet that starts meanwhile ends what the node has not got.
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

// soFar is what the node has, and no more than an agent has measured that has
// just started.
func (v *Verdict) soFar(c Case, all [kinds]claim) [kinds]node.Maybe[int64] {
	kept := v.keep(c)
	for k := range kinds {
		if present, has := kept[k].Value(); has && all[k].held {
			kept[k] = node.Some(min(present, max(0, all[k].formula-c.Node.Elsewhere[k])))
		}
	}
	return kept
}

// judge reads the report and compares it with the node.
func (v *Verdict) judge(c Case) ([kinds]claim, error) {
	all, err := claims(*c.Report.Batch)
	if err != nil {
		return all, err
	}
	for k := range kinds {
		if all[k].amount > k.bounded(c) {
			return all, fmt.Errorf("%v: %s are reported of a node that has %s", k, k.readable(all[k].amount), k.readable(c.Node.Capacity[k]))
		}
	}
	return all, nil
}

// bounded is more than any promise of a node can be.
func (k kind) bounded(c Case) int64 {
	return percent(c.Node.Capacity[k], max(100, k.reclaim(c.Rules).ThresholdPercent))
}

// bound works a claim out again with what the manager knows of the node, and
// says why the result is less than what is claimed.
//
//	min(share) − max(use of the system, reservation) − what the others count for
func (k kind) bound(one claim, c Case) (int64, string) {
	r := k.reclaim(c.Rules)
	capacity, most := c.Node.Capacity[k], k.ceiling(c)
	amount, why := min(one.amount, most), ""
	if one.sum {
		share := min(one.share, percent(capacity, r.ThresholdPercent))
		system := max(one.system, k.reserved(c))
		amount = min(amount, max(0, share-system-one.others))
	}
	switch {
	case amount == one.amount:
	case one.system < k.reserved(c):
		why = fmt.Sprintf("%s are reserved for the node, more than the agent counts", k.readable(k.reserved(c)))
	case most < one.amount:
		why = fmt.Sprintf("no more than %s by the owner's thresholds", k.readable(most))
	default:
		why = fmt.Sprintf("the owner's threshold is %v now, the agent goes by another", r.ThresholdPercent)
	}
	return amount, why
}

// reserved is the amount reserved from all pods, by the kubelet or by the
// node's annotation.
func (k kind) reserved(c Case) int64 {
	if k == cpu {
		return max(c.Node.Reserved[k], int64(c.Rules.ReservedCPU))
	}
	return max(c.Node.Reserved[k], int64(c.Rules.ReservedMemory))
}

// ceiling is the most that may be promised, whatever is reported.
func (k kind) ceiling(c Case) int64 {
	r := k.reclaim(c.Rules)
	most := max(0, percent(c.Node.Capacity[k], r.ThresholdPercent)-k.reserved(c))
	if p, limited := r.LimitPercent.Value(); limited {
		most = min(most, percent(c.Node.Capacity[k], max(0, p)))
	}
	return most
}

// keep is what the node has, as far as the owner still allows it.
func (v *Verdict) keep(c Case) [kinds]node.Maybe[int64] {
	kept := c.Node.Present
	for k := range kinds {
		if present, has := kept[k].Value(); has {
			kept[k] = node.Some(min(max(0, present), k.ceiling(c)))
		}
	}
	return kept
}

// lower is the smaller of two, resource by resource; what one of them has not,
// neither has the result.
func lower(a, b [kinds]node.Maybe[int64]) (low [kinds]node.Maybe[int64]) {
	for k := range kinds {
		x, hasX := a[k].Value()
		y, hasY := b[k].Value()
		if hasX && hasY {
			low[k] = node.Some(min(x, y))
		}
	}
	return low
}

// settle decides how much of the way to the target is gone now.
func (v *Verdict) settle(c Case, target [kinds]node.Maybe[int64]) [kinds]node.Maybe[int64] {
	age := c.At.Sub(c.Memory.Wrote)
	paused := age < Pause
	want, due, slow := c.Node.Present, false, ""
	later := v.Again
	wait := func(d time.Duration) { later = min(later, d) }
	for k := range kinds {
		next, has := target[k].Value()
		present, had := c.Node.Present[k].Value()
		worth := ppm(present, c.Rules.WorthPPM)
		switch more := next - present; {
		case !has || (had && more < 0 && (next == 0 || -more > worth || !paused)):
			want[k] = target[k] // less, and much less: at once
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
		return target // whatever else has changed goes with it
	}
	v.Again = later
	if slow != "" && v.State == Published {
		v.say(Waiting, "%s", slow)
	}
	return want
}

// ppm is so many millionths of v.
func ppm(v, millionths int64) int64 { return v/1_000_000*millionths + v%1_000_000*millionths/1_000_000 }
