package config

import (
	"testing"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const colocates = `{"enable":true}`

// TestARolloutNeedsAMargin reads rollout-config. A fault keeps the last content.
func TestARolloutNeedsAMargin(t *testing.T) {
	for text, want := range map[string]struct{ enabled, faulty bool }{
		``:                                   {},
		`{}`:                                 {},
		`{"enable":false}`:                   {},
		`{"enable":true}`:                    {faulty: true},
		`{"enable":true,"marginPercent":10}`: {enabled: true},
		`{"enable":true,"marginPercent":0}`:  {faulty: true},
		`{"enable":true,"marginPercent":10,"stagePercents":[10,50,100],"epochMinutes":18}`:                                              {enabled: true},
		`{"enable":true,"marginPercent":10,"stagePercents":[50,10]}`:                                                                    {faulty: true},
		`{"enable":true,"marginPercent":10,"stagePercents":[0]}`:                                                                        {faulty: true},
		`{"enable":true,"marginPercent":10,"epochMinutes":17}`:                                                                          {faulty: true},
		`{"enable":false,"epochMinutes":3}`:                                                                                             {faulty: true},
		`{"enable":true,"marginPercent":10,"nodeSelectr":{"matchLabels":{"pool":"a"}}}`:                                                 {faulty: true},
		`{"enable":true,"marginPercent":10,"nodeSelector":{"matchLabel":{"pool":"a"}}}`:                                                 {faulty: true},
		`{"enable":true,"marginPercent":10,"nodeSelector":{"matchLabels":{"tenon.sh/rollout":"on"}}}`:                                   {faulty: true},
		`{"enable":true,"marginPercent":10,"nodeSelector":{"matchExpressions":[{"key":"tenon.sh/rollout","operator":"DoesNotExist"}]}}`: {faulty: true},
		`{"enable":true,"marginPercent":10,"nodeSelector":{"matchLabels":{"pool":"a"}},"attempt":2}`:                                    {enabled: true},
		`{"enable":true,"marginPercent":10,"nodeSelector":{"matchExpressions":[{"key":"pool","operator":"In"}]}}`:                       {faulty: true},
	} {
		c, faults := ParseConfigMap(map[string]string{keyColocation: colocates, keyRollout: text})
		r, enabled := c.Rollout()
		if enabled != want.enabled || len(faults) > 0 != want.faulty || c.LacksRollout() != want.faulty {
			t.Errorf("%s: enabled %v, faults %v, lacks %v", text, enabled, faults, c.LacksRollout())
		}
		if err := r.Rules().Check(); enabled && err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	on, _ := ParseConfigMap(map[string]string{keyColocation: colocates, keyRollout: `{"enable":true,"marginPercent":10}`})
	if c, _ := ParseConfigMapOver(on, map[string]string{keyColocation: colocates, keyRollout: `{"enable":true}`}); c.LacksRollout() {
		t.Error("a fault forgets the last content")
	} else if r, enabled := c.Rollout(); !enabled || r.Rules().Margin != 10 {
		t.Errorf("after a fault there is %+v", r)
	}
}

// TestANodeIsOffUnlessTheRolloutHasItOn has nodes with each value of the label.
func TestANodeIsOffUnlessTheRolloutHasItOn(t *testing.T) {
	const some = `{"enable":true,"marginPercent":10,"nodeSelector":{"matchLabels":{"pool":"a"}}}`
	for name, x := range map[string]struct {
		text, pool, label string
		off               bool
	}{
		"no rollout":                         {``, "a", "", false},
		"no rollout any more":                {``, "a", RolloutOff, false},
		"never, without a rollout":           {``, "a", RolloutNever, true},
		"selected, not seen yet":             {some, "a", "", true},
		"on":                                 {some, "a", RolloutOn, false},
		"off":                                {some, "a", RolloutOff, true},
		"never":                              {some, "a", RolloutNever, true},
		"an unknown value":                   {some, "a", "On", true},
		"not selected":                       {some, "b", "", false},
		"not selected, but never":            {some, "b", RolloutNever, true},
		"a fault, and it was on":             {`{"enable":1e9}`, "a", RolloutOn, false},
		"a fault, and it was off":            {`{"enable":1e9}`, "a", RolloutOff, true},
		"a fault, and nothing else is known": {`{"enable":true}`, "b", "", false},
		"a fault in one that is disabled":    {`{"enable":false,"epochMinutes":3}`, "a", "", false},
	} {
		c, _ := ParseConfigMap(map[string]string{keyColocation: `{"enable":true}`, keyThreshold: `{"enable":false,"cpuEvictThresholdPercent":80}`, keyRollout: x.text})
		labels := map[string]string{"pool": x.pool}
		if x.label != "" {
			labels[LabelRollout] = x.label
		}
		n, _ := c.Node(labels, nil)
		p := n.Policy
		none := node.Some(unit.Percent(0))
		off := p.Overcommit.Enable && p.Overcommit.CPU.LimitPercent == none && p.Overcommit.Memory.LimitPercent == none && p.Suppress == (suppress.Config{Enable: true, Policy: suppress.ByQuota}) && p.Evict.CPU == (evict.CPUConfig{})
		if off != x.off || c.IsOff(labels) != x.off {
			t.Errorf("%s: off %v, policy %+v %+v", name, off, p.Overcommit, p.Suppress)
		}
	}
}

// TestWithoutColocationThereIsNoRollout has a rollout-config and no batch work.
func TestWithoutColocationThereIsNoRollout(t *testing.T) {
	const some = `{"enable":true,"marginPercent":10}`
	for text, x := range map[string]struct{ enabled, lacks, off bool }{
		colocates:          {enabled: true, off: true},
		`{"enable":false}`: {},
		``:                 {},
		`{"enable":3}`:     {lacks: true, off: true},
	} {
		c, _ := ParseConfigMap(map[string]string{keyColocation: text, keyRollout: some})
		_, enabled := c.Rollout()
		if off := c.IsOff(map[string]string{LabelRollout: RolloutOff}); enabled != x.enabled || c.LacksRollout() != x.lacks || off != x.off {
			t.Errorf("colocation-config %s: enabled %v, lacks %v, off %v", text, enabled, c.LacksRollout(), off)
		}
		if off := c.IsOff(nil); off != x.enabled {
			t.Errorf("colocation-config %s: a node without a label is off: %v", text, off)
		}
	}
}

// TestWhoIsNamedByTheAdministrator has entries of objective-config with and without names.
func TestWhoIsNamedByTheAdministrator(t *testing.T) {
	c, faults := ParseConfigMap(map[string]string{keyObjective: `{"objectives":[{"podSelector":{"matchLabels":{"a":"b"}},"objective":{"runQueueDelay":"2ms"}},` +
		`{"namespaces":["shop"],"objective":{"runQueueDelay":"2ms"}}],"nodeConfigs":[{"nodeSelector":{"matchLabels":{"a":"b"}},"objectives":[{"namespaces":["bank"],"objective":{"runQueueDelay":"2ms"}}]}]}`})
	if len(faults) > 0 || !c.NamesObjectives("shop") || !c.NamesObjectives("bank") || c.NamesObjectives("team") || c.NamesObjectives("") {
		t.Errorf("%v: shop %v, bank %v, team %v", faults, c.NamesObjectives("shop"), c.NamesObjectives("bank"), c.NamesObjectives("team"))
	}
}
