package jobs

import (
	"math"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestAPartOfAJobCountsAsAWholeOne uses a row of 3 s in which an endless job
// did 60 frames. Since a whole job has 120 frames, the row must count as a job
// of 6 s.
func TestAPartOfAJobCountsAsAWholeOne(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	var all []Job
	for block := 1; block <= 2; block++ {
		for i := range 2 {
			in := at.Add(time.Duration(block) * time.Minute)
			all = append(all, Job{
				Type: "quota", Concurrency: 2, CPU: 500, Index: i, In: in, Out: in.Add(3 * time.Second), Precision: time.Nanosecond,
				Extra: Extra{
					Strategy: "quota", Block: block, Run: block, LocalJobs: node.Some(2.0),
					Work: node.Some(60.0), JobWork: node.Some(120.0), CPUSeconds: node.Some(1.5 * float64(block)),
				},
			})
		}
	}
	options := Options(Waves(all))
	if len(options) != 1 {
		t.Fatalf("%d options", len(options))
	}
	o := options[0]
	if o.Seconds.Value != 6 || o.Seconds.Blocks != 2 || o.Hourly.Value != 1200 || o.Cell.Concurrency != 2 {
		t.Errorf("%v s a job in %d blocks, %v jobs an hour, %d jobs", o.Seconds.Value, o.Seconds.Blocks, o.Hourly.Value, o.Cell.Concurrency)
	}
	if o.CPUSecondsBy[1] != 3 || o.CPUSecondsBy[2] != 6 || math.Abs(o.CPUSeconds-4.5) > 1e-9 {
		t.Errorf("CPU seconds %v, by block %v", o.CPUSeconds, o.CPUSecondsBy)
	}
}

// TestJobsThatFollowEachOtherInASlotAreOneWave checks jobs that follow each
// other in a slot. They must count neither as jobs beside each other nor as
// late jobs.
func TestJobsThatFollowEachOtherInASlotAreOneWave(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	job := func(run, index int, in, out time.Duration) Job {
		return Job{Type: "quota", Concurrency: 1, CPU: 500, Index: index, In: at.Add(in), Out: at.Add(out), Extra: Extra{Strategy: "quota", Run: run, LocalJobs: node.Some(1.0)}}
	}
	two := []Job{job(7, 0, 0, 2*time.Second), job(7, 0, 3*time.Second, 5*time.Second)}
	if w := Waves(two); len(w) != 1 || w[0].Slots() != 1 || w[0].Beside != 1 || w[0].Late {
		t.Errorf("%+v", w)
	}
	two[0].Extra.Run, two[1].Extra.Run = 0, 0
	if w := Waves(two); len(w) != 2 || !w[1].Late {
		t.Errorf("without a run, a second pod of a job is late: %+v", w)
	}
}

// TestEveryWaveOfABlockCounts uses two nodes. In each block, a cell has a wave
// of 2 s on one node and of 4 s on the other. The value of the block is the mean
// of both waves. A third wave has no duration, so it must not lower the means.
func TestEveryWaveOfABlockCounts(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	var all []Job
	for block := 1; block <= 2; block++ {
		in := at.Add(time.Duration(block) * time.Minute)
		for i, d := range []time.Duration{2 * time.Second, 4 * time.Second, 0} {
			all = append(all, Job{
				Host: []string{"a", "b", "c"}[i], Type: "quota", Concurrency: 3, CPU: 500, Index: i, In: in, Out: in.Add(d), Precision: time.Nanosecond,
				Extra: Extra{Strategy: "quota", Block: block, Run: block, LocalJobs: node.Some(1.0), CPUSeconds: node.Some(d.Seconds() / 2)},
			})
		}
	}
	options := Options(Waves(all))
	if len(options) != 1 {
		t.Fatalf("%d options", len(options))
	}
	o := options[0]
	if o.Seconds.Value != 3 || o.Seconds.Blocks != 2 || o.SecondsBy[1] != 3 || o.SecondsBy[2] != 3 || o.Hourly.Value != (1800+900)/2 {
		t.Errorf("%v s a job, by block %v, %v jobs an hour; want 3 s in each block and 1350", o.Seconds.Value, o.SecondsBy, o.Hourly.Value)
	}
	if o.CPUSeconds != 1.5 || o.CPUSecondsBy[1] != 1.5 || o.Beside != 1 || o.Waves != 4 {
		t.Errorf("%v CPU seconds, by block %v, %v jobs beside each other in %d waves; want 1.5, 1 and 4", o.CPUSeconds, o.CPUSecondsBy, o.Beside, o.Waves)
	}
	for i := range all {
		all[i].Out = all[i].In
	}
	if options := Options(Waves(all)); len(options) != 0 {
		t.Errorf("jobs without a duration are %d options", len(options))
	}
}
