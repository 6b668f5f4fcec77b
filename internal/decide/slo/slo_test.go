package slo

import (
	"fmt"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// kernelBuckets is the number of buckets of the kernel's histogram of waits.
const kernelBuckets = 29

func spreadOf(waits map[time.Duration]uint64) spread {
	d := node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, kernelBuckets)}
	for length, count := range waits {
		b := 0
		for b < kernelBuckets-1 && length >= node.DelayBound(b) {
			b++
		}
		d.Counts[b] += count
	}
	waited, ok := waitsBetween(node.RunQueueDelay{Counts: make([]uint64, kernelBuckets)}, d)
	if !ok {
		panic("the readings do not fit together")
	}
	return waited
}

// TestTheHistogramHidesNoMiss checks that the objective counts as missed if the
// waits that are longer are more than 1 of 100, plus the tolerance. This must hold
// wherever these waits lie in their bucket. The objective must count as met if all
// waits are shorter than half of it.
func TestTheHistogramHidesNoMiss(t *testing.T) {
	for want := 10 * time.Microsecond; want < time.Second; want = want * 11 / 10 {
		longer := want + want/8
		for _, c := range []struct {
			waits  map[time.Duration]uint64
			missed bool
		}{
			{map[time.Duration]uint64{want / 4: 1000, longer: 13}, true},
			{map[time.Duration]uint64{want / 4: 1000, longer: 12}, false},
			{map[time.Duration]uint64{want/2 - 1: 100000}, false},
			{map[time.Duration]uint64{longer: 3}, true},
			{map[time.Duration]uint64{longer: 2}, false},
			{nil, false},
		} {
			d := spreadOf(c.waits)
			if got := d.isMissed(want, 0); got != c.missed {
				t.Errorf("wants %v: waits %v are missed: %v", want, c.waits, got)
			}
			if c.missed && d.tail() <= want {
				t.Errorf("wants %v: waits %v miss it with a p99 of %v", want, c.waits, d.tail())
			}
		}
	}
	if got := spreadOf(map[time.Duration]uint64{100 * time.Hour: 3}); !got.isMissed(time.Hour, 0) {
		t.Error("waits beyond the last bucket are short")
	}
}

// TestAMeanIsJudgedByItsTail checks that a mean of 1 ms meets an objective of 5
// ms, which 99 of 100 waits must not exceed.
func TestAMeanIsJudgedByItsTail(t *testing.T) {
	d := spread{waits: 1000, sum: time.Second}
	if d.isMissed(5*time.Millisecond, 0) || !d.isMissed(5*time.Millisecond-1, 0) {
		t.Errorf("a mean of 1 ms has a tail of %v", d.tail())
	}
	if few := (spread{waits: enoughWaits - 1, sum: time.Hour}); few.isMissed(1, 0) {
		t.Error("a few waits make a mean")
	}
}

// TestADecreasedCounterBeginsANewWindow checks that a new window begins if a
// counter has decreased between two readings.
func TestADecreasedCounterBeginsANewWindow(t *testing.T) {
	full := node.RunQueueDelay{Sum: node.Some(time.Second), Counts: []uint64{5, 5}}
	for name, now := range map[string]node.RunQueueDelay{
		"a sum that fell":    {Sum: node.Some(time.Millisecond), Counts: []uint64{6, 6}},
		"a count that fell":  {Sum: node.Some(time.Minute), Counts: []uint64{4, 9}},
		"no histogram":       {Sum: node.Some(time.Minute)},
		"more buckets":       {Sum: node.Some(time.Minute), Counts: []uint64{9, 9, 9}},
		"turns in its place": {Sum: node.Some(time.Minute), Timeslices: node.Some[int64](7)},
	} {
		if d, ok := waitsBetween(full, now); ok {
			t.Errorf("%s makes a window: %+v", name, d)
		}
		f := State{Since: time.Unix(1, 0), Delay: full}.observe(time.Unix(2, 0), &node.Workload{Usage: node.Usage{Delay: now}}, 1, Reading{}, nil)
		if f.Miss.Happened() || !f.Since.Equal(time.Unix(2, 0)) {
			t.Errorf("%s: the window began at %v", name, f.Since)
		}
	}
}

// TestWorstMissFirst checks that the workload with the largest miss comes
// first.
func TestWorstMissFirst(t *testing.T) {
	x := Tracker{Work: map[node.WorkloadID]State{"c": {}}}
	for id, tail := range map[node.WorkloadID]time.Duration{"a": 15, "b": 90, "d": 15} {
		x.Work[id] = State{Miss: Miss{Workload: id, At: time.Unix(1, 0), Objective: 10, Tail: tail}}
	}
	var got []node.WorkloadID
	for _, m := range x.Violations() {
		got = append(got, m.Workload)
	}
	if want := fmt.Sprint([]node.WorkloadID{"b", "a", "d"}); fmt.Sprint(got) != want {
		t.Errorf("missed are %v, want %v", got, want)
	}
}

// TestAClockThatWasSetBackEndsNoMiss records a miss, and then sets the clock
// back. The SLO must count as met again after the usual time.
func TestAClockThatWasSetBackEndsNoMiss(t *testing.T) {
	now, future := time.Unix(1000, 0), time.Unix(1e6, 0)
	w := node.Workload{ID: "web"}
	w.Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, kernelBuckets)}
	f := State{Miss: Miss{At: future}, Since: future, Delay: w.Usage.Delay}.observe(now, &w, time.Millisecond, Reading{}, nil)
	if at := f.Miss.At; !at.Before(now) {
		t.Errorf("the last miss is of %v, now it is %v", at, now)
	}
	for i := range 3 {
		f = f.observe(now.Add(time.Duration(i+1)*longestWindow), &w, time.Millisecond, Reading{}, nil)
	}
	if f.Miss.Happened() {
		t.Error("the objective still counts as missed")
	}
}
