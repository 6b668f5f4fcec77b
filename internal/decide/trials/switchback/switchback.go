// Package switchback compares an isolation mechanism, the candidate, with the
// mechanism in use, on the services of the node itself. It uses the two in
// turn, in pairs of short epochs in random order (a switchback experiment). It
// keeps the candidate only if the pairs show two facts: the services together
// wait less for a CPU, and no single service waits much longer. In a tie, the
// mechanism in use stays.
package switchback

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

const (
	// epoch is the length of an epoch. The first part of an epoch (settle) does
	// not count, because its waits may come from before the switch.
	epoch  = 5 * time.Second
	settle = 500 * time.Millisecond
	// switchWithin is the maximum time between the request for a mechanism and
	// its effect. On slow machines, it takes seconds to load a BPF scheduler.
	switchWithin = 30 * time.Second
	// A round of trials begins only after services, CPUs and candidates have
	// stayed the same for calmTime.
	calmTime = time.Minute
	// roundInterval is the shortest time from the beginning of one round to the
	// beginning of the next.
	roundInterval = 6 * time.Hour
	// patience is the number of pairs that a trial may lose. A pair is lost if
	// services or BE did not run in it, or if counters were reset.
	patience = 32
	// maxTrial is the maximum duration of a trial. After that it ends without a
	// finding.
	maxTrial = 90 * time.Minute
	// namesKnown is the maximum number of names of services that the state
	// remembers.
	namesKnown = 1024
)

// An Input holds the facts about the node in one tick.
type Input struct {
	At time.Time
	// Off is the reason why no trial may run, for example that the owner has
	// chosen the mechanism. It is empty if trials may run.
	Off string
	// Candidates are the mechanisms that may help on this node, in the order in
	// which trials compare them. The mechanism that needs no trial is not in
	// the list. Failed holds those of them that have failed and wait for their
	// next attempt.
	Candidates, Failed []node.Mechanism
	// Lost is the reason why the node does not offer State.Kept any more. It is
	// empty if the node does. Down says that the mechanism has failed and waits
	// for its next attempt.
	Lost string
	Down bool
	// Base is the mechanism that needs no trial. It is empty if that is the
	// least weight.
	Base node.Mechanism
	// CPUs is a hash of the CPUs of the node. Places says how services are
	// bound to them, sorted (see PlacesOf).
	CPUs   uint64
	Places []Place
	// Workloads are the counters of all LS work whose waits the kernel counts.
	// The key is the workload's name (see ServiceName).
	Workloads map[string]Count
	// Passing are those of the workloads that end by themselves, or are a part of
	// Tenon, sorted. Their waits count, and their arrival changes nothing.
	Passing []string
	// BE says whether best-effort work runs. If none runs, no mechanism has an
	// effect.
	BE bool
	// Missed is the reason why an objective is missed. It is empty if none is
	// missed.
	Missed string
	// InForce says whether all knobs have the values of the mechanism that
	// State.Use returned.
	InForce bool
}

// A State is the data that the package keeps between ticks. The zero State is
// the state before the first tick.
type State struct {
	At time.Time `json:"at,omitzero"` // the last tick
	// Base, CPUs and Candidates come from the last Input. Names are the services
	// that were seen so far. Places are their places since findings were last
	// dropped. Changed is the time of the last change of these, and What
	// describes that change.
	Base       node.Mechanism   `json:"base,omitempty"`
	CPUs       uint64           `json:"cpus,omitempty"`
	Places     []Place          `json:"places,omitempty"`
	Candidates []node.Mechanism `json:"candidates,omitempty"`
	Names      []string         `json:"names,omitempty"`
	Changed    time.Time        `json:"changed,omitzero"`
	What       string           `json:"what,omitempty"`
	// Round is the time at which the last round began. It is zero if there was
	// none. Left are the candidates that have not been tried yet in the round.
	// Tried are the candidates about which there is a finding that still holds.
	// Due says that there may be others.
	Round time.Time        `json:"round,omitzero"`
	Left  []node.Mechanism `json:"left,omitempty"`
	Share int              `json:"share,omitempty"` // the number of candidates of the round
	Tried []node.Mechanism `json:"tried,omitempty"`
	Due   bool             `json:"due,omitempty"`
	// Kept is the mechanism that the trials kept, or empty for the floor. Since
	// is the time at which it was kept.
	Kept    node.Mechanism `json:"kept,omitempty"`
	Since   time.Time      `json:"since,omitzero"`
	Results []trial.Result `json:"results,omitempty"`
	Trial   Trial          `json:"trial,omitzero"`
	// Why says what the trials do now, or what they wait for.
	Why string `json:"why,omitempty"`
}

// Use returns the mechanism to use now. Empty means the floor.
func (st State) Use() node.Mechanism {
	if st.Trial.running() && st.Trial.usesCandidate() {
		return st.Trial.Candidate
	}
	return st.Kept
}

// Shown returns the state as users see it.
func (st State) Shown() trial.Status {
	v := trial.Status{Kept: st.Kept, Since: st.Since, Trying: st.Trial.Candidate, Pairs: len(st.Trial.Logs), Why: st.Why, Results: st.Results}
	if st.Due && !st.Round.IsZero() && !st.Trial.running() && len(st.Left) == 0 {
		v.Next = st.Round.Add(roundInterval)
	}
	return v
}

// Follow returns the state after a tick. It changes nothing in st.
func (st State) Follow(in Input) State {
	if st.At.After(in.At) { // from before a reboot
		st = State{}
	}
	st.At = in.At
	if in.Off != "" {
		return State{At: in.At, Names: st.Names, Round: st.Round, Why: in.Off}
	}
	st = st.compare(in)
	if st.Since.IsZero() {
		st.Since = in.At
	}
	switch {
	case st.Trial.running():
		return st.advance(in)
	case len(st.Left) > 0:
		return st.beginTrial(in)
	}
	return st.wait(in)
}

// compare finds out what has changed since the last tick. If the services or
// their CPUs have, the trial in progress ends and no finding holds any longer.
// A candidate that comes or goes changes no finding about the others, unless it
// was kept: the others were compared with it.
func (st State) compare(in Input) State {
	fresh := st.freshNames(in)
	moved := st.movedService(in)
	what := ""
	switch {
	case st.Changed.IsZero():
		what = "the agent has started"
	case st.Base != in.Base:
		what = "the configuration changes the mechanism that needs no trial"
	case st.CPUs != in.CPUs:
		what = "the CPUs of the node have changed"
	case in.Lost != "":
		what = fmt.Sprintf("the node does not offer %s any more: %s", st.Kept, in.Lost)
	case len(fresh) == 1:
		what = "the service " + fresh[0] + " is new"
	case len(fresh) > 1:
		what = fmt.Sprintf("%d services are new, %s among them", len(fresh), fresh[0])
	case moved != "":
		what = "the CPUs of the service " + moved + " have changed"
	}
	offered := freshOf(slices.Concat(st.Candidates, st.Tried), in.Candidates)
	st.Base, st.CPUs, st.Candidates = in.Base, in.CPUs, in.Candidates
	st.Names, st.Places = st.withNames(in, fresh), st.withPlaces(in, what != "")
	if what == "" {
		if len(offered) > 0 {
			st.Changed, st.What, st.Due = in.At, fmt.Sprintf("the node offers %s now", offered[0]), true
		}
		return st
	}
	if st.Kept != "" {
		st.Kept, st.Since = "", in.At
	}
	if st.Trial.running() {
		st = st.end(trial.Failed, what, paired.Judgement{}, in)
	}
	st.Changed, st.What, st.Due, st.Left, st.Tried = in.At, what, true, nil, nil
	return st
}

// freshOf returns the mechanisms in now that are not in before.
func freshOf(before, now []node.Mechanism) []node.Mechanism {
	return slices.DeleteFunc(slices.Clone(now), func(m node.Mechanism) bool { return slices.Contains(before, m) })
}

// wait begins the next round, or sets Why to the reason why it must wait.
func (st State) wait(in Input) State {
	if !st.Due {
		return st
	}
	left := freshOf(st.Tried, in.Candidates)
	hold := st.What
	switch next := st.Round.Add(roundInterval); {
	case len(in.Candidates) == 0:
		st.Why = "no other mechanism can help here"
		return st
	case len(left) == 0:
		st.Due, st.Why = false, "there is a finding about each mechanism that can help here"
		return st
	case !st.Round.IsZero() && in.At.Before(next):
		st.Why = fmt.Sprintf("%s: the next trials begin %v after the last ones", hold, roundInterval)
		return st
	case in.At.Sub(st.Changed) < calmTime:
		st.Why = fmt.Sprintf("%s: trials begin when nothing has changed for %v", hold, calmTime)
		return st
	}
	if why := idleReason(in); why != "" {
		st.Why = why
		return st
	}
	st.Round, st.Due, st.Left, st.Share = in.At, false, left, len(left)
	st.Results = slices.DeleteFunc(slices.Clone(st.Results), func(r trial.Result) bool {
		return r.Finding == trial.Failed || !slices.Contains(st.Tried, r.Candidate)
	})
	return st.beginTrial(in)
}

// idleReason returns the reason why a trial could not measure anything now, or
// "" if a trial could.
func idleReason(in Input) string {
	switch {
	case len(in.Workloads) == 0:
		return "the waits of no service are counted"
	case !in.BE:
		return "no best-effort work runs"
	case in.Missed != "":
		return "an objective is missed: " + in.Missed
	}
	return ""
}

// beginTrial begins the trial of the next candidate of the round that can be
// used now. It drops candidates that the node does not offer any more.
func (st State) beginTrial(in Input) State {
	st.Left = slices.DeleteFunc(slices.Clone(st.Left), func(m node.Mechanism) bool { return !slices.Contains(in.Candidates, m) })
	if why := idleReason(in); why != "" {
		st.Why = why
		return st
	}
	if in.Down {
		st.Why = fmt.Sprintf("%s has failed and is in use again later", st.Kept)
		return st
	}
	at := slices.IndexFunc(st.Left, func(m node.Mechanism) bool { return !slices.Contains(in.Failed, m) })
	if at < 0 {
		if len(st.Left) > 0 {
			st.Why = fmt.Sprintf("%s has failed and is tried again later", st.Left[0])
		}
		return st
	}
	candidate := st.Left[at]
	st.Trial = Trial{
		Candidate: candidate, Against: st.Kept, Began: in.At, Seed: seedOf(in.At, candidate), Pause: true, Asked: in.At, Start: in.Workloads,
	}
	st.Left = slices.Delete(st.Left, at, at+1)
	return st.say()
}

// say sets Why while a trial is in progress.
func (st State) say() State {
	against := "the floor"
	if st.Trial.Against != "" {
		against = string(st.Trial.Against)
	}
	st.Why = fmt.Sprintf("tries %s against %s: %d pairs so far", st.Trial.Candidate, against, len(st.Trial.Logs))
	return st
}
