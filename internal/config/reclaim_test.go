package config

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestTheReclaimIsOffUnlessItsKeySaysSo checks the key in its range and out of it.
func TestTheReclaimIsOffUnlessItsKeySaysSo(t *testing.T) {
	for text, want := range map[string]unit.Percent{
		"": 0,
		"resource-qos-config: {policies: {memoryReclaimFreePercent: 0}}\n":  0,
		"resource-qos-config: {policies: {memoryReclaimFreePercent: 50}}\n": 50,
	} {
		if got := mustParse(t, header+text).Policy.Reclaim.FreePercent; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	_, faults := Parse([]byte(header + "resource-qos-config: {policies: {memoryReclaimFreePercent: 51}}\n"))
	if len(faults) != 1 || faults[0].Field != "resource-qos-config.policies.memoryReclaimFreePercent" || !strings.Contains(faults[0].Problem, "0 to 50") {
		t.Errorf("faults %v", faults)
	}
}
