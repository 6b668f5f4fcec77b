package plugin

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAPodWhoseCPUsWereLostInReserveIsTriedAgain fills the chosen node between
// Filter and Reserve. If Reserve refused the pod, the pod would wait for an
// event, although the other node has room.
func TestAPodWhoseCPUsWereLostInReserveIsTriedAgain(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4), machine("m", 1, 1, 4))
	p, s := pinned("a", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := b.Filter(t.Context(), s, p, named("n")); !status.IsSuccess() {
		t.Fatal(status)
	}
	b.run(pinned("faster", 7, 100), "n")
	if status := b.Reserve(t.Context(), s, p, "n"); status.Code() != fwk.Error || status.IsRejected() {
		t.Errorf("Reserve: %v, want an error", status)
	}
	b.Unreserve(t.Context(), s, p, "n")
	if _, why := b.tryNode(p, "m"); why != "" {
		t.Errorf("the next attempt: %s", why)
	}
}

// TestAPodThatWaitsNoMoreIsForgotten checks waiting pods that end. The keeper
// gets no event that a waiting pod was deleted.
func TestAPodThatWaitsNoMoreIsForgotten(t *testing.T) {
	for name, end := range map[string]func(*bench, cache.Indexer, *corev1.Pod){
		"it asks for no CPUs any more and is bound": func(b *bench, _ cache.Indexer, p *corev1.Pod) {
			q := bound(p, "n", nil)
			delete(q.Annotations, kube.AnnotationCPUSetScheduler)
			b.keeper.podChanged(p, q)
		},
		"it was deleted before it waited": func(_ *bench, pods cache.Indexer, p *corev1.Pod) {
			if err := pods.Delete(p); err != nil {
				t.Fatal(err)
			}
		},
		"another pod has its name": func(_ *bench, pods cache.Indexer, p *corev1.Pod) {
			q := p.DeepCopy()
			q.UID = "other"
			if err := pods.Update(q); err != nil {
				t.Fatal(err)
			}
		},
	} {
		b := newBench(t, machine("n", 1, 1, 4))
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		b.keeper.pods = listers.NewPodLister(pods)
		p := pinned("a", 9, 100)
		if err := pods.Add(p); err != nil {
			t.Fatal(err)
		}
		if _, why := b.tryNode(p, "n"); why == "" {
			t.Fatal("it fits")
		}
		if b.keeper.sweep(); len(b.keeper.failed) != 1 {
			t.Fatalf("%s: a pod that waits is forgotten", name)
		}
		end(b, pods, p)
		if b.keeper.sweep(); len(b.keeper.failed) != 0 {
			t.Errorf("%s: %d pods wait", name, len(b.keeper.failed))
		}
	}
}

// TestARevertedTrialWakesNoPod tries the pods of a PodGroup, of which only one
// fits. If the reverted trial woke the PodGroup, the scheduler would try it
// again and again. But CPUs that another pod has freed during the trial must
// wake all waiting pods.
func TestARevertedTrialWakesNoPod(t *testing.T) {
	member := func(name string) *corev1.Pod {
		p, group := pinned(name, 4, 100), "gang"
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		return p
	}
	for name, x := range map[string]struct {
		during func(b *bench, there *corev1.Pod)
		want   []string
	}{
		"nothing else happens": {func(*bench, *corev1.Pod) {}, nil},
		"another pod ends during the trial": {func(b *bench, there *corev1.Pod) {
			b.keeper.podDeleted(there)
			if got := b.wokenPods(); len(got) > 0 {
				t.Errorf("the trial holds the CPUs, and %v are woken", got)
			}
		}, []string{"default/second", "default/single"}},
	} {
		b := newBench(t, machine("n", 1, 1, 4))
		there := b.run(pinned("there", 2, 100), "n")
		if _, why := b.tryNode(pinned("single", 6, 100), "n"); why == "" {
			t.Fatal("it fits")
		}
		first, second := member("first"), member("second")
		s, why := b.tryNode(first, "n")
		if why != "" {
			t.Fatal(why)
		}
		s.trial = true
		if _, why := b.tryNode(second, "n"); why == "" {
			t.Fatal("both fit")
		}
		b.wokenPods()
		x.during(b, there)
		b.Unreserve(t.Context(), s, first, "n")
		if got := b.wokenPods(); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v are woken, want %v", name, got, x.want)
		}
	}
}

// TestTheEndOfAReservationWakesThoseItHeldUp makes a pod fail after its
// reservation, outside a trial.
func TestTheEndOfAReservationWakesThoseItHeldUp(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	p := pinned("a", 4, 100)
	s, _ := b.tryNode(p, "n")
	if _, why := b.tryNode(pinned("b", 4, 100), "n"); why == "" {
		t.Fatal("both fit")
	}
	b.Unreserve(t.Context(), s, p, "n")
	if got := b.wokenPods(); !slices.Equal(got, []string{"default/b"}) {
		t.Errorf("woken: %v", got)
	}
}

// TestABindAsReservedChangesNothing binds a pod to its reserved CPUs. No node
// must answer again, and no pod must be woken.
func TestABindAsReservedChangesNothing(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4))
	p := pinned("a", 4, 100)
	s, why := b.tryNode(p, "n")
	if why != "" {
		t.Fatal(why)
	}
	if _, why := b.tryNode(pinned("waiting", 16, 100), "n"); why == "" {
		t.Fatal("it fits")
	}
	view := b.keeper.view("n")
	words := kube.ContractAnnotations(p, view.Map(), cycleOf(s).contract)
	b.keeper.podChanged(p, bound(p, "n", words))
	if b.keeper.view("n") != view || len(b.keeper.freed) > 0 {
		t.Errorf("the bind as it was reserved freed %v", b.keeper.freed)
	}
	other := pinned("b", 4, 100)
	if _, why := b.tryNode(other, "n"); why != "" {
		t.Fatal(why)
	}
	b.keeper.podChanged(other, bound(other, "n", nil))
	if b.keeper.view("n") == view || !b.keeper.freed["n"] {
		t.Error("a bind without the choice changed nothing")
	}
}

// TestNoPodIsWokenIfNoneWaits frees CPUs before and after a pod begins to wait.
func TestNoPodIsWokenIfNoneWaits(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4))
	for _, waits := range []bool{false, true} {
		there := b.run(pinned("there", 4, 100), "n")
		if waits {
			if _, why := b.tryNode(pinned("waiting", 14, 100), "n"); why == "" {
				t.Fatal("it fits")
			}
		}
		b.keeper.podDeleted(there)
		if woken := len(b.keeper.waker) > 0; woken != waits {
			t.Errorf("a pod waits: %v, woken: %v", waits, woken)
		}
	}
}

// TestFilterIsSkippedWhileAllNodesHaveRoom checks that the framework does not
// filter the nodes for a demand that fits on all of them. In all other cases,
// it must filter them.
func TestFilterIsSkippedWhileAllNodesHaveRoom(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4), machine("m", 1, 2, 4))
	for i := range often {
		if b.skipsFilter("n", "m") != (i == often-1) {
			t.Fatalf("attempt %d of %d", i+1, often)
		}
	}
	if b.skipsFilter("n", "m", "new") {
		t.Error("the plugin has not seen a node")
	}
	there := b.run(pinned("there", 12, 100), "n")
	if b.skipsFilter("n", "m") {
		t.Error("a node is full")
	}
	b.keeper.podDeleted(there)
	if !b.skipsFilter("n", "m") {
		t.Error("the node has room again")
	}
	waiting := pinned("waiting", 16, 100)
	if _, why := b.tryNode(waiting, "n"); why == "" {
		t.Fatal("it fits")
	}
	if b.skipsFilter("n", "m") {
		t.Error("a pod waits, which may preempt others")
	}
	b.keeper.podDeleted(waiting)
	nominated := pinned("nominated", 4, 100)
	nominated.Status.NominatedNodeName = "n"
	b.keeper.podChanged(nil, nominated)
	if b.skipsFilter("n", "m") {
		t.Error("a pod is nominated for a node")
	}
	b.keeper.podChanged(nominated, pinned("nominated", 4, 100))
	if !b.skipsFilter("n", "m") {
		t.Error("the pod is nominated no more")
	}
}

// TestANodeThatFillsAfterPreFilterFailsReserve fills a node after PreFilter has
// found room on all nodes. Reserve must fail with an error, so that the pod is
// tried again. The next attempt must filter the node.
func TestANodeThatFillsAfterPreFilterFailsReserve(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4), machine("m", 1, 2, 4))
	for range often {
		b.skipsFilter("n", "m")
	}
	p, s := pinned("late", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, []fwk.NodeInfo{named("n"), named("m")}); !status.IsSkip() {
		t.Fatalf("all nodes have room: %v", status)
	}
	owner := map[place.UID]cpus.Allocation{"owner": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13)}}
	b.keeper.reportChanged(machine("n", 2, 2, 4, owner))
	if status := b.Reserve(t.Context(), s, p, "n"); status.Code() != fwk.Error {
		t.Errorf("Reserve on a full node: %v, want an error", status)
	}
	b.Unreserve(t.Context(), s, p, "n")
	if b.skipsFilter("n", "m") {
		t.Error("a node is full")
	}
	if _, why := b.tryNode(p, "n"); why != cpus.LastOpen.Text() {
		t.Errorf("the next attempt: %q", why)
	}
	if _, why := b.tryNode(p, "m"); why != "" {
		t.Errorf("the other node: %q", why)
	}
}

// TestANodeWithoutAReportIsFiltered checks that Filter refuses nodes without a
// report. In all cases, the number of nodes equals the number of reports.
func TestANodeWithoutAReportIsFiltered(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4), machine("gone", 1, 2, 4))
	b.keeper.nodeAdded(object("n"))
	b.keeper.nodeAdded(object("silent"))
	for range 2 * often {
		if b.skipsFilter("n", "silent") {
			t.Fatal("one of the reports is of a node that is gone")
		}
	}
	b.keeper.reportDeleted(machine("gone", 1, 2, 4))
	b.keeper.reportChanged(machine("silent", 1, 2, 4))
	if !b.skipsFilter("n", "silent") {
		t.Error("both nodes have a report")
	}
	b.keeper.reportDeleted(machine("silent", 1, 2, 4))
	b.keeper.reportChanged(machine("gone", 2, 2, 4))
	if b.skipsFilter("n", "silent") {
		t.Error("the report of a node was deleted")
	}
	b.keeper.reportDeleted(machine("gone", 2, 2, 4))
	b.keeper.nodeDeleted(object("silent"))
	if !b.skipsFilter("n") {
		t.Error("only a node with a report is left")
	}
}

// TestTheEndOfANominationWakesThoseThatGaveWay refuses a pod because of another
// one that is nominated for the node. The scheduler then reports that the
// nominated pod has ended, also if it is only nominated no more.
func TestTheEndOfANominationWakesThoseThatGaveWay(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4), machine("full", 1, 1, 4))
	b.run(pinned("there", 6, 100), "full")
	nominated := func(node string) *corev1.Pod {
		p := pinned("nominated", 6, 100)
		p.Status.NominatedNodeName = node
		return p
	}
	p, s := pinned("a", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	b.AddPod(t.Context(), s, p, podInfo{pod: nominated("n")}, named("n"))
	if status := b.Filter(t.Context(), s, p, named("n")); status.IsSuccess() {
		t.Fatal("it fits beside the nominated pod")
	}
	for name, x := range map[string]struct {
		waiting *corev1.Pod
		ended   any
		want    fwk.QueueingHint
	}{
		"the node has room":             {p, nominated("n"), fwk.Queue},
		"the watch missed the end":      {p, cache.DeletedFinalStateUnknown{Obj: nominated("n")}, fwk.Queue},
		"the node is too small":         {pinned("huge", 8, 100), nominated("n"), fwk.QueueSkip},
		"another pod has the CPUs":      {p, nominated("full"), fwk.QueueSkip},
		"the node is not known":         {p, nominated("gone"), fwk.QueueSkip},
		"it was nominated for no node":  {p, nominated(""), fwk.QueueSkip},
		"it was bound to the full node": {p, bound(nominated("n"), "full", nil), fwk.QueueSkip},
	} {
		hint, err := b.hasRoomAfterPod(b.keeper.log, x.waiting, x.ended, nil)
		if err != nil || hint != x.want {
			t.Errorf("%s: %v %v, want %v", name, hint, err, x.want)
		}
	}
}

// TestAWaitingPodThatAsksForOtherCPUsIsTriedAgain changes a pod that no node
// takes, because three CPUs are no whole cores.
func TestAWaitingPodThatAsksForOtherCPUsIsTriedAgain(t *testing.T) {
	p := pinned("a", 3, 100)
	p.Annotations[kube.AnnotationResourceSpec] = `{"requiredCPUBindPolicy":"FullPCPUs"}`
	anywhere, fewer, labelled, refused := pinned("a", 3, 100), pinned("a", 2, 100), p.DeepCopy(), p.DeepCopy()
	labelled.Labels, labelled.Annotations["team"] = map[string]string{"team": "web"}, "web"
	refused.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	for name, x := range map[string]struct {
		next  *corev1.Pod
		want  fwk.QueueingHint
		woken string // when CPUs become free
		waits int
	}{
		"it takes any cores":          {anywhere, fwk.Queue, "[default/a]", 1},
		"it asks for fewer CPUs":      {fewer, fwk.Queue, "[default/a]", 1},
		"it asks for none":            {plain("a"), fwk.Queue, "[]", 0},
		"it has other labels":         {labelled, fwk.QueueSkip, "[]", 1},
		"the scheduler says it waits": {refused, fwk.QueueSkip, "[]", 1},
	} {
		b := newBench(t, machine("n", 1, 1, 4))
		events, err := b.EventsToRegister(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(events, func(e fwk.ClusterEventWithHint) bool {
			return e.Event == fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}
		})
		if i < 0 {
			t.Fatal("the queue does not ask the plugin after a change of the waiting pod")
		}
		there := b.run(pinned("there", 4, 100), "n")
		if _, why := b.tryNode(p, "n"); why != cpus.NotWhole.Text() {
			t.Fatalf("%q", why)
		}
		if got, err := events[i].QueueingHintFn(b.keeper.log, x.next, p, x.next); err != nil || got != x.want {
			t.Errorf("%s: %v %v, want %v", name, got, err, x.want)
		}
		b.keeper.podChanged(p, x.next)
		b.keeper.podDeleted(there)
		if got := fmt.Sprint(b.wokenPods()); got != x.woken || len(b.keeper.failed) != x.waits {
			t.Errorf("%s: woken: %s, and %d pods wait; want %s, %d", name, got, len(b.keeper.failed), x.woken, x.waits)
		}
	}
}

// TestTheEndOfADoubtWakesThoseItHeldUp loses the answer to a bind of a pod. The
// pod then demands another number of CPUs. At its next reservation it must
// release the first CPUs, even if the reservation fails.
func TestTheEndOfADoubtWakesThoseItHeldUp(t *testing.T) {
	for name, x := range map[string]struct {
		next int
		fits bool
	}{"it gets fewer CPUs": {1, true}, "it does not fit": {6, false}} {
		b := newBench(t, machine("n", 1, 1, 4))
		b.run(pinned("there", 2, 100), "n")
		p := pinned("a", 4, 100)
		s, why := b.tryNode(p, "n")
		if why != "" {
			t.Fatal(why)
		}
		cycleOf(s).sent = true
		b.Unreserve(t.Context(), s, p, "n")
		if _, why := b.tryNode(pinned("waiting", 3, 100), "n"); why == "" {
			t.Fatal("it fits beside the doubt")
		}
		next, _ := demandOf(pinned("a", x.next, 100))
		if _, why := b.keeper.reserve(place.Pod{UID: "a", Request: next}, "n", nil); (why == cpus.Fits) != x.fits {
			t.Fatalf("%s: %q", name, why)
		}
		if got := b.wokenPods(); !slices.Equal(got, []string{"default/waiting"}) {
			t.Errorf("%s: woken: %v", name, got)
		}
	}
}
