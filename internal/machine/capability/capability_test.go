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

// mechanisms are all that package node names.
var mechanisms = []node.Mechanism{
	node.MechCPUIdle, node.MechCPUWeight, node.MechCPUMax, node.MechCPUBurst, node.MechCPUSets, node.MechCPUPartition,
	node.MechMemoryLimit, node.MechMemoryProtect, node.MechPSINode, node.MechPSICgroup, node.MechEEVDFSlice,
	node.MechCoreSched, node.MechSchedExt, node.MechSchedIdle, node.MechBPF, node.MechPerfCounters, node.MechResctrlL3,
	node.MechResctrlMB, node.MechGroupIdentity, node.MechGroupPriority, node.MechQOSLevel, node.MechSchedStat,
	node.MechCgroupFreezer, node.MechHardwareSMT, node.MechIOMax, node.MechIOWeight, node.MechBFQWeight, node.MechIOLatency, node.MechCgroupDelegate,
}

// here is the running machine.
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
