package isolation

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

func TestServicesNeverYield(t *testing.T) {
	c := Config{Identity: map[node.Class]node.Identity{node.LS: node.IdentityBE, node.BE: node.IdentityBE, node.System: node.IdentityBE}}
	for class, want := range map[node.Class]node.Identity{
		node.LS: node.IdentityNone, node.LSE: node.IdentityExpels, node.BE: node.IdentityBE, node.System: node.IdentityNone,
	} {
		if got := c.identity(class); got != want {
			t.Errorf("%s gets the identity %v, want %v", class, got, want)
		}
	}
}

// TestDoctorSeesTheSelection calls Mechanisms as the command doctor does, which
// has no snapshot.
func TestDoctorSeesTheSelection(t *testing.T) {
	yes := node.Answer{Verdict: node.Yes, Why: "seen"}
	can := node.Capabilities{node.FeatureSchedExt: yes, node.FeatureCPUIdle: yes}
	for name, c := range map[string]struct {
		c    Config
		i    node.Isolation
		want node.Mechanism
	}{
		"nothing against it":   {want: node.MechanismSchedExt},
		"another one is there": {i: node.Isolation{Foreign: "scx_other"}, want: node.MechanismIdle},
		"pinned":               {c: Config{Mechanism: node.MechanismIdle}, want: node.MechanismIdle},
		"asked for by hand":    {c: Config{Mechanism: node.MechanismIdle}, i: node.Isolation{Request: node.Request{Mechanism: node.MechanismSchedExt}}, want: node.MechanismSchedExt},
		"an unknown word":      {c: Config{Mechanism: "turbo"}, want: node.MechanismSchedExt},
	} {
		got := Mechanisms(c.c, can, c.i)
		if got.Mechanism != c.want || got.Why == "" || len(got.Mechanisms) != len(node.Mechanisms) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
		for _, r := range got.Mechanisms {
			if r.Why == "" {
				t.Errorf("%s: no entry for %s", name, r.Mechanism)
			}
		}
	}
}
