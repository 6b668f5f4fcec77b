package isolation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
)

// TestFallsCountForAnHour checks how FailuresOf merges the remembered failures
// with those that the host saw.
func TestFallsCountForAnHour(t *testing.T) {
	now := time.Unix(100000, 0)
	at := func(ago time.Duration) node.Failure {
		return node.Failure{At: now.Add(-ago), Mechanism: node.MechanismSchedExt}
	}
	vendor := node.Failure{At: now.Add(-time.Minute), Mechanism: node.MechanismVendor}
	for name, c := range map[string]struct{ known, seen, want []node.Failure }{
		"none":                        {},
		"reported twice":              {[]node.Failure{at(2)}, []node.Failure{at(2), at(1)}, []node.Failure{at(2), at(1)}},
		"of two mechanisms at once":   {[]node.Failure{at(time.Minute)}, []node.Failure{vendor}, []node.Failure{vendor, at(time.Minute)}},
		"the host has forgotten":      {[]node.Failure{at(3), at(2)}, nil, []node.Failure{at(3), at(2)}},
		"an hour ago":                 {[]node.Failure{at(time.Hour)}, []node.Failure{at(time.Hour)}, nil},
		"almost an hour ago":          {[]node.Failure{at(time.Hour - 1)}, nil, []node.Failure{at(time.Hour - 1)}},
		"of a boot with a later time": {[]node.Failure{at(-time.Minute)}, nil, nil},
		"while the node was read":     {nil, []node.Failure{at(-1)}, []node.Failure{at(-1)}},
	} {
		if diff := cmp.Diff(c.want, FailuresOf(c.known, c.seen, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAMechanismWaitsAfterFailures checks that each failure counts. A failure
// of a mechanism in use must count more than a refusal.
func TestAMechanismWaitsAfterFailures(t *testing.T) {
	start := time.Unix(100000, 0)
	for name, c := range map[string]struct {
		after   []time.Duration // times of the failures, from start
		refused bool
		asked   time.Duration
		fell    int
		down    bool
		retry   time.Duration
	}{
		"once":                                   {after: []time.Duration{1}, fell: 1, retry: 1 + time.Minute},
		"twice":                                  {after: []time.Duration{1, 2}, fell: 2, retry: 2 + 2*time.Minute},
		"three times":                            {after: []time.Duration{1, 2, 3}, fell: 3, down: true, retry: 1 + time.Hour},
		"four times":                             {after: []time.Duration{1, 2, 3, 4}, fell: 4, down: true, retry: 2 + time.Hour},
		"the third just before the hour is over": {after: []time.Duration{1, 2, time.Hour - time.Second}, fell: 3, down: true, retry: time.Hour - time.Second + 4*time.Minute},
		"refused three times":                    {after: []time.Duration{1, 2, 3}, refused: true, fell: 3, retry: 3 + 4*time.Minute},
		"refused very often":                     {after: []time.Duration{1, 2, 3, 4, 5, 6, 7}, refused: true, fell: 7, retry: 7 + 30*time.Minute},
		"an operator has asked since":            {after: []time.Duration{1, 2, 3}, asked: 3},
		"and it fell again":                      {after: []time.Duration{1, 2, 3, 5}, asked: 4, fell: 1, retry: 5 + time.Minute},
	} {
		failures := []node.Failure{{At: start, Mechanism: node.MechanismVendor}}
		for _, d := range c.after {
			failures = append(failures, node.Failure{At: start.Add(d), Mechanism: node.MechanismSchedExt, Refused: c.refused})
		}
		asked, want := time.Time{}, time.Time{}
		if c.asked > 0 {
			asked = start.Add(c.asked)
		}
		if c.retry > 0 {
			want = start.Add(c.retry)
		}
		fell, down, retry := RetryOf(node.MechanismSchedExt, failures, asked)
		if fell != c.fell || down != c.down || !retry.Equal(want) {
			t.Errorf("%s: fell %d times, down %v, again at %v; want %d, %v, %v", name, fell, down, retry, c.fell, c.down, want)
		}
	}
}
