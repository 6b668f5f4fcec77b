package plugin

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// resized returns a running pod whose resize the kubelet has deferred.
func resized(p *corev1.Pod, request, limit string) *corev1.Pod {
	next := p.DeepCopy()
	was := p.Spec.Containers[0].Resources
	next.Generation++
	next.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(request)}, Limits: corev1.ResourceList{"cpu": resource.MustParse(limit)},
	}
	next.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred}}
	next.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: was.Requests, Resources: &was}}
	return next
}

// TestADeferredResizeChangesNoCPUs resizes a pod of four own CPUs. The kubelet
// defers the resize, so the node still binds the pod to its four CPUs. A ledger
// that counts the new spec takes other CPUs, or gives the four to another pod.
// When the kubelet has done the resize, the new spec counts.
func TestADeferredResizeChangesNoCPUs(t *testing.T) {
	for name, x := range map[string]struct {
		request, limit string
		open           int // after the resize
	}{
		"to more CPUs":                       {"6", "6", 10},
		"to fewer CPUs":                      {"2", "2", 14},
		"to seats":                           {"3", "4", 16},
		"to a fraction, which asks for none": {"3500m", "3500m", 16},
	} {
		for _, reported := range []bool{false, true} {
			b := newBench(t, machine("n", 1, 2, 4))
			p := b.run(pinned("a", 4, 100), "n")
			b.run(pinned("b", 4, 100), "n")
			b.keeper.podDeleted(plain("b")) // the lowest CPUs that are open now lie behind those of a
			var held map[place.UID]cpus.Allocation
			if reported {
				held = b.keeper.view("n").Holds()
				b.keeper.reportChanged(machine("n", 2, 2, 4, held))
			}
			was := b.holds("n")
			waits := resized(p, x.request, x.limit)
			b.keeper.podChanged(p, waits)
			if got := b.holds("n"); got != was {
				t.Errorf("%s, reported %v: while it is deferred, the node holds\n%s\nwant\n%s", name, reported, got, was)
			}
			again := newBench(t)
			again.keeper.podChanged(nil, waits)
			again.keeper.reportChanged(machine("n", 9, 2, 4, held))
			if got := again.holds("n"); got != was {
				t.Errorf("%s, reported %v: after a restart, the node holds\n%s\nwant\n%s", name, reported, got, was)
			}
			done := waits.DeepCopy()
			done.Status = corev1.PodStatus{}
			b.keeper.podChanged(waits, done)
			if got := b.open("n"); !reported && got != x.open {
				t.Errorf("%s: %d CPUs are open after the resize, want %d", name, got, x.open)
			}
		}
	}
}

// TestCPUsThatTheNodeStillHoldsAreNotFree takes the demand from a running pod.
// Its CPUs become free when the node reports that it has taken them from the
// pod. A scheduler that starts in between must count the same.
func TestCPUsThatTheNodeStillHoldsAreNotFree(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	p := b.run(pinned("a", 4, 100), "n")
	held := b.keeper.view("n").Holds()
	b.keeper.reportChanged(machine("n", 2, 1, 4, held))
	if _, why := b.tryNode(pinned("waiting", 6, 100), "n"); why == "" {
		t.Fatal("it fits")
	}
	shares := p.DeepCopy()
	delete(shares.Annotations, kube.AnnotationCPUSetScheduler)
	b.keeper.podChanged(p, shares)
	again := newBench(t, machine("n", 2, 1, 4, held))
	again.keeper.podChanged(nil, shares)
	if got, restarted := b.open("n"), again.open("n"); got != 4 || restarted != 4 {
		t.Errorf("%d CPUs are open, and %d for a new scheduler, while the node still binds the pod to the other 4", got, restarted)
	}
	b.wokenPods()
	b.keeper.reportChanged(machine("n", 3, 1, 4))
	if got, woken := b.open("n"), fmt.Sprint(b.wokenPods()); got != 8 || woken != "[default/waiting]" {
		t.Errorf("%d CPUs are open after the next report, and %s is woken", got, woken)
	}
}

// TestAPodThatReplacesAnotherHoldsOnlyItsOwnCPUs ends a pod of four own CPUs
// while the informer has no watch. Another pod has its name when the informer
// lists the pods again. The informer then reports one change from the first pod
// to the second.
func TestAPodThatReplacesAnotherHoldsOnlyItsOwnCPUs(t *testing.T) {
	next := pinned("a", 2, 100)
	next.UID = "b"
	shares := plain("a")
	shares.UID = "b"
	for name, x := range map[string]struct {
		next *corev1.Pod
		open string
	}{
		"on the same node":           {bound(next, "n", nil), "n 6, m 8"},
		"on another node":            {bound(next, "m", nil), "n 8, m 6"},
		"it waits":                   {next, "n 8, m 8"},
		"it asks for no CPUs":        {bound(shares, "n", nil), "n 8, m 8"},
		"it waits and asks for none": {shares, "n 8, m 8"},
	} {
		b := newBench(t, machine("n", 1, 1, 4), machine("m", 1, 1, 4))
		open := func() string { return fmt.Sprintf("n %d, m %d", b.open("n"), b.open("m")) }
		first := b.run(pinned("a", 4, 100), "n")
		if _, why := b.tryNode(pinned("waiting", 5, 100), "n"); why == "" {
			t.Fatal("it fits")
		}
		b.keeper.podChanged(first, x.next)
		if got := open(); got != x.open {
			t.Errorf("%s: open: %s, want %s", name, got, x.open)
		}
		if got := fmt.Sprint(b.wokenPods()); got != "[default/waiting]" {
			t.Errorf("%s: woken: %s", name, got)
		}
		b.keeper.podDeleted(x.next)
		if got := open(); got != "n 8, m 8" {
			t.Errorf("%s: open after its end: %s", name, got)
		}
	}
}

// mirror returns the mirror of a static pod of node n, which owns six CPUs. The
// node knows the static pod as 8f3e.
func mirror(uid string) *corev1.Pod {
	p := bound(pinned("etcd-n", 6, 100), "n", map[string]string{corev1.MirrorPodAnnotationKey: "8f3e"})
	p.UID, p.OwnerReferences = types.UID(uid), []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", Controller: new(true)}}
	return p
}

// withStaticPod returns the report of node n with the static pod of mirror.
func withStaticPod(sequence int64) *v1alpha1.NodeReport {
	return machine("n", sequence, 2, 4, map[place.UID]cpus.Allocation{"8f3e": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0, 1, 2, 8, 9, 10)}})
}

// TestAStaticPodHoldsItsCPUsOnce follows a static pod of six CPUs on a node of
// sixteen, and its mirror in the API server.
func TestAStaticPodHoldsItsCPUsOnce(t *testing.T) {
	for _, reportFirst := range []bool{false, true} {
		b := newBench(t)
		opens := func(when string, want int) {
			t.Helper()
			if got := b.open("n"); got != want {
				t.Errorf("report first: %v, %s: %d CPUs are open, want %d", reportFirst, when, got, want)
			}
		}
		p := mirror("one")
		if reportFirst {
			b.keeper.reportChanged(withStaticPod(1))
			opens("without a mirror", 10)
		}
		b.keeper.podChanged(nil, p)
		b.keeper.reportChanged(withStaticPod(2))
		opens("with a mirror", 10)
		b.keeper.podDeleted(p)
		opens("while the kubelet makes the mirror again", 10)
		again := mirror("two")
		b.keeper.podChanged(nil, again)
		opens("with the new mirror", 10)
		b.keeper.podChanged(again, mirror("three"))
		opens("with a mirror that replaced another one", 10)
		b.keeper.podDeleted(mirror("three"))
		b.keeper.reportChanged(machine("n", 3, 2, 4))
		opens("after its end", 16)
	}
}

// TestAPreemptionFindsAStaticPodByItsMirror shows the plugin the mirror of a
// static pod, as the scheduler lists it.
func TestAPreemptionFindsAStaticPodByItsMirror(t *testing.T) {
	b := newBench(t, withStaticPod(1))
	there, n := podInfo{pod: mirror("one")}, named("n")
	b.keeper.podChanged(nil, there.pod)
	n.pods = []fwk.PodInfo{there}
	if got := b.keeper.viewWithoutEnded(n).Open().Len(); got != 10 {
		t.Errorf("%d CPUs are open: the listed pod has not ended", got)
	}
	p, s := pinned("new", 12, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	b.RemovePod(t.Context(), s, p, there, n)
	if b.Filter(t.Context(), s, p, n).IsSuccess() {
		t.Error("the end of the mirror would not end the static pod, and free no CPUs")
	}
	b.AddPod(t.Context(), s, p, there, n)
	if b.Filter(t.Context(), s, p, n).IsSuccess() {
		t.Error("the static pod is put back, and takes no CPUs")
	}
	if hint, err := b.hasRoomAfterPod(b.keeper.log, p, there.pod, nil); err != nil || hint != fwk.QueueSkip {
		t.Errorf("the deletion of a mirror is not the end of its static pod: %v %v", hint, err)
	}
}

// TestANodeWithAStaticPodIsForgotten deletes a node, its report, and the mirror
// of its static pod. Kubernetes does this in no fixed order.
func TestANodeWithAStaticPodIsForgotten(t *testing.T) {
	for _, order := range []string{"nrp", "npr", "rnp", "rpn", "pnr", "prn"} {
		b := newBench(t, withStaticPod(1))
		b.keeper.nodeAdded(object("n"))
		b.keeper.podChanged(nil, mirror("one"))
		for _, gone := range order {
			switch gone {
			case 'n':
				b.keeper.nodeDeleted(object("n"))
			case 'r':
				b.keeper.reportDeleted(withStaticPod(1))
			case 'p':
				b.keeper.podDeleted(mirror("one"))
			}
		}
		if _, kept := b.keeper.views.Load().names["n"]; kept || len(b.keeper.seen) > 0 {
			t.Errorf("%s: the node is not forgotten", order)
		}
	}
}
