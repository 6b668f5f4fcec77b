package nodereport

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/trial"
)

// trialsOf returns the results of the trials of isolation mechanisms. It
// returns nil if the agent has examined no mechanism yet.
func trialsOf(v trial.Status) *v1alpha1.Trials {
	if v.Why == "" && v.Since.IsZero() && len(v.Results) == 0 {
		return nil
	}
	t := &v1alpha1.Trials{Kept: string(v.Kept), Trying: string(v.Trying), Why: clip(v.Why)}
	if !v.Since.IsZero() {
		since := metav1.NewTime(v.Since.Truncate(time.Second))
		t.Since = &since
	}
	for _, r := range v.Results {
		one := v1alpha1.TrialResult{
			Candidate: string(r.Candidate), Against: string(r.Against), Finding: string(r.Finding), Why: clip(r.Why),
			Ended: metav1.NewTime(r.Ended.Truncate(time.Second)), Pairs: int32(r.Pairs),
			Without: duration(r.Without), With: duration(r.With),
			Ratio: thousandths(r.Ratio), Low: thousandths(r.Low), High: thousandths(r.High), More: int32(r.More),
		}
		for _, s := range r.Services {
			one.Services = append(one.Services, v1alpha1.TrialService{
				Name: s.Name, Pairs: int32(s.Pairs), Without: duration(s.HourWithout), With: duration(s.HourWith),
			})
		}
		t.Results = append(t.Results, one)
	}
	return t
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// thousandths converts a ratio to thousandths. The API has no floating-point
// numbers, because clients in other languages round them differently.
func thousandths(ratio float64) int64 { return int64(math.Round(1000 * min(ratio, 1e9))) }

// sameTrials reports whether two reports have the same results of trials. It
// ignores the number of pairs of a running trial, which changes every ten
// seconds and is not worth a report.
func sameTrials(a, b *v1alpha1.Trials) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kept != b.Kept || a.Trying != b.Trying || len(a.Results) != len(b.Results) {
		return false
	}
	for i := range a.Results {
		if !a.Results[i].Ended.Equal(&b.Results[i].Ended) {
			return false
		}
	}
	return true
}
