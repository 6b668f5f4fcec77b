package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// rehearsal is the preemption of a PodGroup on one node, in the same steps as
// in the scheduler.
type rehearsal struct {
	*bench
	members []*corev1.Pod
	states  []*state
	there   []fwk.PodInfo // the pods of the node that are left in the scheduler's list
}

func (r *rehearsal) node() *nodeInfo {
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
	r.begin()
	if r.place(false) == "" {
		t.Fatal("the group fits beside all pods")
	}
	r.there = nil
	r.begin()
	if why := r.place(false); why != "" {
		t.Fatalf("without the pods: %s", why)
	}
	r.members = append(r.members, pinned("third", 8, 100))
	r.begin()
	if r.place(false) == "" {
		t.Error("16 CPUs are owned, and one must stay open")
	}
	r.members = r.members[:2]
	r.begin()
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

// begin starts the cycle of each member.
func (r *rehearsal) begin() {
	r.t.Helper()
	r.states = nil
	for _, p := range r.members {
		s := newState()
		s.trial = true
		if _, status := r.PreFilter(r.t.Context(), s, p, []fwk.NodeInfo{named("n")}); !status.IsSuccess() || status.IsSkip() {
			r.t.Fatal(status)
		}
		r.states = append(r.states, s)
	}
}

// TestAGroupPreemptionSparesPodsBesideWhichItHasRoom puts back the pods that a
// PodGroup may preempt, one after the other, and checks which stay.
func TestAGroupPreemptionSparesPodsBesideWhichItHasRoom(t *testing.T) {
	own := func(name string, cpus int) *corev1.Pod { return pinned(name, cpus, 100) }
	spread := func(name string, cpus int, how string) *corev1.Pod {
		p := own(name, cpus)
		p.Annotations[kube.AnnotationResourceSpec] = how
		return p
	}
	const (
		whole = `{"requiredCPUBindPolicy":"FullPCPUs"}`
		apart = `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`
	)
	for name, x := range map[string]struct {
		members []*corev1.Pod
		victims []*corev1.Pod // in the order in which the scheduler puts them back
		change  func(b *bench, members, bound []*corev1.Pod)
		spared  string
	}{
		"the larger pod has ended, which the scheduler does not know": {
			[]*corev1.Pod{own("m", 8)}, []*corev1.Pod{own("large", 8), own("small", 7)},
			func(b *bench, _, bound []*corev1.Pod) { b.keeper.podDeleted(bound[0]) }, "small",
		},
		"the same, and the smaller one comes first": {
			[]*corev1.Pod{own("m", 8)}, []*corev1.Pod{own("small", 7), own("large", 8)},
			func(b *bench, _, bound []*corev1.Pod) { b.keeper.podDeleted(bound[1]) }, "small",
		},
		"the first member breaks up the cores of the pod that has ended": {
			[]*corev1.Pod{spread("m", 5, apart), own("n", 3)}, []*corev1.Pod{spread("large", 8, whole), own("small", 7)},
			func(b *bench, _, bound []*corev1.Pod) { b.keeper.podDeleted(bound[0]) }, "small",
		},
		"pods without CPUs have ended or run": {
			[]*corev1.Pod{own("m", 8)}, []*corev1.Pod{plain("ended"), own("large", 8), plain("running"), own("small", 7)},
			func(b *bench, _, bound []*corev1.Pod) { b.keeper.podDeleted(bound[0]) }, "ended running small",
		},
		"it is not known whether a member is bound there": {
			[]*corev1.Pod{own("m", 8)}, []*corev1.Pod{own("small", 7)},
			func(b *bench, members, _ []*corev1.Pod) {
				if _, why := b.tryNode(members[0], "n"); why != "" {
					t.Fatal(why)
				}
				b.keeper.keepDoubtful(members[0].UID)
			}, "small",
		},
		"the node refuses a pod": {
			[]*corev1.Pod{own("m", 4)}, []*corev1.Pod{own("refused", 5), own("other", 4)},
			func(b *bench, _, _ []*corev1.Pod) {
				set, err := unit.ParseCPUSet("4-5,12-13")
				if err != nil {
					t.Fatal(err)
				}
				r := machine("n", 2, 1, 8, map[place.UID]cpus.Allocation{"other": {Policy: cpus.Exclusive, CPUs: set}})
				r.Status.CPUs.Reserved, r.Status.CPUs.Pods = "0-3,8-11", append(r.Status.CPUs.Pods, v1alpha1.PodCPUs{UID: "refused", Why: "too few CPUs"})
				b.keeper.reportChanged(r)
			}, "refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, machine("n", 1, 1, 8))
			r := &rehearsal{bench: b, members: x.members}
			var all []*corev1.Pod
			for _, p := range x.victims {
				if _, asks := demandOf(p); asks {
					all = append(all, b.run(p, "n"))
				} else {
					all = append(all, bound(p, "n", nil))
				}
			}
			x.change(b, x.members, all)
			before := b.holds("n")
			r.begin()
			if why := r.place(false); why != "" {
				t.Fatalf("without the pods: %s", why)
			}
			var spared []string
			for _, p := range all {
				if r.reprieve(p) {
					spared = append(spared, p.Name)
				}
			}
			if got := strings.Join(spared, " "); got != x.spared {
				t.Errorf("%s stay, want %s", got, x.spared)
			}
			if got := b.holds("n"); got != before {
				t.Errorf("the node has %s after the trials, and had %s", got, before)
			}
		})
	}
}

// TestAPodThatIsNotPutBackHoldsNothing puts a pod without CPUs back and removes
// it again, because another plugin refuses it.
func TestAPodThatIsNotPutBackHoldsNothing(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 8))
	ended := b.run(pinned("ended", 8, 100), "n")
	b.keeper.podDeleted(ended)
	r := &rehearsal{bench: b, members: []*corev1.Pod{pinned("m", 8, 100)}}
	r.begin()
	for _, p := range []*corev1.Pod{bound(plain("daemon"), "n", nil), ended} {
		b.AddPod(t.Context(), r.states[0], r.members[0], podInfo{pod: p}, r.node())
		b.RemovePod(t.Context(), r.states[0], r.members[0], podInfo{pod: p}, r.node())
	}
	if why := r.place(false); why != "" {
		t.Error(why)
	}
}

// TestANominatedPodCountsBesideAPodThatIsPutBack adds a nominated pod to a copy
// of a cycle, as the scheduler does.
func TestANominatedPodCountsBesideAPodThatIsPutBack(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 8))
	ended := b.run(pinned("ended", 3, 100), "n")
	b.keeper.podDeleted(ended)
	r := &rehearsal{bench: b, members: []*corev1.Pod{pinned("m", 8, 100)}}
	r.begin()
	if !r.reprieve(ended) {
		t.Fatal("it does not fit")
	}
	for n, want := range map[int]string{4: "", 5: cpus.LastOpen.Text()} {
		s := r.states[0].Clone()
		b.AddPod(t.Context(), s, r.members[0], podInfo{pod: pinned("nominated", n, 100)}, r.node())
		if why := b.Filter(t.Context(), s, r.members[0], r.node()).Message(); why != want {
			t.Errorf("beside 3 and %d CPUs: %q, want %q", n, why, want)
		}
	}
}

// TestNoMemberOfAPodGroupSkipsFilter asks for CPUs that are free on all nodes,
// so often that the plugin knows it.
func TestNoMemberOfAPodGroupSkipsFilter(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 8))
	for range often {
		b.skipsFilter("n")
	}
	if !b.skipsFilter("n") {
		t.Fatal("a single pod does not skip it")
	}
	r := &rehearsal{bench: b, members: []*corev1.Pod{pinned("new", 4, 100)}}
	r.begin()
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
