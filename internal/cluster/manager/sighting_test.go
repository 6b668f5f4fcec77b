package manager

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

func TestAReportIsAsOldAsItsLastChangeByItsAgent(t *testing.T) {
	at := epoch
	s := newSightings(func() time.Time { return at })
	report := func(reported time.Time, run string, sequence int64) *v1alpha1.NodeReport {
		return &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.NodeReportStatus{Reported: metav1.NewMicroTime(reported), Run: run, Sequence: sequence}}
	}
	expect := func(what string, got Sighting, seen time.Time, fresh bool) {
		t.Helper()
		if !got.Seen.Equal(seen) || got.Fresh != fresh {
			t.Errorf("%s: seen after %v, fresh %v; want %v, %v", what, got.Seen.Sub(epoch), got.Fresh, seen.Sub(epoch), fresh)
		}
	}
	if got := s.see(&v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); got.Batch != nil {
		t.Error("an empty report counts")
	}
	first := report(epoch.Add(-time.Minute), "a", 1)
	expect("young by its own clock", s.see(first), epoch, true)
	at = at.Add(time.Minute)
	first.Status.Published = &v1alpha1.Published{Reason: "x"}
	expect("what the manager writes", s.see(first), epoch, true)
	second := report(epoch.Add(time.Hour), "a", 2)
	expect("a change, by a clock that is an hour ahead", s.see(second), at, true)

	s.forget("n1")
	at = at.Add(time.Minute)
	expect("not young after a restart of the manager", s.see(report(epoch.Add(-time.Hour), "a", 3)), at, false)
	last := at
	at = at.Add(time.Minute)
	expect("and not by waiting", s.see(report(epoch.Add(-time.Hour), "a", 3)), last, false)
	expect("but by a change", s.see(report(epoch.Add(-time.Hour+time.Second), "a", 4)), at, true)
	s.forget("n1")
	expect("ahead by an hour", s.see(report(at.Add(time.Hour), "b", 1)), at, false)
}
