package trend

import (
	"testing"
	"time"
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
