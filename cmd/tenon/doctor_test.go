package main

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/unsupported"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/node"
)

// TestDoctorFitsIntoATerminal prints long texts in all places. Each word of them
// is still there.
func TestDoctorFitsIntoATerminal(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("words of a text ", 20))
	d := diagnosis{
		Kernel: long, Cgroups: long, Unread: []string{long}, CPUModel: long, Virtualization: long, Isolation: long, all: true,
		Selection:  []mechanismLine{{Name: node.MechanismSchedExt, Available: node.No, Why: long, Chosen: true}},
		Mechanisms: []mechanism{{Name: node.FeatureSchedExt, Available: node.No, Why: long, Instead: long}},
		Troubles:   []health.Trouble{{Kind: "kind", Text: long}},
		Unmet:      []unsupported.Setting{{Key: "resource-qos-config.beClass.resctrlQOS.enable", Why: long}},
	}
	text := d.String()
	for line := range strings.SplitSeq(text, "\n") {
		if textlayout.Columns(line) > textlayout.Width {
			t.Errorf("%d columns: %s", textlayout.Columns(line), line)
		}
	}
	if got := strings.Count(strings.Join(strings.Fields(text), " "), long); got != 11 {
		t.Errorf("%d of 11 texts are whole in\n%s", got, text)
	}
}
