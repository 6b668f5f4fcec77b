package host_test

import (
	"maps"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/machine/host"
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

func TestEveryMechanismHasAnAnswerAndAReason(t *testing.T) {
	h, err := host.Open(host.Options{JournalDir: t.TempDir(), Try: true})
	if err != nil {
		t.Fatal(err)
	}
	can := h.Capabilities()
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
		if host.Instead(m) == "" {
			t.Errorf("%s: nothing is said to be used instead", m)
		}
	}
	if len(can) != len(mechanisms) {
		t.Errorf("%d answers for %d mechanisms", len(can), len(mechanisms))
	}
}
