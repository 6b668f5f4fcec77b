package cpus

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// TestEveryGrowthHasWords has a pool that grew or gave back CPUs for each reason.
func TestEveryGrowthHasWords(t *testing.T) {
	set := unit.CPUSetOf(4, 5)
	for want, g := range map[string][]Growth{
		"grew into CPUs 4-5: latency-sensitive work used 91 % of its CPUs for 3s, and 2 % of these for 10s": {
			{Code: GrowthFull, CPUs: set, Full: 91, FullFor: 3 * time.Second, Percent: 2, For: 10 * time.Second},
		},
		"gave back CPUs 4-5: others own 4 or keep them, CPUs 4-5: other services use 80 % of them": {
			{Code: GrowthTaken, CPUs: set, Taken: unit.CPUSetOf(4)}, {Code: GrowthBusy, CPUs: set, Percent: 80},
		},
		"gave back CPUs 4-5: they are in no cache beside its home any more":           {{Code: GrowthAway, CPUs: set}},
		"gave back CPUs 4-5: the use of each CPU by web is not counted":               {{Code: GrowthUncounted, CPUs: set, Workload: "web"}},
		"gave back CPUs 4-5: web waits longer than its objective":                     {{Code: GrowthOtherWaits, CPUs: set, Workload: "web"}},
		"gave back CPUs 4-5: the rest would have been used to 70 % at most for 1m0s":  {{Code: GrowthSpare, CPUs: set, Percent: 70, For: time.Minute}},
		"gave back CPUs 4-5: the pod used less than 50 % of its CPU request for 1m0s": {{Code: GrowthIdle, CPUs: set, Percent: 50, For: time.Minute}},
	} {
		if got := growthText(g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
