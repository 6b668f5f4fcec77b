package trend

import (
	"maps"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

func TestRateNeedsTwoReadingsInOrder(t *testing.T) {
	if r, ok := Rate(time.Second, 3*time.Second, time.Second); !ok || r != 2000 {
		t.Errorf("2 s of CPU in 1 s is %v, %v", r, ok)
	}
	if _, ok := Rate(2, 1, time.Second); ok {
		t.Error("a counter that went back made a rate")
	}
	if _, ok := Rate(1, 2, 0); ok {
		t.Error("no time made a rate")
	}
}

func TestDecayForgetsInTau(t *testing.T) {
	if got := Decay(1000, 0, time.Second, time.Second); got != 368 {
		t.Errorf("after one tau %v of 1000m is left, want 368m", got)
	}
	if got := Decay(1000, 500, time.Minute, time.Second); got != 500 {
		t.Errorf("after a minute the mean is %v, want the sample", got)
	}
	if got := Decay(1000, 7, time.Second, 0); got != 7 {
		t.Errorf("without memory the mean is %v", got)
	}
}

func TestFollowKeepsWhatHasTwoReadings(t *testing.T) {
	type cpus = map[string]unit.MilliCPU
	type readings = map[string]time.Duration
	for name, c := range map[string]struct {
		mean          cpus
		before, after readings
		tau           time.Duration
		want          cpus
	}{
		"a mean moves":               {cpus{"a": 1000}, readings{"a": 0}, readings{"a": 0}, time.Second, cpus{"a": 368}},
		"a first sample is the mean": {nil, readings{"a": 0}, readings{"a": time.Second}, time.Second, cpus{"a": 1000}},
		"no memory, only the sample": {cpus{"a": 1000}, readings{"a": 0}, readings{"a": time.Second / 2}, 0, cpus{"a": 500}},
		"a new counter has no rate":  {nil, nil, readings{"a": time.Second}, time.Second, cpus{}},
		"a lost counter is dropped":  {cpus{"a": 1000}, readings{"a": 0}, nil, time.Second, cpus{}},
		"a reset counter is dropped": {cpus{"a": 1000}, readings{"a": 5}, readings{"a": 1}, time.Second, cpus{}},
	} {
		if got := Follow(c.mean, c.before, c.after, time.Second, c.tau); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		samples := Follow(nil, c.before, c.after, time.Second, 0)
		if got := Smooth(c.mean, samples, time.Second, c.tau); !maps.Equal(got, c.want) {
			t.Errorf("%s: from samples %v, want %v", name, got, c.want)
		}
	}
}
