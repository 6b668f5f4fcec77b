package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOthersAllocationsAreCountedOrAFault reads the annotation
// thirdPartyAllocations. An amount that is more than any machine has must not
// count as none.
func TestOthersAllocationsAreCountedOrAFault(t *testing.T) {
	for amount, x := range map[string]struct {
		want  int64
		fault bool
	}{
		`"1500"`: {1500, false}, "1500": {1500, false}, `"2k"`: {2000, false}, `"1e3"`: {1000, false}, `"1e30"`: {maxAmount, false}, `"99999999999999999999"`: {maxAmount, false},
		`"-5"`: {0, true}, `"-1e30"`: {0, true}, `"1e-2147483647"`: {0, true}, `1e2147483647`: {0, true}, `null`: {0, true}, `"many"`: {0, true},
	} {
		text := `{"allocations":[{"resources":{"kubernetes.io/batch-cpu":` + amount + `}}]}`
		f := factsOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{thirdPartyKey: text}}})
		if f.Elsewhere[cpu] != x.want || len(f.Faults) > 0 != x.fault || x.fault && !strings.Contains(f.Faults[0], "batch-cpu: ") {
			t.Errorf("%s: %d, faults %q; want %d, fault %v", amount, f.Elsewhere[cpu], f.Faults, x.want, x.fault)
		}
	}
}
