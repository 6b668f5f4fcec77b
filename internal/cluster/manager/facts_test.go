package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/quantity"
)

// TestOthersAllocationsAreCountedOrAFault reads the annotation
// thirdPartyAllocations. An amount that is more than any machine has must not
// count as none.
func TestOthersAllocationsAreCountedOrAFault(t *testing.T) {
	for amount, x := range map[string]struct {
		want  int64
		fault bool
	}{
		`"1500"`: {1500, false}, "1500": {1500, false}, `"2k"`: {2000, false}, `"1e3"`: {1000, false}, `"1e30"`: {quantity.Max, false}, `"99999999999999999999"`: {quantity.Max, false},
		`"-5"`: {0, true}, `"-1e30"`: {0, true}, `"1e-2147483647"`: {0, true}, `1e2147483647`: {0, true}, `null`: {0, true}, `"many"`: {0, true},
	} {
		text := `{"allocations":[{"resources":{"kubernetes.io/batch-cpu":` + amount + `}}]}`
		f := factsOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{thirdPartyKey: text}}})
		if f.Elsewhere[cpu] != x.want || len(f.Faults) > 0 != x.fault || x.fault && !strings.Contains(f.Faults[0], "batch-cpu: ") {
			t.Errorf("%s: %d, faults %q; want %d, fault %v", amount, f.Elsewhere[cpu], f.Faults, x.want, x.fault)
		}
	}
}

// TestAllocatableAmountsWithAFractionCount reads nodes whose kubelet reserves no
// whole number of bytes or of thousandths of a CPU: kube-reserved memory=0.3Gi
// leaves 68397354188800m. What is reserved is rounded up, and the node keeps its
// batch resources.
func TestAllocatableAmountsWithAFractionCount(t *testing.T) {
	const gib = 1 << 30
	for name, x := range map[string]struct {
		cpu, memory string // allocatable
		whole       string // capacity of memory
		want        [kinds]int64
	}{
		"whole":                     {"15500m", "58Gi", "64Gi", [kinds]int64{500, 6 * gib}},
		"0.3Gi reserved":            {"15500m", "68397354188800m", "64Gi", [kinds]int64{500, 322122548}},
		"half a thousandth":         {"15499500u", "58Gi", "64Gi", [kinds]int64{501, 6 * gib}},
		"both":                      {"15499500u", "68397354188800m", "64Gi", [kinds]int64{501, 322122548}},
		"a billionth is reserved":   {"15999999999n", "58Gi", "64Gi", [kinds]int64{1, 6 * gib}},
		"a decimal":                 {"15.5", "63.7Gi", "64Gi", [kinds]int64{500, 322122548}},
		"an exponent":               {"155e-1", "6e10", "64Gi", [kinds]int64{500, 64*gib - 6e10}},
		"capacity with a fraction":  {"15500m", "68397354188800m", "68719476736500m", [kinds]int64{500, 322122549}},
		"more than the capacity":    {"17", "65Gi", "64Gi", [kinds]int64{0, 0}},
		"more than an int64":        {"99e18", "100E", "64Gi", [kinds]int64{0, 0}},
		"less than nothing":         {"15500m", "-1", "64Gi", [kinds]int64{500, 64 * gib}},
		"all but a part of nothing": {"1n", "58Gi", "64Gi", [kinds]int64{16000, 6 * gib}},
	} {
		n := machineOf(16, 64)
		n.Status.Capacity[corev1.ResourceMemory] = resource.MustParse(x.whole)
		n.Status.Allocatable["cpu"], n.Status.Allocatable["memory"] = resource.MustParse(x.cpu), resource.MustParse(x.memory)
		f := factsOf(n)
		if f.Reserved != x.want || f.Capacity != [kinds]int64{16000, 64 * gib} {
			t.Errorf("%s: reserved %d of %d, want %d", name, f.Reserved, f.Capacity, x.want)
		}
		v := Decide(caseOf(n, batchOf(4000, 4)))
		for k := range kinds {
			if has := v.Want[k].Or(0) > 0; has == (x.want[k] == f.Capacity[k]) {
				t.Errorf("%s: published %s; %s", name, amounts(v.Want), v.Reason)
			}
		}
	}
}

// TestANodeWithoutAllocatableReservesNothing reads a node as Kubernetes does:
// without allocatable amounts, its capacity counts. Without a capacity, the
// report is refused.
func TestANodeWithoutAllocatableReservesNothing(t *testing.T) {
	n := machineOf(16, 64)
	n.Status.Allocatable = nil
	if f := factsOf(n); f.Reserved != [kinds]int64{} {
		t.Errorf("reserved %d", f.Reserved)
	}
	n.Status.Capacity = nil
	if v := Decide(caseOf(n, batchOf(4000, 4))); v.State != Refused {
		t.Errorf("%s: %s", v.State, v.Reason)
	}
}

// TestHugePagesAreSubtractedOnce reads a node with 48 of 64 GiB in huge pages.
// The agent leaves them out of the memory of the node, and the kubelet subtracts
// them from allocatable memory. The manager must not take them for memory that
// the kubelet reserves beside.
func TestHugePagesAreSubtractedOnce(t *testing.T) {
	const gib = 1 << 30
	for name, huge := range map[string]corev1.ResourceList{
		"one size":  {"hugepages-2Mi": resource.MustParse("48Gi")},
		"two sizes": {"hugepages-2Mi": resource.MustParse("16Gi"), "hugepages-1Gi": resource.MustParse("32Gi"), "hugepages-64Ki": resource.MustParse("0")},
	} {
		n := machineOf(16, 64)
		for size, q := range huge {
			n.Status.Capacity[size] = q
		}
		n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("15Gi")
		f := factsOf(n)
		if f.Capacity[memory] != 16*gib || f.Reserved[memory] != gib {
			t.Errorf("%s: %d reserved of %d", name, f.Reserved[memory], f.Capacity[memory])
		}
		b := batchOf(4000, 4)
		b.Memory = promise(memory, percent(16*gib, 65), gib, 2*gib)
		if v := Decide(caseOf(n, b)); v.State != Published || v.Want[memory].Or(0) != percent(16*gib, 65)-3*gib {
			t.Errorf("%s: %s: published %s; %s", name, v.State, amounts(v.Want), v.Reason)
		}
	}
}
