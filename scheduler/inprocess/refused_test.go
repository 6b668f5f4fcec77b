package inprocess_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAPodThatItsNodeRefusesKeepsNobodyOut reserves all CPUs of a node but the
// one that a pod owns. That CPU must stay open, so the agent takes it from the
// pod. A pod with a seat must then get the node. When the node has its CPUs
// back, the agent gives one to the first pod, and the second keeps its seat.
func TestAPodThatItsNodeRefusesKeepsNobodyOut(t *testing.T) {
	b := newBed(t, 1)
	defer b.start(t.Context())()
	held := func(uid string) unit.CPUSet {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.said["n0"].Pods[place.UID(uid)].CPUs
	}
	own := string(b.pods("own", 0, 1)[0].UID)
	b.settles()
	kept := held(own)
	b.reserve("n0", sixteenCPUs.All().Minus(kept))
	eventually(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if r := b.said["n0"]; !isRefused(r, own) {
			return fmt.Errorf("the node reports %+v", r)
		}
		return nil
	})
	seats := podsOf("seats", 0, 1)
	seats[0].Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	b.api.Create(seats)
	eventually(t, func() error {
		if set := held("seats-0"); set != kept {
			return fmt.Errorf("the pod with a seat has %v, and %v is open", set, kept)
		}
		return nil
	})
	b.reserve("n0", unit.CPUSet{})
	eventually(t, func() error {
		if a, s := held(own), held("seats-0"); a.Len() != 1 || s.Len() != 1 || a == s {
			return fmt.Errorf("the node gives %v and %v", a, s)
		}
		return nil
	})
	b.pods("more", 0, 14) // all CPUs but that of the first pod and one that stays open
	for _, p := range b.api.Pods() {
		if p.Name == "seats-0" {
			b.api.Remove([]*corev1.Pod{p})
		}
	}
	eventually(t, func() error {
		if a, m := held(own), held("more-0"); a.Len() != 1 || m.Len() != 14 || !m.Intersect(a).Empty() {
			return fmt.Errorf("the node gives %v and %v", a, m)
		}
		return nil
	})
}

// reserve makes the agent of a node give some CPUs to no pod.
func (b *bed) reserve(name string, cpus unit.CPUSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved[name] = cpus
}

// isRefused reports whether a node lists a pod and gave it no CPUs.
func isRefused(r place.Report, uid string) bool {
	a, listed := r.Pods[place.UID(uid)]
	return listed && a.CPUs.Empty()
}
