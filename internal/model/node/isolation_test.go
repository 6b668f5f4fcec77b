package node

import (
	"slices"
	"testing"
	"time"
)

// TestIsolationReadsBack checks that the text of each value parses to the same
// value.
func TestIsolationReadsBack(t *testing.T) {
	for file, values := range map[File][]Value{
		FileIdentity: {IdentityBE, IdentityNone, IdentityHigh, IdentityExpels},
		FileScheduler: {
			Scheduler{}, Scheduler{Loaded: true}, Scheduler{Loaded: true, Siblings: true, Hold: 200 * time.Microsecond, Headroom: 1},
			Scheduler{Loaded: true, Siblings: true, Headroom: SchedulerHeadroom, Gentle: "LSR,LS"},
		},
		FilePolicy: {ThreadsNormal, ThreadsMixed, ThreadsBE},
		FileCookie: {ThreadsNormal, ThreadsMixed, ThreadsBE},
	} {
		for _, v := range values {
			if back, err := ParseValue(file, v.String()); err != nil || back != v {
				t.Errorf("%s %q reads as %v, %v", file, v, back, err)
			}
		}
	}
}

func TestWhatIsNoIsolationIsRefused(t *testing.T) {
	for file, texts := range map[File][]string{
		FileIdentity: {"", "-2", "3", "BE"},
		FileScheduler: {
			"", "loaded", "none at all", "loaded siblings hold 200µs", "loaded hold -1ms headroom 1", "loaded hold 1ms headroom -2", "loaded hold 1 headroom 1",
			"loaded hold 1ms headroom 1 gentle", "loaded hold 1ms headroom 1 rough LS", "unloaded hold 1ms headroom 1",
		},
		FilePolicy: {"", "SCHED_EXT"},
		FileCookie: {"", "0"},
	} {
		for _, text := range texts {
			if v, err := ParseValue(file, text); err == nil {
				t.Errorf("%s %q reads as %v, want an error", file, text, v)
			}
		}
	}
}

func TestIsolationNarrowsBE(t *testing.T) {
	for name, order := range map[string][]Value{
		"identities": {IdentityBE, IdentityNone, IdentityHigh, IdentityExpels},
		"scheduler":  {Scheduler{Loaded: true}, Scheduler{}},
		"threads":    {ThreadsBE, ThreadsMixed, ThreadsNormal},
	} {
		if !slices.IsSortedFunc(order, Value.CompareWidth) {
			t.Errorf("%s: %v is not from the narrowest on", name, order)
		}
		if order[0].CompareWidth(order[1]) >= 0 || order[1].CompareWidth(order[0]) <= 0 || order[0].CompareWidth(Maximum{Max: 1}) != 0 {
			t.Errorf("%s: %v is not narrower than %v alone", name, order[0], order[1])
		}
	}
	if a, b := (Scheduler{Loaded: true, Hold: 1}), (Scheduler{Loaded: true}); a.CompareWidth(b) != 0 {
		t.Error("how long a scheduler holds must not make it narrower")
	}
}

func TestSchedulerExpelsForSensitiveClasses(t *testing.T) {
	v := Scheduler{Loaded: true, Siblings: true, Gentle: "LSR,LS"}
	for class, want := range map[Class]bool{LSE: true, LSR: false, LS: false, System: false, BE: false} {
		if v.Expels(class) != want {
			t.Errorf("%s expels: %v", class, !want)
		}
	}
	if (Scheduler{Siblings: true}).Expels(LSE) || (Scheduler{Loaded: true}).Expels(LSE) {
		t.Error("no class expels without the scheduler or without its rule for siblings")
	}
}
