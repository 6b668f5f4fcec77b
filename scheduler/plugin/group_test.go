package plugin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// rehearsal is the preemption of a PodGroup on one node, in the same steps as
// in the scheduler.
type rehearsal struct {
	*bench
	members []*corev1.Pod
	states  []*state
	there   []fwk.PodInfo // the pods of the node that are left in the scheduler's list
}

func (r *rehearsal) node() nodeInfo {
	n := named("n")
	n.pods = r.there
	r.handle.nodes.of = map[string]fwk.NodeInfo{"n": n}
	return n
}

// place filters and reserves the node for all members, and then reverts this.
// It returns the first reason why a member does not fit. ignore means that a
// failed reservation is ignored, as the scheduler does when it puts a pod back.
func (r *rehearsal) place(ignore bool) string {
	r.t.Helper()
	n := r.node()
	for i, p := range r.members {
		if why := r.Filter(r.t.Context(), r.states[i], p, n).Message(); why != "" {
			return why
		}
		if status := r.Reserve(r.t.Context(), r.states[i], p, "n"); !status.IsSuccess() && !ignore {
			return "Reserve: " + status.Message()
		}
		defer r.Unreserve(r.t.Context(), r.states[i], p, "n")
	}
	return ""
}

// reprieve puts a pod back if all members fit beside it.
func (r *rehearsal) reprieve(p *corev1.Pod) bool {
	r.t.Helper()
	left := r.there
	r.there = append(left[:len(left):len(left)], podInfo{pod: p})
	n := r.node()
	for i := range r.members {
		r.AddPod(r.t.Context(), r.states[i], r.members[i], podInfo{pod: p}, n)
	}
	if r.place(true) == "" {
		return true
	}
	r.there = left
	n = r.node()
	for i := range r.members {
		r.RemovePod(r.t.Context(), r.states[i], r.members[i], podInfo{pod: p}, n)
	}
	return false
}

// TestAGroupPreemptionSeesWhatItWouldFree tries a PodGroup on a full node
// without the node's pods. Then it puts back each pod for which there is room.
// The ledger still has all of these pods.
func TestAGroupPreemptionSeesWhatItWouldFree(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 8))
	one, two, three, small := b.run(pinned("one", 4, 100), "n"), b.run(pinned("two", 4, 100), "n"), b.run(pinned("three", 4, 100), "n"), b.run(pinned("small", 3, 100), "n")
	before := b.holds("n")
	r := &rehearsal{bench: b, members: []*corev1.Pod{pinned("first", 4, 100), pinned("second", 4, 100)}}
	for _, p := range []*corev1.Pod{one, two, three, small} {
		r.there = append(r.there, podInfo{pod: p})
	}
	begin := func() {
		r.states = nil
		for _, p := range r.members {
			s := newState()
			s.trial = true
			if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			r.states = append(r.states, s)
		}
	}
	begin()
	if r.place(false) == "" {
		t.Fatal("the group fits beside all pods")
	}
	r.there = nil
	begin()
	if why := r.place(false); why != "" {
		t.Fatalf("without the pods: %s", why)
	}
	r.members = append(r.members, pinned("third", 8, 100))
	begin()
	if r.place(false) == "" {
		t.Error("16 CPUs are owned, and one must stay open")
	}
	r.members = r.members[:2]
	begin()
	for i, x := range []struct {
		pod  *corev1.Pod
		fits bool
	}{{one, true}, {two, false}, {small, true}, {three, false}} {
		if fits := r.reprieve(x.pod); fits != x.fits {
			t.Errorf("attempt %d: %s fits beside the group and those before: %v", i+1, x.pod.Name, fits)
		}
	}
	if got := b.holds("n"); got != before {
		t.Errorf("the node has %s after the trials, and had %s", got, before)
	}
	s := r.states[0]
	s.trial = false
	if status := b.Reserve(t.Context(), s, r.members[0], "n"); status.IsSuccess() {
		t.Error("the group gets CPUs of pods that have not ended")
	}
}

// TestAGroupPreemptionCountsPodsWhoseEndTheSchedulerDoesNotKnow ends the larger
// of two pods. The ledger knows this, and the scheduler does not. The group has
// room beside the smaller pod only, so the scheduler must not put back the
// larger one, and end the smaller one in its place.
func TestAGroupPreemptionCountsPodsWhoseEndTheSchedulerDoesNotKnow(t *testing.T) {
	for _, first := range []string{"large", "small"} {
		b := newBench(t, machine("n", 1, 1, 8))
		large, small := b.run(pinned("large", 8, 100), "n"), b.run(pinned("small", 7, 100), "n")
		b.keeper.podDeleted(large)
		r := &rehearsal{bench: b, members: []*corev1.Pod{pinned("member", 8, 100)}}
		s := newState()
		s.trial = true
		r.states = []*state{s}
		if _, status := b.PreFilter(t.Context(), s, r.members[0], nil); !status.IsSuccess() {
			t.Fatal(status)
		}
		if why := r.place(false); why != "" {
			t.Fatalf("without the pods: %s", why)
		}
		daemon := podInfo{pod: bound(plain("daemon"), "n", nil)} // another plugin refuses to put it back
		b.AddPod(t.Context(), s, r.members[0], daemon, r.node())
		b.RemovePod(t.Context(), s, r.members[0], daemon, r.node())
		pods := []*corev1.Pod{large, small}
		if first == "small" {
			pods = []*corev1.Pod{small, large}
		}
		for _, p := range pods {
			if fits := r.reprieve(p); fits != (p == small) {
				t.Errorf("%s first: %s fits beside the group: %v", first, p.Name, fits)
			}
		}
		if why := r.place(false); why != "" {
			t.Errorf("%s first: beside the smaller pod: %s", first, why)
		}
	}
}

// TestANominatedPodCountsForAPodGroup adds a nominated pod to a node while a
// PodGroup is tried there.
func TestANominatedPodCountsForAPodGroup(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	there := b.run(pinned("there", 4, 100), "n")
	p, s := pinned("member", 4, 100), newState()
	s.trial = true
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	b.AddPod(t.Context(), s, p, podInfo{pod: pinned("nominated", 4, 100)}, named("n")) // this node's list of pods does not contain the pod there
	if why := b.Filter(t.Context(), s, p, named("n")).Message(); why == "" {
		t.Errorf("it fits beside a nominated pod, without %s", there.Name)
	}
	b.RemovePod(t.Context(), s, p, podInfo{pod: pinned("nominated", 4, 100)}, named("n"))
	if why := b.Filter(t.Context(), s, p, named("n")).Message(); why != "" {
		t.Errorf("without both: %s", why)
	}
}
