package config

import "testing"

// TestTheGateIsOffUnlessItIsSwitchedOn reads batch-config. It has no entries for some
// nodes, and a fault keeps the last content.
func TestTheGateIsOffUnlessItIsSwitchedOn(t *testing.T) {
	on, _ := ParseConfigMap(map[string]string{keyBatch: `{"gate": true}`})
	for text, want := range map[string]struct{ gate, noticed, faulty bool }{
		``:                                    {},
		`{}`:                                  {},
		`{"gate": false}`:                     {},
		`{"gate": true}`:                      {gate: true},
		`{"gate": 1}`:                         {gate: true},
		`{"gates": true}`:                     {noticed: true},
		`{"gate": true, "nodeConfigs": [{}]}`: {gate: true, noticed: true},
		`{"gate": "yes"}`:                     {gate: true, faulty: true}, // the last content
	} {
		c, faults := ParseConfigMapOver(on, map[string]string{keyBatch: text})
		if c.GatesBatch() != want.gate || len(faults) > 0 != want.faulty || len(c.Notices()) > 0 != want.noticed {
			t.Errorf("%s: gate %v, faults %v, notices %q", text, c.GatesBatch(), faults, c.Notices())
		}
	}
	if c, _ := ParseConfigMapOver(on, nil); c.GatesBatch() {
		t.Error("a key that is gone is still in force")
	}
}
