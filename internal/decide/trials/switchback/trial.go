package switchback

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
)

// A Trial is a trial in progress. The zero Trial means that none runs.
type Trial struct {
	Candidate node.Mechanism `json:"candidate,omitempty"`
	Against   node.Mechanism `json:"against,omitempty"`
	Began     time.Time      `json:"began,omitzero"`
	// Seed decides the order of the epochs in each pair.
	Seed uint64 `json:"seed,omitempty"`
	// Pause says that this epoch does not use the candidate and belongs to no
	// pair. A trial begins with such an epoch, to measure how long services
	// wait without the candidate. Then the cost of the candidate is known from
	// its first epoch on. After each lost pair there is another such epoch.
	Pause bool `json:"pause,omitempty"`
	// Pair is the number of the pair. Lost pairs are numbered, too. Second says
	// that this epoch is the second one of its pair.
	Pair   int  `json:"pair,omitempty"`
	Second bool `json:"second,omitempty"`
	// Asked is the time at which the trial asked for the mechanism of this
	// epoch. Start has the counters at that time. InForce is the time at which
	// the mechanism took effect, or zero if it has no effect yet. The first
	// part of an epoch does not count. BaseAt is the end of that part, and Base
	// has the counters at that time. Before the end, Base is nil.
	Asked   time.Time        `json:"asked,omitzero"`
	Start   map[string]Count `json:"start,omitempty"`
	InForce time.Time        `json:"in_force,omitzero"`
	BaseAt  time.Time        `json:"base_at,omitzero"`
	Base    map[string]Count `json:"base,omitempty"`
	// First has the waits in the first epoch of the pair.
	First map[string]Count `json:"first,omitempty"`
	// Logs has the logarithm of the ratio of each pair, in thousandths.
	Logs []int            `json:"logs,omitempty"`
	By   map[string]Tally `json:"by,omitempty"`
	// CountedTime is the total length of all counted epochs without the
	// candidate. Lost is the number of pairs that do not count.
	CountedTime time.Duration `json:"for_ns,omitempty"`
	Lost        int           `json:"lost,omitempty"`
}

// A Tally holds the measurements of one service in a trial.
type Tally struct {
	// Without and With are the waits of the service in the counted epochs,
	// without the candidate and with it. Spent has all its waits while the
	// candidate was requested, except the waits of the epoch in progress.
	Without Count `json:"without,omitzero"`
	With    Count `json:"with,omitzero"`
	Spent   Count `json:"spent,omitzero"`
	// Pairs, Sum and Squares describe the logarithms of the service's ratios:
	// how many there are, their sum, and the sum of their squares.
	Pairs   int     `json:"pairs,omitempty"`
	Sum     float64 `json:"sum,omitempty"`
	Squares float64 `json:"squares,omitempty"`
}

func (t Trial) running() bool { return t.Candidate != "" }

// usesCandidate reports whether the present epoch uses the candidate.
func (t Trial) usesCandidate() bool {
	return t.running() && !t.Pause && mix(t.Seed+uint64(t.Pair))&1 == 1 != t.Second
}

// seedOf returns the seed of a trial that begins now. The seed depends only on
// the input, so a replay of a record has the same order of epochs.
func seedOf(at time.Time, m node.Mechanism) uint64 {
	v := mix(uint64(at.UnixNano()))
	for _, letter := range []byte(m) {
		v = mix(v ^ uint64(letter))
	}
	return v
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014).
func mix(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// advance advances the trial by one tick.
func (st State) advance(in Input) State {
	t := st.Trial
	switch {
	case !slices.Contains(in.Candidates, t.Candidate):
		return st.end(trial.Failed, "the node does not offer it any more", paired.Judgement{}, in)
	case slices.Contains(in.Failed, t.Candidate):
		return st.end(trial.Failed, "the mechanism failed", paired.Judgement{}, in)
	case in.Down:
		return st.end(trial.Failed, fmt.Sprintf("%s failed, with which it was compared", t.Against), paired.Judgement{}, in)
	case in.At.Sub(t.Began) >= maxTrial:
		return st.end(trial.Failed, fmt.Sprintf("the trial has taken %v", maxTrial), paired.Judgement{}, in)
	case in.Missed != "" && t.usesCandidate():
		return st.end(trial.Stopped, "an objective is missed: "+in.Missed, paired.Judgement{}, in)
	case in.Missed != "":
		return st.lose(in, "an objective is missed without it")
	}
	if why := t.cost(in, st.Share); why != "" {
		return st.end(trial.Stopped, why, paired.Judgement{}, in)
	}
	if t.InForce.IsZero() {
		switch {
		case in.InForce:
			t.InForce = in.At
		case in.At.Sub(t.Asked) >= switchWithin:
			return st.end(trial.Failed, fmt.Sprintf("not in force after %v", switchWithin), paired.Judgement{}, in)
		}
	} else if !in.InForce {
		return st.lose(in, "its knobs did not stay as they were set")
	}
	switch st.Trial = t; {
	case t.InForce.IsZero() || in.At.Sub(t.InForce) < settle:
	case t.Base == nil:
		st.Trial.Base, st.Trial.BaseAt = in.Workloads, in.At
	case in.At.Sub(t.InForce) >= epoch:
		return st.finish(in)
	}
	return st.say()
}

// lose drops the pair in progress. The next epoch is without the candidate.
func (st State) lose(in Input, why string) State {
	t := st.Trial
	t.By = t.spent(in)
	if !t.Pause {
		t.Lost++
	}
	if st.Trial = t; t.Lost > patience {
		return st.end(trial.Failed, fmt.Sprintf("%d pairs were lost, the last one because %s", t.Lost, why), paired.Judgement{}, in)
	}
	t.Pause, t.Second, t.First = true, false, nil
	st.Trial = t.enter(in)
	return st.say()
}

// enter begins an epoch: it asks for the mechanism of that epoch.
func (t Trial) enter(in Input) Trial {
	if !t.Second && !t.Pause {
		t.Pair++
	}
	t.Asked, t.Start = in.At, in.Workloads
	t.InForce, t.Base, t.BaseAt = time.Time{}, nil, time.Time{}
	return t
}

// finish ends an epoch during which the mechanism was in force all the time.
func (st State) finish(in Input) State {
	t := st.Trial
	waits := WaitsBetween(t.Base, in.Workloads)
	var all Count
	for _, c := range waits {
		all = all.Plus(c)
	}
	if all.Waits < minWaits {
		return st.lose(in, "the services hardly ran, or their own quotas throttled them")
	}
	if !t.usesCandidate() && !in.BE { // with the candidate, BE may have no CPU because of the candidate
		return st.lose(in, "no best-effort work ran")
	}
	t.By = t.spent(in)
	for name, c := range waits {
		x := t.By[name]
		if t.usesCandidate() {
			x.With = x.With.Plus(c)
		} else {
			x.Without = x.Without.Plus(c)
		}
		t.By[name] = x
	}
	if !t.usesCandidate() {
		t.CountedTime += in.At.Sub(t.BaseAt)
	}
	switch {
	case t.Pause:
		t.Pause = false
		st.Trial = t.enter(in)
		return st.say()
	case !t.Second:
		t.First, t.Second = waits, true
		st.Trial = t.enter(in)
		return st.say()
	}
	without, with := t.First, waits
	if !t.usesCandidate() {
		without, with = waits, t.First
	}
	log, one, ok := PairOf(without, with)
	if !ok {
		return st.lose(in, "other services ran in its second epoch")
	}
	t.Logs = append(slices.Clone(t.Logs), int(math.Round(1000*log)))
	for name, v := range one {
		x := t.By[name]
		x.Pairs, x.Sum, x.Squares = x.Pairs+1, x.Sum+v, x.Squares+v*v
		t.By[name] = x
	}
	t.Second, t.First = false, nil
	st.Trial = t.enter(in)
	return st.look(in)
}

// spent returns the tallies (By). If the present epoch uses the candidate,
// spent adds the waits of this epoch to Spent.
func (t Trial) spent(in Input) map[string]Tally {
	by := maps.Clone(t.By)
	if by == nil {
		by = map[string]Tally{}
	}
	if !t.usesCandidate() {
		return by
	}
	for name, c := range WaitsBetween(t.Start, in.Workloads) {
		x := by[name]
		x.Spent = x.Spent.Plus(c)
		by[name] = x
	}
	return by
}

// sortedNames returns the keys of a map in ascending order.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// end ends the trial with a finding. Only with the finding Kept does the
// candidate replace the mechanism in use. A trial that failed has shown nothing
// about the candidate, so the next round tries it again.
func (st State) end(f trial.Finding, why string, j paired.Judgement, in Input) State {
	t := st.Trial
	r := trial.Result{Candidate: t.Candidate, Against: t.Against, Finding: f, Why: why, Began: t.Began, Ended: in.At, Pairs: len(t.Logs)}
	if low, high := math.Min(j.MeanLower, j.MedianLower), math.Max(j.MeanUpper, j.MedianUpper); j.Pairs > 0 && !math.IsInf(low, 0) && !math.IsInf(high, 0) {
		r.Ratio, r.Low, r.High = math.Exp(j.Mean), math.Exp(low), math.Exp(high)
	}
	var without, with Count
	for _, name := range sortedNames(t.By) {
		x := t.By[name]
		without, with = without.Plus(x.Without), with.Plus(x.With)
		s := trial.Service{Name: name, Pairs: x.Pairs, Without: time.Duration(x.Without.Mean()), With: time.Duration(x.With.Mean())}
		if hours := t.CountedTime.Hours(); hours > 0 {
			s.HourWithout = time.Duration(float64(x.Without.Waited) / hours)
			s.HourWith = time.Duration(float64(x.Without.Waits) / hours * x.With.Mean())
		}
		if x.With.Waits == 0 {
			s.HourWith = s.HourWithout
		}
		r.Services = append(r.Services, s)
	}
	slices.SortFunc(r.Services, func(a, b trial.Service) int {
		return cmp.Or(cmp.Compare(b.HourWithout, a.HourWithout), strings.Compare(a.Name, b.Name))
	})
	if r.More = len(r.Services) - trial.MostServices; r.More > 0 {
		r.Services = slices.Clip(r.Services[:trial.MostServices])
	}
	r.More = max(r.More, 0)
	r.Without, r.With = time.Duration(without.Mean()), time.Duration(with.Mean())
	st.Trial = Trial{}
	st.Results = append(slices.Clone(st.Results), r)
	switch f {
	case trial.Failed:
		st.Due, st.What = true, fmt.Sprintf("the trial of %s failed", r.Candidate)
	case trial.Kept:
		st.Kept, st.Since = r.Candidate, in.At
		fallthrough
	default:
		st.Tried = append(slices.Clone(st.Tried), r.Candidate)
	}
	st.Why = fmt.Sprintf("%s was tried: %s", r.Candidate, f)
	return st
}
