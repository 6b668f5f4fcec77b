package scrape

import (
	"math"
	"strconv"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// A reading from Prometheus must not be older than oldest, nor later than the
	// clock of this node by more than maxAhead. Two clocks never agree.
	oldest   = time.Minute
	maxAhead = 5 * time.Second
)

// Answer takes what the manager has read from Prometheus. now is the time by the
// clock of the node. Answers to other questions than those of the present objectives
// count for nothing.
func (r *Readers) Answer(all []v1alpha1.QueriedService, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range all {
		x := r.readers[node.WorkloadID(s.Namespace+"/"+s.Pod)]
		if x != nil && x.target.Trouble == "" && x.target.Want.Source == node.SourceQuery && answers(s.Series, x.target.Want.Series) {
			x.answered(s, now)
		}
	}
}

// answers reports whether a histogram that was asked for is the wanted one.
func answers(asked v1alpha1.RequestSeries, want node.Series) bool {
	labels := 0
	for _, l := range want.Labels {
		if l.Name == "" {
			continue
		}
		if value, has := asked.Labels[l.Name]; !has || value != l.Value {
			return false
		}
		labels++
	}
	return asked.Family == want.Family && len(asked.Labels) == labels
}

// answered takes one answer. The manager repeats an answer until it has another one.
func (x *reader) answered(s v1alpha1.QueriedService, now time.Time) {
	trouble := func(why node.SourceTrouble) { x.take(node.Requests{Trouble: why}, time.Time{}) }
	switch {
	case s.Trouble != "":
		trouble(node.SourceTrouble(s.Trouble))
		return
	case s.At == nil:
		trouble(node.TroubleDamaged)
		return
	}
	age := now.Sub(s.At.Time)
	switch {
	case age > oldest:
		trouble(node.TroubleStale)
		return
	case age < -maxAhead:
		trouble(node.TroubleFuture)
		return
	case !s.At.Time.After(x.answer):
		return
	}
	got, err := cumulative(s.Ends, s.Counts, x.target.Want.Series.Unit)
	if err != nil {
		trouble(fetch.TroubleOf(err))
		return
	}
	x.answer = s.At.Time
	x.take(got, time.Now().Add(-max(age, 0)))
}

// cumulative returns the requests by bucket of a histogram with these ends.
func cumulative(ends []string, counts []int64, unit time.Duration) (node.Requests, error) {
	if len(ends) != len(counts) {
		return node.Requests{}, fetch.Fault(node.TroubleDamaged)
	}
	sums, series := map[float64]float64{}, map[float64]int{}
	for i, text := range ends {
		end, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(end) || counts[i] < 0 || counts[i] > maxCount {
			return node.Requests{}, fetch.Fault(node.TroubleDamaged)
		}
		sums[end] += float64(counts[i])
		series[end]++
	}
	return histogramOf(sums, series, unit)
}
