package nodes

import (
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestAmountsOfTheAPIAreReadInEveryForm reads what kubelets and autoscalers
// write. What a node has is rounded down, and what a pod requests is rounded up.
func TestAmountsOfTheAPIAreReadInEveryForm(t *testing.T) {
	list := map[string]string{"cpu": "15499500u", "memory": "68397354188800m", BatchCPU: "9600", BatchMemory: "858993459200m", "pods": "110"}
	for r, want := range map[unit.Rounding]Amounts{
		unit.Down: {15499, 68397354188, 9600, 858993459, 110},
		unit.Up:   {15500, 68397354189, 9600, 858993460, 110},
	} {
		if got, err := amountsOf(list, r); err != nil || got != want {
			t.Errorf("up %v: %+v, %v, want %+v", r, got, err, want)
		}
	}
	if got, err := amountsOf(map[string]string{"cpu": "2e3"}, unit.Down); err != nil || got != (Amounts{CPU: 2_000_000}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := amountsOf(map[string]string{"memory": "many"}, unit.Up); err == nil || err.Error() != `memory "many": want a quantity such as 1500m or 2Gi` {
		t.Errorf("%v", err)
	}
}
