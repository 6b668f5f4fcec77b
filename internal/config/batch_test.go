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

// TestAFaultDoesNotSwitchTheGateOff reads batch-config with a fault, with and without a
// former content, and no ConfigMap at all.
func TestAFaultDoesNotSwitchTheGateOff(t *testing.T) {
	on, _ := ParseConfigMap(map[string]string{keyBatch: `{"gate": true}`})
	none, _ := ParseConfigMap(nil)
	faulty, _ := ParseConfigMap(map[string]string{keyBatch: `{"gate": "yes"}`})
	for name, x := range map[string]struct {
		last  Cluster
		data  map[string]string
		lacks bool
	}{
		"the key is missing":              {Cluster{}, map[string]string{keyColocation: `{"enable": true}`}, false},
		"the ConfigMap is empty":          {Cluster{}, nil, false},
		"switched off":                    {Cluster{}, map[string]string{keyBatch: `{"gate": false}`}, false},
		"a fault":                         {Cluster{}, map[string]string{keyBatch: `{"gate": "yes"}`}, true},
		"no JSON":                         {Cluster{}, map[string]string{keyBatch: `gate: true`}, true},
		"a fault again":                   {faulty, map[string]string{keyBatch: `{"gate": 7}`}, true},
		"a fault that is removed":         {faulty, nil, false},
		"a fault after it was on":         {on, map[string]string{keyBatch: `{"gate": "yes"}`}, false},
		"a fault after a missing key":     {none, map[string]string{keyBatch: `{"gate": "yes"}`}, true},
		"a fault of another key":          {Cluster{}, map[string]string{keyBatch: `{"gate": true}`, keyColocation: "x"}, false},
		"a fault after the map was there": {on, map[string]string{keyBatch: "x", keyColocation: "x"}, false},
	} {
		c, _ := ParseConfigMapOver(x.last, x.data)
		if c.LacksBatch() != x.lacks {
			t.Errorf("%s: lacks %v", name, c.LacksBatch())
		}
	}
	if c := (Cluster{}); !c.LacksBatch() {
		t.Error("no ConfigMap counts as one that switches the gate off")
	}
}
