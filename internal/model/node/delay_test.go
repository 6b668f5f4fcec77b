package node

import (
	"testing"
	"time"
)

func TestQuantilesOfWaitsAreTheEndsOfTheirBuckets(t *testing.T) {
	before := RunQueueDelay{Sum: Some(time.Second), Counts: []uint64{5, 0, 0, 0}}
	now := RunQueueDelay{Sum: Some(3 * time.Second), Counts: []uint64{5, 98, 2, 0}}
	d := now.Since(before)
	if d.Sum != Some(2*time.Second) || d.Quantile(0.5) != Some(512*time.Nanosecond) || d.Quantile(0.99) != Some(1024*time.Nanosecond) {
		t.Errorf("%+v: P50 %v, P99 %v", d, d.Quantile(0.5), d.Quantile(0.99))
	}
	for what, none := range map[string]RunQueueDelay{
		"no waits":        now.Since(now),
		"made again":      before.Since(now),
		"no reading":      now.Since(RunQueueDelay{}),
		"the sum alone":   {Sum: Some(time.Second)},
		"the last bucket": {Counts: []uint64{0, 1}},
	} {
		if got := none.Quantile(0.99); got.Known() {
			t.Errorf("%s: P99 %v", what, got)
		}
	}
}
