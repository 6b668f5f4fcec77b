package frame

import (
	"math"
	"testing"
	"time"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// steady returns one reading per second on 4 CPUs. LS uses 1 CPU, BE 2 CPUs,
// other work 0.5 CPUs, and steal is 0.1 CPUs.
func steady(seconds int) []Reading {
	var course []Reading
	for i := range seconds + 1 {
		r := Reading{At: time.Unix(int64(100+i), 0), limit: 2}
		s := float64(i)
		r.Count = [numCounters]float64{LSUsage: s, BEUsage: 2 * s, Idle: 0.4 * s, Steal: 0.1 * s, RunDelay: 1e-3 * s, Timeslices: 1000 * s, Stalled: 0.25 * s}
		course = append(course, r)
	}
	return course
}

func TestUseIsDividedByClass(t *testing.T) {
	course := steady(10)
	from, to := course[0].At.Add(1500*time.Millisecond), course[0].At.Add(8700*time.Millisecond)
	u := Between(ReadingAt(course, from), ReadingAt(course, to), 4)
	if !near(u.Wall, 7.2) || !near(u.LS, 1) || !near(u.BE, 2) || !near(u.other, 0.5) || !near(u.Busy, 3.5) || !near(u.StealRatio, 0.025) {
		t.Errorf("%+v", u)
	}
	if !near(u.Count[Timeslices], 7200) || !near(u.Count[RunDelay], 7.2e-3) {
		t.Errorf("%v timeslices, %v s of run-queue delay", u.Count[Timeslices], u.Count[RunDelay])
	}
}

func TestBusyIsNeverLessThanTheGroupsUsed(t *testing.T) {
	a, b := Reading{At: time.Unix(0, 0)}, Reading{At: time.Unix(1, 0)}
	b.Count[LSUsage], b.Count[Idle] = 0.5, 0.9 // the idle counter has coarse steps
	if u := Between(a, b, 1); !near(u.Busy, 0.5) || u.other != 0 {
		t.Errorf("%+v", u)
	}
}

func TestReadingOutsideTheCourseIsItsEnd(t *testing.T) {
	course := steady(2)
	if got := ReadingAt(course, time.Unix(0, 0)); got != course[0] {
		t.Errorf("before: %+v", got)
	}
	if got := ReadingAt(course, time.Unix(1e6, 0)); got != course[2] {
		t.Errorf("after: %+v", got)
	}
	if got := ReadingAt(nil, time.Unix(5, 0)); got.Count != [numCounters]float64{} {
		t.Errorf("no course: %+v", got)
	}
}

func TestSeriesCoversTheMeasuredPart(t *testing.T) {
	course := steady(10)
	s := samples(course, course[3].At, course[6].At, 4)
	if len(s) != 5 { // 2–3, 3–4, 4–5, 5–6, 6–7; samples at both ends count
		t.Fatalf("%d samples: %+v", len(s), s)
	}
	for _, p := range s {
		if !near(p.LS, 1) || !near(p.BE, 2) || !near(p.Other, 0.5) || p.Limit != 2 {
			t.Errorf("%+v", p)
		}
	}
}
