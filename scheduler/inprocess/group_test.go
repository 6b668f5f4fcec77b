package inprocess_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/feature"
	gates "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

// groupBed starts a scheduler with two nodes, fills each node with two pods, and
// then creates a PodGroup of two pods with a higher priority. On each node, a new
// pod has room beside the smaller old pod, but not beside the larger one, because
// one CPU of a node stays open. grace is the grace period of the old pods in
// seconds.
func groupBed(t *testing.T, grace int64) *bed {
	t.Helper()
	gates.SetFeatureGateDuringTest(t, feature.DefaultFeatureGate, features.GenericWorkload, true)
	b := newBed(t, 2)
	name, priority := "group", int32(1000)
	_, err := b.api.SchedulingV1beta1().PodGroups("default").Create(t.Context(), &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: scheduling.PodGroupSpec{
			SchedulingPolicy: scheduling.PodGroupSchedulingPolicy{Gang: &scheduling.GangSchedulingPolicy{MinCount: 2}}, Priority: &priority,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.start(t.Context()))
	for _, pods := range [][]*corev1.Pod{podsOf("large", 0, 8, 8), podsOf("small", 0, 7, 7)} {
		for _, p := range pods {
			p.Spec.TerminationGracePeriodSeconds = &grace
		}
		b.api.Create(pods)
		b.settles()
	}
	group := podsOf("member", priority, 8, 8)
	for _, p := range group {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	}
	b.api.Create(group)
	return b
}

func TestAGroupPreemptionFreesCPUs(t *testing.T) {
	b := groupBed(t, 1)
	eventually(t, func() error {
		var bound []string
		var lines string
		for _, p := range b.api.Pods() {
			if p.Spec.NodeName != "" {
				bound = append(bound, p.Name)
			}
			lines += fmt.Sprintf("\n%s on %q, nominated for %q: %v", p.Name, p.Spec.NodeName, p.Status.NominatedNodeName, p.Status.Conditions)
		}
		slices.Sort(bound)
		if want := []string{"member-0", "member-1", "small-0", "small-1"}; !slices.Equal(bound, want) {
			return fmt.Errorf("%v are bound, want %v:%s", bound, want, lines)
		}
		return b.compareReports(b.api.Pods())
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.overlaps) > 0 {
		t.Error(b.overlaps)
	}
}

// TestAGroupPreemptionEndsNoFurtherPods preempts pods that are gone at once. The
// scheduler may try the group again before it knows that both are gone, and then
// nothing may wake the group (Kubernetes 1.37). But it must not end other pods.
func TestAGroupPreemptionEndsNoFurtherPods(t *testing.T) {
	b := groupBed(t, 0)
	there := func() string {
		var names []string
		for _, p := range b.api.Pods() {
			if !strings.HasPrefix(p.Name, "member") {
				names = append(names, p.Name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	eventually(t, func() error {
		if got := there(); strings.Contains(got, "large") {
			return fmt.Errorf("%s are there", got)
		}
		return nil
	})
	time.Sleep(300 * time.Millisecond) // a second attempt comes within a few milliseconds, or when the plugin wakes the group
	if got := there(); got != "small-0 small-1" {
		t.Errorf("%q are there, want the smaller pods", got)
	}
}
