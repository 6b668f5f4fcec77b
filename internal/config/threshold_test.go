package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/model/node"
)

// TestAllocatableEndsNothingAndSaysSo sets evictByAllocatable, which Tenon does
// not support. No work may be evicted, and there must be a notice.
func TestAllocatableEndsNothingAndSaysSo(t *testing.T) {
	for keys, want := range map[string]string{
		"cpuEvictPolicy: evictByAllocatable":      "evictByAllocatable is not acted on by this version: no work is evicted",
		"cpuAllocatableEvictThresholdPercent: 90": "cpuAllocatableEvictThresholdPercent is not acted on by this version",
		"memoryAllocatableEvictLowerPercent: 80":  "memoryAllocatableEvictLowerPercent is not acted on by this version",
	} {
		c := mustParse(t, header+"resource-threshold-config: {enable: true, "+keys+"}\n")
		if len(c.Notices) != 1 || !strings.Contains(c.Notices[0], want) {
			t.Errorf("%s: notices: %q", keys, c.Notices)
		}
	}
}

// TestAnObjectiveNeedsNoThreshold checks that an objective without CPU suppress
// causes no notice: BE gives way without it while the objective is missed
// (scenario a-service-waits-and-there-is-no-threshold).
func TestAnObjectiveNeedsNoThreshold(t *testing.T) {
	rule := header + "- {name: web, class: LS, units: [a], objective: {runQueueDelay: 2ms}}\n"
	for _, text := range []string{
		"",
		"resource-threshold-config: {enable: false}\n",
		"resource-threshold-config: {enable: true}\n",
		"resource-qos-config: {beClass: {cpuQOS: {enable: true}}}\n",
	} {
		if c := mustParse(t, rule+text); len(c.Notices) > 0 {
			t.Errorf("%s: notices %q", text, c.Notices)
		}
	}
}

// TestNothingIsEndedUnlessAKeySaysSo checks that no work is evicted if only the
// key enable is set, or only keys other than the thresholds.
func TestNothingIsEndedUnlessAKeySaysSo(t *testing.T) {
	for text, want := range map[string]evict.Config{
		"{}":                                {},
		"{enable: true}":                    {},
		"{memoryEvictThresholdPercent: 80}": {},
		"{enable: true, memoryEvictThresholdPercent: 0}":                                                        {},
		"{enable: true, memoryEvictLowerPercent: 60, cpuEvictTimeWindowSeconds: 5, evictGracePeriodSeconds: 1}": {},
		"{enable: true, cpuEvictBESatisfactionLowerPercent: 30}":                                                {},
		"{enable: true, memoryEvictThresholdPercent: 80}": {
			Memory: evict.MemoryConfig{ThresholdPercent: 80, LowerPercent: 78}, Grace: 10 * time.Second},
		"{enable: true, memoryEvictThresholdPercent: 80, memoryEvictLowerPercent: 60, evictGracePeriodSeconds: 0, evictEnabledPriorityThreshold: -3, evictUnlabelled: true}": {
			Memory: evict.MemoryConfig{ThresholdPercent: 80, LowerPercent: 60}, MostPriority: node.Some[int64](-3), Unlabelled: true},
		"{enable: true, cpuEvictBESatisfactionLowerPercent: 30, cpuEvictBESatisfactionUpperPercent: 60}": {
			CPU: evict.CPUConfig{SatisfactionLower: 30, SatisfactionUpper: 60, UsageThreshold: 90, Window: time.Minute}, Grace: 10 * time.Second},
		"{enable: true, cpuEvictBESatisfactionLowerPercent: 30, cpuEvictBESatisfactionUpperPercent: 60, cpuEvictPolicy: evictByAllocatable}": {},
		"{enable: true, cpuEvictThresholdPercent: 85, cpuEvictTimeWindowSeconds: 5}": {
			CPU: evict.CPUConfig{ThresholdPercent: 85, LowerPercent: 83, Window: 5 * time.Second}, Grace: 10 * time.Second},
		"{enable: true, cpuEvictThresholdPercent: 85, cpuEvictTimeWindowSeconds: 9999999999}": { // longer than a time.Duration can be
			CPU: evict.CPUConfig{ThresholdPercent: 85, LowerPercent: 83, Window: 100 * 365 * 24 * time.Hour}, Grace: 10 * time.Second},
	} {
		if got := mustParse(t, header+"resource-threshold-config: "+text+"\n").Policy.Evict; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestKeysOfEvictionsThatDoNothingAreNoticed(t *testing.T) {
	c := mustParse(t, header+"resource-threshold-config: {enable: true, memoryEvictLowerPercent: 60, cpuEvictBESatisfactionUpperPercent: 60}\n")
	for _, want := range []string{
		"resource-threshold-config.memoryEvictLowerPercent has no effect without memoryEvictThresholdPercent",
		"resource-threshold-config.cpuEvictBESatisfactionUpperPercent has no effect without cpuEvictBESatisfactionLowerPercent",
	} {
		if !slices.Contains(c.Notices, want) {
			t.Errorf("%q is missing in %q", want, c.Notices)
		}
	}
}
