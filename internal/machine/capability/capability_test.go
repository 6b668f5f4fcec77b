package capability_test

import (
	"maps"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/blockio"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/capability"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/model/node"
)

// mechanisms are all features that package node names.
var mechanisms = []node.Feature{
	node.FeatureCPUIdle, node.FeatureCPUWeight, node.FeatureCPUMax, node.FeatureCPUBurst, node.FeatureCPUSets, node.FeatureCPUPartition,
	node.FeatureMemoryLimit, node.FeatureMemoryProtect, node.FeaturePSINode, node.FeaturePSICgroup, node.FeatureEEVDFSlice,
	node.FeatureCoreSched, node.FeatureSchedExt, node.FeatureSchedIdle, node.FeatureSchedFIFO, node.FeatureBPF, node.FeaturePerfCounters, node.FeatureResctrlL3,
	node.FeatureResctrlMB, node.FeatureGroupIdentity, node.FeatureGroupPriority, node.FeatureQOSLevel, node.FeatureSchedStat,
	node.FeatureCgroupFreezer, node.FeatureHardwareSMT, node.FeatureIOMax, node.FeatureIOWeight, node.FeatureBFQWeight, node.FeatureIOLatency, node.FeatureCgroupDelegate,
}

// here returns the running machine.
func here(t *testing.T) capability.Node {
	t.Helper()
	fs := proc.Default()
	n := capability.Node{FS: fs, Topology: topology.New(fs)}
	if n.Tree, n.NoTree = cgroup.Detect(fs.Proc); n.NoTree != nil {
		n.Tree = nil
	}
	n.Devices, n.Controls = blockio.New(fs, n.Tree), cachectl.New(fs.Proc, n.Tree, nil)
	return n
}

func TestEveryMechanismHasAnAnswerAndAReason(t *testing.T) {
	can := capability.Try(here(t))
	for _, m := range slices.Sorted(maps.Keys(can)) {
		a := can[m]
		t.Logf("%-22s %-8s %s", m, a.Verdict, a.Why)
		if a.Verdict != node.Yes && a.Verdict != node.No && a.Verdict != node.Unknown {
			t.Errorf("%s: %q is no verdict", m, a.Verdict)
		}
		if a.Why == "" {
			t.Errorf("%s: no reason", m)
		}
	}
	for _, m := range mechanisms {
		if _, asked := can[m]; !asked {
			t.Errorf("%s was not asked for", m)
		}
		if capability.Instead(m) == "" {
			t.Errorf("%s: nothing is said to be used instead", m)
		}
	}
	if len(can) != len(mechanisms) {
		t.Errorf("%d answers for %d mechanisms", len(can), len(mechanisms))
	}
}
