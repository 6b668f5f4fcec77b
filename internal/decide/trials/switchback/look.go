package switchback

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/model/trial"
)

const (
	// A service is safe if its ratio (see pairOf) is below harmLimit with a
	// probability of harmConfidence.
	harmLimit      = 1.10
	harmConfidence = 0.95
	// gain is the ratio that a candidate must be able to reach. If the pairs
	// show that it cannot, the trial ends before its last look.
	gain = 0.90
	// keptFrom is the minimum number of pairs before a candidate can be kept. A
	// candidate may make services wait long in only one epoch of ten. Fewer
	// pairs may contain no such epoch.
	keptFrom = 32
	// costShare limits what the trials of one round may cost a service. Within
	// roundInterval, they may add this part to the waiting of the service. A
	// trial already ends at 0.35 of that, because its cost is seen one tick
	// later. After few epochs without the candidate, the usual waiting is not
	// well known, so the trial ends at 0.15 of that for each such epoch.
	costShare = 0.02
)

// rule returns the rule of a trial. At each look, the probability of an error is
// 1.25 % on each side. If services wait evenly, four looks would be enough. If the
// log ratio of a pair has a standard deviation of 0.5, the fifth look finds a
// saving of a fifth of the waiting. If, in addition, one epoch of ten is bad for
// all services, the sixth look finds this saving.
func rule() paired.Rule {
	looks := []int{8, 16, 32, 64, 128, 256}
	return paired.Rule{Looks: looks, Alpha: 0.0125 * float64(len(looks)), Least: 8, LeastSkewed: 8}
}

// look judges the trial if a look is planned at the present number of pairs.
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
	harmed, certain := t.harmedService()
	switch below := j.ShowsBelow(1) && len(logs) >= keptFrom; {
	case below && harmed == "" && !t.costsMore():
		return st.end(trial.Kept, "the services wait less with it", j, in)
	case j.ShowsAbove(1):
		return st.end(trial.Worse, "the services wait longer with it", j, in)
	case certain:
		return st.end(trial.Harmed, harmed+" waits longer with it", j, in)
	case below && last && harmed == "":
		return st.end(trial.NoGain, "most epochs have less waiting with it, but all together have not", j, in)
	case below && last:
		return st.end(trial.Harmed, harmed+" may wait longer with it, though all together wait less", j, in)
	case last:
		return st.end(trial.NoGain, fmt.Sprintf("no difference shows in %d pairs", len(logs)), j, in)
	case j.ShowsAbove(gain) || isHopeless(len(logs), max(j.Mean, j.Median)):
		return st.end(trial.NoGain, "it does not save a tenth of the waiting", j, in)
	}
	return st.say()
}

// isHopeless reports whether the trial should end because more pairs would
// hardly help. The argument at is the larger of the mean and the median of the
// log ratios. Without this check, a candidate that harms services with uneven
// waits would cost twice as much until the last look.
func isHopeless(pairs int, at float64) bool {
	switch {
	case pairs >= 128:
		return at > math.Log(gain)/2
	case pairs >= 64:
		return at > 0
	}
	return false
}

// costsMore reports whether the sum over all epochs shows no saving: with the
// candidate, the mean wait is not shorter than without it. The judgement of the
// pairs cannot replace this check. A few very bad epochs have little weight in
// logarithms, but may have most of the waiting of a service. The weight of a
// service is the number of its waits, as in pairOf.
func (t Trial) costsMore() bool {
	var without, with float64
	for _, name := range sortedNames(t.By) {
		x := t.By[name]
		weight := float64(x.Without.Waits + x.With.Waits)
		without += weight * (x.Without.Mean() + resolution)
		with += weight * (x.With.Mean() + resolution)
	}
	return with >= without
}

// harmedService returns the name of a service that may wait longer with the
// candidate, or "". The pairs do not show that its ratio is below harmLimit. If
// they show that it does wait longer, certain is true. A service with too few
// waits is not judged alone.
func (t Trial) harmedService() (name string, certain bool) {
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
		case name == "" && mean+student.Quantile(harmConfidence)*deviation >= math.Log(harmLimit):
			name = s
		}
	}
	return name, false
}

// cost returns the reason why the trial costs a service too much, or "" if it
// does not. The cost is the time that a service has waited while the candidate
// was requested, minus the time that as many waits take without it. share is
// the number of candidates among which the budget of a round is divided.
func (t Trial) cost(in Input, share int) string {
	now := t.spent(in)
	if t.CountedTime <= 0 {
		return ""
	}
	epochs := t.CountedTime.Seconds() / (epoch - settle).Seconds()
	part := min(0.35, 0.15*epochs) * costShare / float64(max(share, 1))
	may := part * float64(roundInterval) / float64(t.CountedTime)
	for _, name := range sortedNames(now) {
		x := now[name]
		if x.Without.Waits < minWaits {
			continue
		}
		added := float64(x.Spent.Waited) - float64(x.Spent.Waits)*x.Without.Mean()
		if added > may*float64(x.Without.Waited+resolution*time.Duration(x.Without.Waits)) {
			return fmt.Sprintf("%s waited %v longer with it: more than %g %% of its waiting in %v", name,
				time.Duration(added).Round(time.Millisecond), 100*part, roundInterval)
		}
	}
	return ""
}
