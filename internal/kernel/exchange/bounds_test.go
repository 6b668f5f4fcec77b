package exchange

import (
	"slices"
	"testing"
	"time"
)

func TestBoundsHaveTheTargets(t *testing.T) {
	targets := []time.Duration{100 * time.Microsecond, 7 * time.Millisecond, 7*time.Millisecond + 1, 10 * time.Second, 42 * time.Second, time.Minute}
	all := Bounds(targets...)
	for _, target := range targets {
		if !slices.Contains(all, target) {
			t.Errorf("%v is no bound", target)
		}
	}
	if len(all) > maxBounds || all[0] != 10*time.Microsecond || all[len(all)-1] != 100*time.Second || !slices.IsSorted(all) {
		t.Errorf("%d bounds: %v", len(all), all)
	}
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] || all[i] > all[i-1]*4/3+1 {
			t.Errorf("%v comes after %v", all[i], all[i-1])
		}
	}
	if len(Bounds(0)) != len(Bounds()) {
		t.Error("a target of 0 is a bound")
	}
}
