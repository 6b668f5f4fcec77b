package lab

import (
	"math"
	"testing"
	"time"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// steady is a course of one reading a second on 4 CPUs: LS uses 1 CPU, BE 2,
// others half of one, steal a tenth.
func steady(seconds int) []reading {
	var course []reading
	for i := range seconds + 1 {
		r := reading{at: time.Unix(int64(100+i), 0), limit: 2}
		s := float64(i)
		r.count = [numCounters]float64{lsUsage: s, beUsage: 2 * s, idle: 0.4 * s, steal: 0.1 * s, runDelay: 1e-3 * s, timeslices: 1000 * s, stalled: 0.25 * s}
		course = append(course, r)
	}
	return course
}

func TestUseIsDividedByClass(t *testing.T) {
	course := steady(10)
	from, to := course[0].at.Add(1500*time.Millisecond), course[0].at.Add(8700*time.Millisecond)
	u := between(readingAt(course, from), readingAt(course, to), 4)
	if !near(u.wall, 7.2) || !near(u.ls, 1) || !near(u.be, 2) || !near(u.other, 0.5) || !near(u.busy, 3.5) || !near(u.stealRatio, 0.025) {
		t.Errorf("%+v", u)
	}
	if !near(u.count[timeslices], 7200) || !near(u.count[runDelay], 7.2e-3) {
		t.Errorf("%v slices, %v s delay", u.count[timeslices], u.count[runDelay])
	}
}

func TestBusyIsNeverLessThanTheGroupsUsed(t *testing.T) {
	a, b := reading{at: time.Unix(0, 0)}, reading{at: time.Unix(1, 0)}
	b.count[lsUsage], b.count[idle] = 0.5, 0.9 // the idle counter has coarse steps
	if u := between(a, b, 1); !near(u.busy, 0.5) || u.other != 0 {
		t.Errorf("%+v", u)
	}
}

func TestReadingOutsideTheCourseIsItsEnd(t *testing.T) {
	course := steady(2)
	if got := readingAt(course, time.Unix(0, 0)); got != course[0] {
		t.Errorf("before: %+v", got)
	}
	if got := readingAt(course, time.Unix(1e6, 0)); got != course[2] {
		t.Errorf("after: %+v", got)
	}
	if got := readingAt(nil, time.Unix(5, 0)); got.count != [numCounters]float64{} {
		t.Errorf("no course: %+v", got)
	}
}

func TestSeriesCoversTheMeasuredPart(t *testing.T) {
	course := steady(10)
	s := samples(course, course[3].at, course[6].at, 4)
	if len(s) != 5 { // 2–3, 3–4, 4–5, 5–6, 6–7: the ends touch
		t.Fatalf("%d samples: %+v", len(s), s)
	}
	for _, p := range s {
		if !near(p.LS, 1) || !near(p.BE, 2) || !near(p.Other, 0.5) || p.Limit != 2 {
			t.Errorf("%+v", p)
		}
	}
}
