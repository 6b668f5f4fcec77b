package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
)

// TestFallsCountForAnHour: what is remembered and what the host tells is one
// list.
func TestFallsCountForAnHour(t *testing.T) {
	now := time.Unix(100000, 0)
	at := func(ago time.Duration) node.Fall { return node.Fall{At: now.Add(-ago), Rung: node.RungSchedExt} }
	vendor := node.Fall{At: now.Add(-time.Minute), Rung: node.RungVendor}
	for name, c := range map[string]struct{ known, seen, want []node.Fall }{
		"none":                        {},
		"told twice":                  {[]node.Fall{at(2)}, []node.Fall{at(2), at(1)}, []node.Fall{at(2), at(1)}},
		"of two rungs at once":        {[]node.Fall{at(time.Minute)}, []node.Fall{vendor}, []node.Fall{vendor, at(time.Minute)}},
		"the host has forgotten":      {[]node.Fall{at(3), at(2)}, nil, []node.Fall{at(3), at(2)}},
		"an hour ago":                 {[]node.Fall{at(time.Hour)}, []node.Fall{at(time.Hour)}, nil},
		"almost an hour ago":          {[]node.Fall{at(time.Hour - 1)}, nil, []node.Fall{at(time.Hour - 1)}},
		"of a boot with a later time": {[]node.Fall{at(-time.Minute)}, nil, nil},
		"while the node was read":     {nil, []node.Fall{at(-1)}, []node.Fall{at(-1)}},
	} {
		if diff := cmp.Diff(c.want, fallsOf(c.known, c.seen, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestARungWaitsAfterFalls: each failure counts, ejections more than refusals.
func TestARungWaitsAfterFalls(t *testing.T) {
	start := time.Unix(100000, 0)
	for name, c := range map[string]struct {
		after   []time.Duration // of start
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
		falls := []node.Fall{{At: start, Rung: node.RungVendor}}
		for _, d := range c.after {
			falls = append(falls, node.Fall{At: start.Add(d), Rung: node.RungSchedExt, Refused: c.refused})
		}
		asked, want := time.Time{}, time.Time{}
		if c.asked > 0 {
			asked = start.Add(c.asked)
		}
		if c.retry > 0 {
			want = start.Add(c.retry)
		}
		fell, down, retry := waitsFor(node.RungSchedExt, falls, asked)
		if fell != c.fell || down != c.down || !retry.Equal(want) {
			t.Errorf("%s: fell %d times, down %v, again at %v; want %d, %v, %v", name, fell, down, retry, c.fell, c.down, want)
		}
	}
}

func TestServicesNeverYield(t *testing.T) {
	c := CPUQOS{Identity: map[node.Class]node.Identity{node.LS: node.IdentityBE, node.BE: node.IdentityBE, node.System: node.IdentityBE}}
	for class, want := range map[node.Class]node.Identity{
		node.LS: node.IdentityNone, node.LSE: node.IdentityExpels, node.BE: node.IdentityBE, node.System: node.IdentityNone,
	} {
		if got := c.identity(class); got != want {
			t.Errorf("%s gets the identity %v, want %v", class, got, want)
		}
	}
}

// TestDoctorSeesTheLadder: the answer does not need a snapshot.
func TestDoctorSeesTheLadder(t *testing.T) {
	yes := node.Answer{Verdict: node.Yes, Why: "seen"}
	can := node.Capabilities{node.MechSchedExt: yes, node.MechCPUIdle: yes}
	for name, c := range map[string]struct {
		c    CPUQOS
		i    node.Isolation
		want node.Rung
	}{
		"nothing against it":   {want: node.RungSchedExt},
		"another one is there": {i: node.Isolation{Foreign: "scx_other"}, want: node.RungIdle},
		"pinned":               {c: CPUQOS{Rung: node.RungIdle}, want: node.RungIdle},
		"asked for by hand":    {c: CPUQOS{Rung: node.RungIdle}, i: node.Isolation{Asked: node.Asked{Rung: node.RungSchedExt}}, want: node.RungSchedExt},
		"an unknown word":      {c: CPUQOS{Rung: "turbo"}, want: node.RungSchedExt},
	} {
		got := Ladder(c.c, can, c.i)
		if got.Rung != c.want || got.Why == "" || len(got.Rungs) != len(node.Rungs) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
		for _, r := range got.Rungs {
			if r.Why == "" {
				t.Errorf("%s: nothing is said of %s", name, r.Rung)
			}
		}
	}
}
