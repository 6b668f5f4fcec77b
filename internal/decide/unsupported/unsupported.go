// Package unsupported says which settings of a configuration a node cannot carry
// out because its kernel or hardware lacks a capability.
package unsupported

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
)

// A Setting is a setting that the node cannot carry out.
type Setting struct {
	// Key is the key of the configuration.
	Key string `json:"key"`
	// Why names each capability that is missing, with the reason in the words of
	// its check. Capabilities with the same reason stand together.
	Why string `json:"why"`
}

// A demand is a setting that needs at least one of several capabilities.
type demand struct {
	key   string
	asked func(policy.Config) bool
	needs []node.Feature
}

var demands = slices.Concat(mechanisms(), []demand{
	{"resource-threshold-config: cpuSuppressPolicy cfsQuota", func(c policy.Config) bool { return c.Suppress.Enable && c.Suppress.Policy == suppress.ByQuota }, []node.Feature{node.FeatureCPUMax}},
	{"resource-threshold-config: cpuSuppressPolicy cpuset", func(c policy.Config) bool { return c.Suppress.Enable && c.Suppress.Policy == suppress.ByCPUSet }, []node.Feature{node.FeatureCPUSets}},
	{"resource-threshold-config: memoryEvictThresholdPercent, to freeze what grows", func(c policy.Config) bool { return c.Evict.Memory.ThresholdPercent > 0 }, []node.Feature{node.FeatureCgroupFreezer}},
	{"resource-qos-config: cpuQOS.schedIdle", func(c policy.Config) bool { return c.CPUQOS.Means == node.FeatureCPUIdle }, []node.Feature{node.FeatureCPUIdle}},
	{"resource-qos-config: memoryQOS", func(c policy.Config) bool { return len(c.Memory.Classes) > 0 }, []node.Feature{node.FeatureMemoryProtect}},
	{"resource-qos-config: policies.memoryReclaimFreePercent", func(c policy.Config) bool { return c.Reclaim.FreePercent > 0 }, []node.Feature{node.FeatureMemoryReclaim}},
	{"resource-qos-config: resctrlQOS", func(c policy.Config) bool { return len(c.Cache.Classes) > 0 }, []node.Feature{node.FeatureResctrlL3, node.FeatureResctrlMB}},
	{"resource-qos-config: blkioQOS, limits", devices(func(d blockio.Device) bool {
		return d.ReadBPS > 0 || d.WriteBPS > 0 || d.ReadIOPS > 0 || d.WriteIOPS > 0
	}), []node.Feature{node.FeatureIOMax}},
	{"resource-qos-config: blkioQOS, ioWeightPercent", devices(func(d blockio.Device) bool { return d.WeightPercent > 0 }), []node.Feature{node.FeatureIOWeight, node.FeatureBFQWeight}},
	{"resource-qos-config: blkioQOS, readLatency and writeLatency", devices(func(d blockio.Device) bool { return d.Latency > 0 }), []node.Feature{node.FeatureIOLatency}},
	{"cpu-burst-config: policy", func(c policy.Config) bool {
		return c.Burst.Policy == burst.Both || c.Burst.Policy == burst.Save
	}, []node.Feature{node.FeatureCPUBurst}},
})

// mechanisms returns the demand of each isolation mechanism that takes a feature.
func mechanisms() []demand {
	var all []demand
	for _, m := range node.MechanismTable {
		if len(m.Needs) > 0 {
			asked := func(c policy.Config) bool { return c.CPUQOS.Enable && c.CPUQOS.Mechanism == m.Mechanism }
			all = append(all, demand{"resource-qos-config: policies, mechanism " + string(m.Mechanism), asked, m.Needs})
		}
	}
	return all
}

func devices(is func(blockio.Device) bool) func(policy.Config) bool {
	return func(c policy.Config) bool {
		for _, all := range c.IO.Classes {
			if slices.ContainsFunc(all, is) {
				return true
			}
		}
		return false
	}
}

// Settings returns the settings of c that the node cannot carry out, because it
// has none of the capabilities for them. A capability that is not known does
// not count as missing.
func Settings(c policy.Config, can node.Capabilities) []Setting {
	var found []Setting
	for _, d := range demands {
		missing := func(f node.Feature) bool { return can[f].Verdict == node.No }
		if d.asked(c) && !slices.ContainsFunc(d.needs, func(f node.Feature) bool { return !missing(f) }) {
			found = append(found, Setting{d.key, reasons(d.needs, can)})
		}
	}
	return found
}

// reasons says why a node has none of several capabilities. It keeps their
// order, but joins those with the same reason.
func reasons(missing []node.Feature, can node.Capabilities) string {
	var order []string
	lacking := map[string][]string{} // by reason
	for _, f := range missing {
		why := can[f].Why
		if len(lacking[why]) == 0 {
			order = append(order, why)
		}
		lacking[why] = append(lacking[why], string(f))
	}
	for i, why := range order {
		order[i] = strings.Join(lacking[why], ", ") + ": " + why
	}
	return strings.Join(order, "; ")
}
