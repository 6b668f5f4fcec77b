package run

import (
	"testing"

	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestTenondUnderstandsWhatTheLabTellsIt(t *testing.T) {
	p := testbed.Pods{Root: "lab", Tested: unit.CPUSetOf(0)}
	for name, m := range map[string]report.ModeSpec{"suppress": {Suppress: true}, "isolation": {}, "a mechanism": {Mechanism: node.MechanismCoreSched}} {
		labtest.Understands(t, name, colocationTenond(p, m))
	}
}
