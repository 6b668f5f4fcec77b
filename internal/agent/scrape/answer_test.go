package scrape

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/node"
)

// A queryScene is a service with the source query, on a node whose clock is right.
type queryScene struct {
	t *testing.T
	Readers
	wall time.Time
	s    node.Snapshot
}

func newQueryScene(t *testing.T) *queryScene {
	q := &queryScene{t: t, wall: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	web := node.Workload{ID: "shop/web", Class: node.LS, Pod: true}
	web.Objective.Requests = node.RequestObjective{Source: node.SourceQuery, Series: node.Series{Family: "rtt_seconds", Unit: time.Second, Labels: [node.MaxLabels]node.Label{{Name: "code", Value: "200"}}}}
	web.Objective.Requests.Within[4] = 5 * time.Millisecond
	q.s = node.Snapshot{At: time.Unix(5000, 0), Workloads: []node.Workload{web}}
	q.follow()
	return q
}

func (q *queryScene) want() *node.RequestObjective { return &q.s.Workloads[0].Objective.Requests }

func (q *queryScene) follow() { q.Follow([]Target{{Workload: "shop/web", Want: *q.want()}}) }

// answer returns an answer of the given age.
func (q *queryScene) answer(age time.Duration, counts ...int64) v1alpha1.QueriedService {
	at := metav1.NewMicroTime(q.wall.Add(-age))
	s := v1alpha1.QueriedService{Namespace: "shop", Pod: "web", Series: v1alpha1.RequestSeries{Family: "rtt_seconds", Labels: map[string]string{"code": "200"}}, At: &at, Counts: counts}
	s.Ends = []string{"0.005", "0.25", "+Inf"}[3-len(counts):]
	return s
}

// reads takes answers, and returns the reading in the next snapshot.
func (q *queryScene) reads(all ...v1alpha1.QueriedService) node.Requests {
	q.Answer(all, q.wall)
	q.s.Workloads[0].Usage.Requests = node.Requests{}
	q.Fill(&q.s)
	return q.s.Workloads[0].Usage.Requests
}

// TestAnAnswerIsAReading takes answers one after the other, of which some are repeated.
func TestAnAnswerIsAReading(t *testing.T) {
	q := newQueryScene(t)
	defer q.Close()
	if got := q.reads(); got.Trouble != node.TroubleNoAnswer || !got.At.IsZero() {
		t.Errorf("before an answer: %+v", got)
	}
	first := q.reads(q.answer(20*time.Second, 10, 30, 31))
	if !slices.Equal(first.Counts, []uint64{10, 20, 1}) || !slices.Equal(first.Bounds, []time.Duration{5 * time.Millisecond, 250 * time.Millisecond}) || first.Trouble != "" {
		t.Errorf("read %+v", first)
	}
	if age := q.s.At.Sub(first.At); age < 20*time.Second || age > 25*time.Second {
		t.Errorf("the reading is %v old, want 20 s", age)
	}
	q.wall, q.s.At = q.wall.Add(5*time.Second), q.s.At.Add(5*time.Second)
	if again := q.reads(q.answer(25*time.Second, 10, 30, 31)); !again.Equal(first) {
		t.Errorf("the answer again is read as %+v", again)
	}
	if old := q.reads(q.answer(40*time.Second, 1, 3, 3)); !old.Equal(first) {
		t.Errorf("an answer from before is read as %+v", old)
	}
	if next := q.reads(q.answer(2*time.Second, 11, 31, 32)); !next.At.After(first.At) || next.Counts[0] != 11 {
		t.Errorf("the next answer is read as %+v", next)
	}
	ahead := q.reads(q.answer(-2*time.Second, 12, 32, 33))
	if ahead.At.After(q.s.At) || ahead.Counts[0] != 12 {
		t.Errorf("an answer of a clock that is a little fast is read as %+v", ahead)
	}
}

// TestAnAnswerThatCannotBeUsedKeepsTheLastOne takes answers that are stale, from the
// future, damaged, or about something else.
func TestAnAnswerThatCannotBeUsedKeepsTheLastOne(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(q *queryScene, s *v1alpha1.QueriedService)
		want   node.SourceTrouble // "": the answer is for something else
	}{
		"stale":           {func(q *queryScene, s *v1alpha1.QueriedService) { *s = q.answer(61*time.Second, 12, 32, 33) }, node.TroubleStale},
		"the future":      {func(q *queryScene, s *v1alpha1.QueriedService) { *s = q.answer(-6*time.Second, 12, 32, 33) }, node.TroubleFuture},
		"without a time":  {func(_ *queryScene, s *v1alpha1.QueriedService) { s.At = nil }, node.TroubleDamaged},
		"a reason":        {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Trouble = "tls" }, node.TroubleTLS},
		"fewer above":     {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Counts[1] = 5 }, node.TroubleDamaged},
		"below zero":      {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Counts[0] = -1 }, node.TroubleDamaged},
		"too many":        {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Counts[2] = 1 << 60 }, node.TroubleDamaged},
		"no end":          {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Ends[2] = "1" }, node.TroubleDamaged},
		"an end of NaN":   {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Ends[0] = "NaN" }, node.TroubleDamaged},
		"an end twice":    {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Ends[1] = "5e-3" }, node.TroubleDamaged},
		"no bound":        {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Ends[0] = "" }, node.TroubleDamaged},
		"a count less":    {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Counts = s.Counts[1:] }, node.TroubleDamaged},
		"nothing":         {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Ends, s.Counts = nil, nil }, node.TroubleAbsent},
		"another pod":     {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Pod = "db" }, ""},
		"another place":   {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Namespace = "bank" }, ""},
		"another name":    {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Series.Family = "other_seconds" }, ""},
		"another label":   {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Series.Labels["code"] = "500" }, ""},
		"one label more":  {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Series.Labels["a"] = "b" }, ""},
		"without a label": {func(_ *queryScene, s *v1alpha1.QueriedService) { s.Series.Labels = nil }, ""},
		"another objective": {func(q *queryScene, _ *v1alpha1.QueriedService) {
			q.want().Source, q.want().Port = node.SourceMetrics, 1
			q.Follow([]Target{{Workload: "shop/web", Want: *q.want(), Trouble: node.TroubleOff}})
		}, node.TroubleOff},
	} {
		q := newQueryScene(t)
		last := q.reads(q.answer(20*time.Second, 10, 30, 31))
		s := q.answer(time.Second, 12, 32, 33)
		tc.change(q, &s)
		got := q.reads(s)
		if got.Trouble != tc.want {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
		if tc.want != node.TroubleOff && (!got.At.Equal(last.At) || !slices.Equal(got.Counts, last.Counts)) {
			t.Errorf("%s: %+v, want that of before, %+v", name, got, last)
		}
		q.Close()
	}
}
