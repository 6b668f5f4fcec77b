package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTermsOfANamespaceAreReadOrRefused reads the annotation of a namespace.
func TestTermsOfANamespaceAreReadOrRefused(t *testing.T) {
	const at = "metadata.annotations[tenon.sh/batch]"
	for text, want := range map[string]struct {
		terms share.Terms
		field string // of the fault
	}{
		"":                                       {terms: share.Terms{Weight: 1}},
		`{}`:                                     {terms: share.Terms{Weight: 1}},
		`{"cpu":"40","memory":"1Gi","weight":2}`: {terms: share.Terms{Weight: 2, CPU: node.Some[unit.MilliCPU](40_000), Memory: node.Some[unit.Bytes](1 << 30)}},
		`{"cpu":"0"}`:                            {terms: share.Terms{Weight: 1, CPU: node.Some[unit.MilliCPU](0)}},
		`{"cpu":1.5}`:                            {terms: share.Terms{Weight: 1, CPU: node.Some[unit.MilliCPU](1500)}},
		`{"weight":0}`:                           {field: at + ".weight"},
		`{"weight":1001}`:                        {field: at + ".weight"},
		`{"cpu":"-1"}`:                           {field: at + ".cpu"},
		`{"memory":"lots"}`:                      {field: at + ".memory"},
		`{"cpus":"40"}`:                          {field: at + ".cpus"},
		`40`:                                     {field: at},
		`{"cpu":"40"`:                            {field: at},
	} {
		terms, said, faults := BatchTermsOf(map[string]string{AnnotationBatch: text})
		if said != (text != "") {
			t.Errorf("%s: said is %v", text, said)
		}
		if want.field == "" {
			if len(faults) > 0 || terms != want.terms {
				t.Errorf("%s: %+v %v, want %+v", text, terms, faults, want.terms)
			}
			continue
		}
		if len(faults) != 1 || faults[0].Field != want.field || faults[0].Problem == "" {
			t.Errorf("%s: %v, want a fault of %s", text, faults, want.field)
		}
	}
}

// TestOnlyTheOwnGateIsRemoved keeps the gates of others.
func TestOnlyTheOwnGateIsRemoved(t *testing.T) {
	p := &corev1.Pod{}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}, {Name: BatchGate}}
	if !HasBatchGate(p) {
		t.Error("the gate is not seen")
	}
	left := RemoveBatchGate(p.Spec.SchedulingGates)
	if len(left) != 1 || left[0].Name != "example.com/quota" || len(p.Spec.SchedulingGates) != 2 {
		t.Errorf("left are %v of %v", left, p.Spec.SchedulingGates)
	}
}
