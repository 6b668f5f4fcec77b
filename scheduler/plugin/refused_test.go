package plugin

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// refusing returns the report of a node of two CPUs that reserves some and
// refuses pods.
func refusing(sequence int64, reserved string, pods ...string) *v1alpha1.NodeReport {
	r := machine("n", sequence, 1, 1)
	r.Status.CPUs.Reserved = reserved
	for _, uid := range pods {
		r.Status.CPUs.Pods = append(r.Status.CPUs.Pods, v1alpha1.PodCPUs{UID: uid, Why: "too few CPUs"})
	}
	return r
}

// TestAPodThatItsNodeRefusesHoldsNoCPUs reserves a CPU of a node of two, so that
// the node takes the other one from a pod. A pod with seats must then get the
// node. A scheduler that starts later must count the same.
func TestAPodThatItsNodeRefusesHoldsNoCPUs(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 1))
	own := b.run(pinned("own", 1, 100), "n")
	held := b.keeper.view("n").Holds()
	b.keeper.reportChanged(machine("n", 2, 1, 1, held))
	b.keeper.reportChanged(refusing(3, "0"))
	seats := pinned("seats", 1, 50)
	if _, why := b.tryNode(seats, "n"); why != "no room for seats: too few CPUs are open" {
		t.Fatalf("the node has not said yet that it takes the CPU away: %q", why)
	}
	b.wokenPods()
	b.keeper.reportChanged(refusing(4, "0", "own"))
	if woken := fmt.Sprint(b.wokenPods()); woken != "[default/seats]" || b.open("n") != 1 {
		t.Errorf("%d CPUs are open, and %s is woken", b.open("n"), woken)
	}
	seats = b.run(seats, "n")
	for name, order := range map[string][]*corev1.Pod{"own first": {own, seats}, "seats first": {seats, own}} {
		for _, before := range []bool{false, true} {
			again := newBench(t)
			if before {
				again.keeper.reportChanged(refusing(4, "0", "own"))
			}
			for _, p := range order {
				again.keeper.podChanged(nil, p)
			}
			again.keeper.reportChanged(refusing(4, "0", "own"))
			if got, want := again.holds("n"), b.holds("n"); got != want {
				t.Errorf("after a restart, %s: %s\nwant %s", name, got, want)
			}
		}
	}
	b.keeper.podDeleted(seats)
	b.keeper.reportChanged(machine("n", 5, 1, 1, held))
	if got := b.holds("n"); got != fmt.Sprint(held) {
		t.Errorf("the node has the pod again: %s\nwant %v", got, held)
	}
}

// TestANodeWithBoundPodsIsNotForgotten takes the report of a node away, and
// gives it one that has not seen its pod. The pod must hold the CPUs of its
// contract, as in a new scheduler.
func TestANodeWithBoundPodsIsNotForgotten(t *testing.T) {
	for name, lose := range map[string]func(*bench, *corev1.Pod){
		"its only pod is refused": func(b *bench, _ *corev1.Pod) {
			b.keeper.reportChanged(refusing(2, "", "own"))
			b.keeper.reportDeleted(refusing(2, "", "own"))
		},
		"another pod ends before the first report": func(b *bench, p *corev1.Pod) {
			again := newBench(b.t)
			b.Plugin, b.handle = again.Plugin, again.handle
			b.keeper.podChanged(nil, p)
			other := bound(pinned("other", 1, 100), "n", nil)
			b.keeper.podChanged(nil, other)
			b.keeper.podDeleted(other)
		},
	} {
		b := newBench(t, machine("n", 1, 1, 1))
		own := b.run(pinned("own", 1, 100), "n")
		want := b.holds("n")
		lose(b, own)
		b.keeper.reportChanged(machine("n", 3, 1, 1))
		if got := b.holds("n"); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
		b.keeper.podDeleted(own)
		b.keeper.reportDeleted(machine("n", 3, 1, 1))
		if n := len(b.keeper.seen); n != 0 || b.keeper.view("n").Room(&cpus.PodRequest{}) != cpus.NoReport {
			t.Errorf("%s: %d nodes are left", name, n)
		}
	}
}

// TestAPreemptionSparesAPodThatItsNodeRefuses removes two pods from a node, and
// puts them back one after the other. The pod that the node refuses holds no
// CPUs, so the new pod has room beside it.
func TestAPreemptionSparesAPodThatItsNodeRefuses(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 8))
	refused, other := b.run(pinned("refused", 5, 100), "n"), b.run(pinned("other", 4, 100), "n")
	set, err := unit.ParseCPUSet("4-5,12-13")
	if err != nil {
		t.Fatal(err)
	}
	r := machine("n", 2, 1, 8, map[place.UID]cpus.Allocation{"other": {Policy: cpus.Exclusive, CPUs: set}})
	r.Status.CPUs.Reserved, r.Status.CPUs.Pods = "0-3,8-11", append(r.Status.CPUs.Pods, v1alpha1.PodCPUs{UID: "refused", Why: "too few CPUs"})
	b.keeper.reportChanged(r)
	p, s := pinned("new", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	for _, victim := range []*corev1.Pod{refused, other} {
		b.RemovePod(t.Context(), s, p, podInfo{pod: victim}, named("n"))
	}
	for _, x := range []struct {
		pod  *corev1.Pod
		want string
	}{{refused, ""}, {other, cpus.LastOpen.Text()}} {
		b.AddPod(t.Context(), s, p, podInfo{pod: x.pod}, named("n"))
		if why := b.Filter(t.Context(), s, p, named("n")).Message(); why != x.want {
			t.Errorf("beside %s: %q, want %q", x.pod.Name, why, x.want)
		}
	}
}
