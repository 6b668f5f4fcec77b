package switchback

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"tenon.sh/tenon/internal/decide/paired"
	"tenon.sh/tenon/internal/model/trial"
)

const (
	// within is the ratio up to which a single service may be said to wait no
	// longer, and sure the probability with which its upper bound must lie
	// below.
	within = 1.10
	sure   = 0.95
	// gain is the ratio that a candidate must be able to reach. If the pairs show
	// that it does not, the trial ends before its last look.
	gain = 0.90
	// keptFrom is the number of pairs from which a candidate may be kept. Fewer
	// pairs may all have missed an epoch in ten in which it makes services wait
	// long.
	keptFrom = 32
	// costShare is the part of the waiting of a service in the time every that
	// all trials of a round together may add. A trial ends at 0.4 of it, because
	// the cost is seen a tick later.
	costShare = 0.02
)

// rule is the rule of a trial: looks of which each may be wrong with a
// probability of 1.25 % on each side. Four would be enough where services wait
// evenly; the fifth finds a fifth of the waiting where a pair has a standard
// deviation of 0.5, and the sixth where one epoch of ten is bad for all.
func rule() paired.Rule {
	looks := []int{8, 16, 32, 64, 128, 256}
	return paired.Rule{Looks: looks, Alpha: 0.0125 * float64(len(looks)), Least: 8, LeastSkewed: 8}
}

// look judges the trial, if this number of pairs is one of the planned looks.
func (st State) look(in Input) State {
	t, r := st.Trial, rule()
	if !r.IsLook(len(t.Logs)) {
		return st.say()
	}
	logs := make([]float64, len(t.Logs))
	for i, v := range t.Logs {
		logs[i] = float64(v) / 1000
	}
	j := r.Judge(logs)
	last := len(logs) == r.Last()
	harmed, certain := t.harmed()
	switch below := j.Below(1) && len(logs) >= keptFrom; {
	case below && harmed == "" && !t.dearer():
		return st.end(trial.Kept, "the services wait less with it", j, in)
	case j.Above(1):
		return st.end(trial.Worse, "the services wait longer with it", j, in)
	case certain:
		return st.end(trial.Harmed, harmed+" waits longer with it", j, in)
	case below && last && harmed == "":
		return st.end(trial.NoGain, "most epochs have less waiting with it, but all together have not", j, in)
	case below && last:
		return st.end(trial.Harmed, harmed+" may wait longer with it, though all together wait less", j, in)
	case last:
		return st.end(trial.NoGain, fmt.Sprintf("no difference shows in %d pairs", len(logs)), j, in)
	case j.Above(gain) || hopeless(len(logs), max(j.Mean, j.Median)):
		return st.end(trial.NoGain, "it does not save a tenth of the waiting", j, in)
	}
	return st.say()
}

// hopeless reports whether a trial of that many pairs is not worth more of them. at
// is the logarithm of their mean or median ratio, whichever is larger. Without
// this, a candidate that harms where services wait unevenly would cost twice as
// much with the last look as without it.
func hopeless(pairs int, at float64) bool {
	switch {
	case pairs >= 128:
		return at > math.Log(gain)/2
	case pairs >= 64:
		return at > 0
	}
	return false
}

// dearer reports whether all epochs with the candidate together have no less
// waiting for each wait than those without it. The logarithms of the pairs give a
// few very bad epochs little weight, and for a service these are most of what it
// waits. Each service has the weight of its waits, as in pairOf.
func (t Trial) dearer() bool {
	var without, with float64
	for _, name := range sortedNames(t.By) {
		x := t.By[name]
		weight := float64(x.Without.Waits + x.With.Waits)
		without += weight * (x.Without.mean() + resolution)
		with += weight * (x.With.mean() + resolution)
	}
	return with >= without
}

// harmed returns the name of a service of which the pairs do not show that it
// waits at most within times as long; empty: there is none. It is certain if they
// show that the service waits longer. Services that waited too rarely are not
// judged alone.
func (t Trial) harmed() (name string, certain bool) {
	for _, s := range sortedNames(t.By) {
		x := t.By[s]
		if x.Pairs < rule().Least {
			continue
		}
		n := float64(x.Pairs)
		mean := x.Sum / n
		deviation := math.Sqrt(max(x.Squares-n*mean*mean, 0) / (n - 1) / n)
		student := distuv.StudentsT{Sigma: 1, Nu: n - 1}
		switch {
		case mean-student.Quantile(1-rule().Spends()/float64(len(t.By)))*deviation > 0:
			return s, true
		case name == "" && mean+student.Quantile(sure)*deviation >= math.Log(within):
			name = s
		}
	}
	return name, false
}

// cost returns the reason why the trial costs a service too much; empty: it does
// not. The cost is what the service waited since the candidate was asked for
// beyond as many waits without it. share is the number of candidates that share
// what a round may cost.
func (t Trial) cost(in Input, share int) string {
	now := t.spent(in)
	if t.For <= 0 {
		return ""
	}
	part := 0.4 * costShare / float64(max(share, 1))
	may := part * float64(every) / float64(t.For)
	for _, name := range sortedNames(now) {
		x := now[name]
		if x.Without.Waits < leastWaits {
			continue
		}
		added := float64(x.Spent.Waited) - float64(x.Spent.Waits)*x.Without.mean()
		if added > may*float64(x.Without.Waited+resolution*time.Duration(x.Without.Waits)) {
			return fmt.Sprintf("%s waited %v longer with it: more than %g %% of its waiting in %v", name,
				time.Duration(added).Round(time.Millisecond), 100*part, every)
		}
	}
	return ""
}
