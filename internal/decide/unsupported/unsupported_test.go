package unsupported_test

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/unsupported"
	"tenon.sh/tenon/internal/model/node"
)

// TestUnsupportedSettingsAreListed reads configurations as tenond does. It
// checks what Settings lists for a node that lacks the capability.
func TestUnsupportedSettingsAreListed(t *testing.T) {
	var marks []node.Feature
	for _, v := range node.VendorMarks {
		marks = append(marks, v.Can)
	}
	const head = "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\n"
	for text, tc := range map[string]struct {
		lacks []node.Feature
		key   string
	}{
		"resource-qos-config: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 50}}}":                               {[]node.Feature{node.FeatureMemoryProtect}, "resource-qos-config: memoryQOS"},
		"resource-qos-config: {policies: {memoryReclaimFreePercent: 5}}":                                                 {[]node.Feature{node.FeatureMemoryReclaim}, "resource-qos-config: policies.memoryReclaimFreePercent"},
		"resource-qos-config: {beClass: {resctrlQOS: {enable: true}}}":                                                   {[]node.Feature{node.FeatureResctrlL3, node.FeatureResctrlMB}, "resource-qos-config: resctrlQOS"},
		"resource-qos-config: {beClass: {blkioQOS: {enable: true, blocks: [{name: vda, ioCfg: {readBPS: 1}}]}}}":         {[]node.Feature{node.FeatureIOMax}, "resource-qos-config: blkioQOS, limits"},
		"resource-qos-config: {beClass: {blkioQOS: {enable: true, blocks: [{name: vda, ioCfg: {ioWeightPercent: 5}}]}}}": {[]node.Feature{node.FeatureIOWeight, node.FeatureBFQWeight}, "resource-qos-config: blkioQOS, ioWeightPercent"},
		"resource-qos-config: {lsClass: {blkioQOS: {enable: true, blocks: [{name: vda, ioCfg: {readLatency: 5}}]}}}":     {[]node.Feature{node.FeatureIOLatency}, "resource-qos-config: blkioQOS, readLatency and writeLatency"},
		"resource-qos-config: {policies: {cpuIsolation: sched_ext}, beClass: {cpuQOS: {enable: true}}}":                  {[]node.Feature{node.FeatureSchedExt}, "resource-qos-config: policies, mechanism sched_ext"},
		"resource-qos-config: {policies: {cpuPolicy: coreSched}, beClass: {cpuQOS: {enable: true}}}":                     {[]node.Feature{node.FeatureCoreSched}, "resource-qos-config: policies, mechanism core_sched"},
		"resource-qos-config: {policies: {cpuIsolation: vendor}, beClass: {cpuQOS: {enable: true}}}":                     {marks, "resource-qos-config: policies, mechanism vendor"},
		"resource-qos-config: {beClass: {cpuQOS: {enable: true, schedIdle: 1}}}":                                         {[]node.Feature{node.FeatureCPUIdle}, "resource-qos-config: cpuQOS.schedIdle"},
		"resource-threshold-config: {enable: true, cpuSuppressPolicy: cfsQuota}":                                         {[]node.Feature{node.FeatureCPUMax}, "resource-threshold-config: cpuSuppressPolicy cfsQuota"},
		"resource-threshold-config: {enable: true, cpuSuppressPolicy: cpuset}":                                           {[]node.Feature{node.FeatureCPUSets}, "resource-threshold-config: cpuSuppressPolicy cpuset"},
		"resource-threshold-config: {enable: true, memoryEvictThresholdPercent: 80}":                                     {[]node.Feature{node.FeatureCgroupFreezer}, "resource-threshold-config: memoryEvictThresholdPercent, to freeze what grows"},
		"cpu-burst-config: {policy: auto}":                                                                               {[]node.Feature{node.FeatureCPUBurst}, "cpu-burst-config: policy"},
	} {
		c, faults := config.Parse([]byte(head + text + "\n"))
		if len(faults) > 0 {
			t.Errorf("%s: %v", text, faults)
			continue
		}
		can := node.Capabilities{}
		if got := unsupported.Settings(c.Policy, can); len(got) > 0 {
			t.Errorf("%s: a node of which nothing is known lists %v", text, got)
		}
		for _, f := range tc.lacks {
			can[f] = node.Answer{Verdict: node.No, Why: "not here"}
		}
		var lacks []string
		for _, f := range tc.lacks {
			lacks = append(lacks, string(f))
		}
		want := unsupported.Setting{Key: tc.key, Why: strings.Join(lacks, ", ") + ": not here"}
		if got := unsupported.Settings(c.Policy, can); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		for _, f := range tc.lacks {
			no := can[f]
			can[f] = node.Answer{Verdict: node.Yes}
			if got := unsupported.Settings(c.Policy, can); len(got) > 0 {
				t.Errorf("%s: a node with %s lists %v", text, f, got)
			}
			can[f] = no
		}
	}
}

// TestEachMissingCapabilityIsNamed gives the capabilities of one setting
// different reasons.
func TestEachMissingCapabilityIsNamed(t *testing.T) {
	c, faults := config.Parse([]byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nresource-qos-config: {beClass: {resctrlQOS: {enable: true}}}\n"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	got := unsupported.Settings(c.Policy, node.Capabilities{
		node.FeatureResctrlL3: {Verdict: node.No, Why: "no CAT"}, node.FeatureResctrlMB: {Verdict: node.No, Why: "no MBA"},
	})
	want := string(node.FeatureResctrlL3) + ": no CAT; " + string(node.FeatureResctrlMB) + ": no MBA"
	if len(got) != 1 || got[0].Why != want {
		t.Errorf("%v, want the reason %q", got, want)
	}
}
