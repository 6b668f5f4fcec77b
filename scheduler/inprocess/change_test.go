package inprocess_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
)

// TestAWaitingPodThatAsksForOtherCPUsGetsANode creates a pod of three CPUs that
// takes only whole cores. Each core has two CPUs, so no node takes the pod. Then
// its author removes this condition. Nothing else happens, so only the change of
// the pod itself can make the scheduler try the pod again.
func TestAWaitingPodThatAsksForOtherCPUsGetsANode(t *testing.T) {
	b := newBed(t, 1)
	defer b.start(t.Context())()
	odd := podsOf("odd", 0, 3)
	odd[0].Annotations[kube.AnnotationResourceSpec] = `{"requiredCPUBindPolicy":"FullPCPUs"}`
	b.api.Create(odd)
	eventually(t, func() error {
		for _, p := range b.api.Pods() {
			if len(p.Status.Conditions) == 1 && strings.Contains(p.Status.Conditions[0].Message, "whole cores") {
				return nil
			}
		}
		return errors.New("the pod does not wait for whole cores")
	})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, kube.AnnotationResourceSpec)
	if _, err := b.api.CoreV1().Pods("default").Patch(t.Context(), "odd-0", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		for _, p := range b.api.Pods() {
			if p.Spec.NodeName == "" {
				return fmt.Errorf("%s still waits: %+v", p.Name, p.Status.Conditions)
			}
		}
		return b.compareReports(b.api.Pods())
	})
}
