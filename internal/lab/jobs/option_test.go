package jobs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/stat"
)

// ran returns jobs that began together on a node and took these seconds.
func ran(host string, hour int, seconds ...float64) []Job {
	var all []Job
	in := time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)
	for i, s := range seconds {
		all = append(all, Job{Host: host, Type: "quota", Concurrency: len(seconds), CPU: 1000, Index: i, In: in, Out: in.Add(time.Duration(s * float64(time.Second)))})
	}
	return all
}

// TestJobsEndInRoundsOfOneJobTime uses jobs of 30 s, eight at once, and of 25 s,
// one at once. In 34 s a node ends eight jobs, but no ninth.
func TestJobsEndInRoundsOfOneJobTime(t *testing.T) {
	all := Options(Waves(append(ran("n", 0, 25), ran("n", 1, 30, 30, 30, 30, 30, 30, 30, 30)...)))
	for _, c := range []struct {
		jobs   int
		within time.Duration
		at     int     // jobs at once; 0: nothing reaches the goal
		takes  float64 // seconds
	}{
		{1, 30 * time.Second, 8, 30}, {2, 10 * time.Second, 0, 0}, {1, 26 * time.Second, 1, 25}, {2, 31 * time.Second, 8, 30},
		{8, 30 * time.Second, 8, 30}, {9, 34 * time.Second, 0, 0}, {9, time.Minute, 8, 60}, {200, time.Hour, 8, 750},
	} {
		best, _, err := Best(all, Goal{Jobs: c.jobs, Within: c.within}, 1)
		switch {
		case c.at == 0:
			if !errors.Is(err, ErrNoOption) {
				t.Errorf("%d jobs within %v: %v, %v; want a refusal", c.jobs, c.within, best.Cell, err)
			}
		case err != nil || best.Cell.Concurrency != c.at || best.Finish(c.jobs) != c.takes:
			t.Errorf("%d jobs within %v: %d at once, %v s, %v; want %d, %v", c.jobs, c.within, best.Cell.Concurrency, best.Finish(c.jobs), err, c.at, c.takes)
		}
	}
	for g, want := range map[Goal]string{
		{Jobs: 2, Within: 10 * time.Second}:                             "one node needs 30.0 s for 2 jobs, 8 at once; no job ends in the time",
		{Jobs: 200, Within: time.Minute}:                                "one node needs 750 s for 200 jobs, 8 at once; in 60.0 s a node ends 16 jobs at most, so that 13 nodes would do",
		{Deadline: time.Second}:                                         "the slowest job of the fastest way took 25.0 s",
		{Jobs: 9, Within: 34 * time.Second, Deadline: 26 * time.Second}: "one node needs 225 s for 9 jobs, 1 at once; in 34.0 s a node ends 1 job at most, so that 9 nodes would do",
	} {
		if _, _, err := Best(all, g, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", g, err, want)
		}
	}
}

// TestEachMeasuredJobMeetsADeadline uses jobs of 2 s and of 58 s. Their mean is
// 30 s, but not each of them ends within 30 s.
func TestEachMeasuredJobMeetsADeadline(t *testing.T) {
	all := Options(Waves(append(ran("n", 0, 2, 58, 2, 58), ran("n", 1, 29)...)))
	best, _, err := Best(all, Goal{Deadline: 30 * time.Second}, 1)
	if err != nil || best.Cell.Concurrency != 1 {
		t.Errorf("each within 30 s: %v, %v; want one job at once, whose time is 29 s", best.Cell, err)
	}
	if best, _, err = Best(all, Goal{Deadline: time.Minute}, 1); err != nil || best.Cell.Concurrency != 4 || best.Longest != 58 {
		t.Errorf("each within 60 s: %v, %v", best.Cell, err)
	}
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{11776.7: "11800", 960: "960", 75: "75.0", 0.6667: "0.667", 0.05: "0.0500", 1: "1.00", 0: "0", -0.1321: "-0.132", 99.96: "100.0"} {
		if got := Figure(v); got != want {
			t.Errorf("%v is printed as %s, want %s", v, got, want)
		}
	}
}

// TestTimesAndRatesHavePositiveIntervals uses two nodes on which the same jobs
// took 60 s and 90 s.
func TestTimesAndRatesHavePositiveIntervals(t *testing.T) {
	o := Options(Waves(append(ran("a", 0, 60), ran("b", 0, 90)...)))[0]
	for name, e := range map[string]stat.Estimate{"seconds": o.Seconds, "jobs an hour": o.Hourly} {
		if e.Blocks != 2 || !(0 < e.Low && e.Low < e.Lower && e.Lower < e.Value && e.Value < e.Upper && e.Upper < e.High) {
			t.Errorf("%s: %+v; want bounds above 0 on both sides of the value", name, e)
		}
	}
	if o.Seconds.Value != 75 || o.Seconds.Median != 75 {
		t.Errorf("%+v: want the mean and the median of the measured times", o.Seconds)
	}
	if one := Options(Waves(ran("a", 0, 60)))[0].Seconds; one.Low > 0 {
		t.Errorf("one node: a bound of %v", one.Low)
	}
}
