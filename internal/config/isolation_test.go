package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

func TestTheOrderOfMechanismsIsTheConfiguredOne(t *testing.T) {
	type order struct {
		begin              node.Mechanism
		measured, noTrials bool
	}
	for policies, want := range map[string]order{
		"{}":                                                 {measured: true},
		"{cpuPolicy: groupIdentity}":                         {measured: true}, // Koordinator's default does not restrict the choice
		"{cpuPolicy: coreSched}":                             {begin: node.MechanismCoreSched},
		"{cpuIsolation: strongest}":                          {},
		"{cpuIsolation: measured}":                           {measured: true},
		"{cpuIsolationTrials: false}":                        {measured: true, noTrials: true},
		"{cpuIsolationTrials: true}":                         {measured: true},
		"{cpuIsolation: vendor}":                             {begin: node.MechanismVendor},
		"{cpuIsolation: weight, cpuIsolationTrials: false}":  {begin: node.MechanismWeight, noTrials: true},
		"{cpuIsolation: auto, cpuPolicy: coreSched}":         {measured: true},
		"{cpuIsolation: strongest, cpuPolicy: coreSched}":    {},
		"{cpuIsolation: cpu.idle, cpuPolicy: groupIdentity}": {begin: node.MechanismIdle},
	} {
		c := mustParse(t, header+"resource-qos-config: {policies: "+policies+", beClass: {cpuQOS: {enable: true}}}\n")
		q := c.Policy.CPUQOS
		if got := (order{q.Mechanism, q.Measured, q.NoTrials}); got != want || len(c.Notices) > 0 {
			t.Errorf("%s: %+v, want %+v; notices %q", policies, got, want, c.Notices)
		}
	}
}

// TestEveryMechanismCanBeConfigured compares the accepted words of the key
// cpuIsolation with the preference order.
func TestEveryMechanismCanBeConfigured(t *testing.T) {
	var words []string
	for _, k := range keysOf(reflect.TypeFor[Policies]()) {
		if k.name == "cpuIsolation" {
			words = k.words
		}
	}
	want := []string{"auto", "measured", "strongest"}
	for _, r := range node.Mechanisms {
		want = append(want, string(r))
	}
	if !slices.Equal(words, want) {
		t.Errorf("cpuIsolation takes %q, want %q", words, want)
	}
}

func TestIdentitiesComeFromTheClassesThatAreOn(t *testing.T) {
	for classes, want := range map[string]map[node.Class]node.Identity{
		"beClass: {cpuQOS: {enable: true}}": nil,
		"{lsClass: {cpuQOS: {enable: true, groupIdentity: 1}}, lsrClass: {cpuQOS: {groupIdentity: 1}}}":                  {node.LS: 1},
		"{lsClass: {cpuQOS: {enable: true, coreExpeller: false}}, lsrClass: {cpuQOS: {enable: true, groupIdentity: 0}}}": {node.LS: 1, node.LSR: 0, node.LSE: 0},
		"{lsClass: {cpuQOS: {enable: true}}, lsrClass: {cpuQOS: {enable: false}}}":                                       {node.LSR: 0, node.LSE: 0},
		"{beClass: {cpuQOS: {enable: true, groupIdentity: 0}}, systemClass: {cpuQOS: {enable: true, groupIdentity: 1}}}": {node.BE: 0, node.System: 1},
	} {
		c := mustParse(t, header+"resource-qos-config:\n  "+classes+"\n")
		if got := c.Policy.CPUQOS.Identity; !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", classes, got, want)
		}
	}
}

func TestTheSchedulersParametersAreRead(t *testing.T) {
	c := mustParse(t, header+"resource-qos-config: {policies: {cpuIsolationHoldMicroseconds: 0, cpuIsolationHeadroomCores: 0}, beClass: {cpuQOS: {enable: true, coreExpeller: true}}}\n").Policy.CPUQOS
	if c.Hold != node.Some(time.Duration(0)) || c.Headroom != node.Some(0) {
		t.Errorf("hold %v, headroom %v; want 0 of each, which is not the default", c.Hold, c.Headroom)
	}
	c = mustParse(t, header+"resource-qos-config: {beClass: {cpuQOS: {enable: true}}}\n").Policy.CPUQOS
	if c.Hold != node.Some(200*time.Microsecond) || c.Headroom.Known() {
		t.Errorf("hold %v, headroom %v; want 200 µs and what the scheduler chooses", c.Hold, c.Headroom)
	}
}

func TestSlicesAreLongUnlessTheyAreKept(t *testing.T) {
	for policies, kept := range map[string]bool{"{}": false, "{cpuIsolationLongSlices: true}": false, "{cpuIsolationLongSlices: false}": true} {
		c := mustParse(t, header+"resource-qos-config: {policies: "+policies+", beClass: {cpuQOS: {enable: true}}}\n").Policy.CPUQOS
		if c.SlicesUnmanaged != kept {
			t.Errorf("%s: slices kept: %t", policies, c.SlicesUnmanaged)
		}
	}
}

func TestBEExpelsNobody(t *testing.T) {
	c := mustParse(t, header+"resource-qos-config: {beClass: {cpuQOS: {enable: true, coreExpeller: true}}}\n")
	if len(c.Notices) != 1 || !strings.Contains(c.Notices[0], "beClass.cpuQOS.coreExpeller") {
		t.Errorf("notices %q, want one that BE's coreExpeller does nothing", c.Notices)
	}
}
