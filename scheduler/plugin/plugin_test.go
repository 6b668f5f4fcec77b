package plugin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

func TestAPodGetsItsCPUsInTheBinding(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4), machine("small", 1, 1, 1))
	var sent *corev1.Binding
	b.handle.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		sent = a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		return true, sent, nil
	})
	p := pinned("a", 4, 100)
	s, why := b.tryNode(p, "n")
	if why != "" {
		t.Fatal(why)
	}
	if score := b.scores(s, p, "n", "small")[0]; score <= 0 || score > 100 {
		t.Errorf("score %d", score)
	}
	if status := b.Bind(t.Context(), s, p, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if sent.Name != "a" || sent.UID != p.UID || sent.Target.Name != "n" || sent.Annotations[kube.AnnotationCPUSet] == "" || sent.Annotations[kube.AnnotationResourceStatus] == "" {
		t.Fatalf("sent %+v", sent)
	}
	if n := len(b.handle.client.Actions()); n != 1 {
		t.Errorf("%d requests, want the binding alone: %v", n, b.handle.client.Actions())
	}
	c, given, faults := kube.ChoiceOf(bound(p, "n", sent.Annotations))
	if !given || len(faults) > 0 || c.CPUs.Len() != 4 || c.CPUs != cycleOf(s).contract.CPUs {
		t.Errorf("the pod says %+v, %v", c, faults)
	}
	other, why := b.tryNode(pinned("b", 4, 100), "n")
	if why != "" || !cycleOf(other).contract.CPUs.Intersect(c.CPUs).Empty() {
		t.Errorf("beside %v: %v %s", c.CPUs, cycleOf(other).contract.CPUs, why)
	}
	if _, why = b.tryNode(pinned("c", 8, 100), "n"); why != cpus.LastOpen.Text() {
		t.Errorf("8 of the last 8, of which one stays open: %q", why)
	}
}

// TestANodeThatChangedSinceItWasChosenGetsNoPod reserves CPUs for a pod. Before the
// bind, the node loses its report and the pod is deleted, or another CPU comes
// online. The scheduler must send no binding, and must not panic.
func TestANodeThatChangedSinceItWasChosenGetsNoPod(t *testing.T) {
	for name, change := range map[string]func(*bench, *corev1.Pod){
		"the report and the pod are deleted": func(b *bench, p *corev1.Pod) {
			b.keeper.reportDeleted(machine("n", 1, 2, 4))
			b.keeper.podDeleted(p)
		},
		"more CPUs are online": func(b *bench, _ *corev1.Pod) { b.keeper.reportChanged(machine("n", 2, 2, 5)) },
	} {
		b := newBench(t, machine("n", 1, 2, 4))
		p := pinned("a", 4, 100)
		s, why := b.tryNode(p, "n")
		if why != "" {
			t.Fatal(why)
		}
		change(b, p)
		if status := b.Bind(t.Context(), s, p, "n"); status.IsSuccess() || len(b.handle.client.Actions()) > 0 {
			t.Errorf("%s: %v, requests %v", name, status, b.handle.client.Actions())
		}
		b.Unreserve(t.Context(), s, p, "n")
		if holds := b.keeper.view("n").Holds(); len(holds) > 0 {
			t.Errorf("%s: the pod still holds %v", name, holds)
		}
	}
}

// TestPodsWithTheSameExclusivePolicyAreApart schedules three pods with the same
// preferredCPUExclusivePolicy. A node with cores of its own for such a pod must
// be rated higher. A node without such cores must still take the pod.
func TestPodsWithTheSameExclusivePolicyAreApart(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 2), machine("m", 1, 1, 2))
	pod := func(name string) *corev1.Pod {
		p := pinned(name, 1, 100)
		p.Annotations[kube.AnnotationResourceSpec] = `{"preferredCPUExclusivePolicy":"PCPULevel"}`
		return p
	}
	core := func(p *corev1.Pod) int {
		c, _, _ := kube.ChoiceOf(p)
		for cpu := range c.CPUs.All() {
			return int(cpu) % 2 // CPUs 0 and 2 are siblings
		}
		return -1
	}
	if one, two := core(b.run(pod("a"), "n")), core(b.run(pod("b"), "n")); one < 0 || two < 0 || one == two {
		t.Errorf("the first pod is on core %d, and the second on core %d", one, two)
	}
	c := pod("c")
	s, why := b.tryNode(c, "n")
	if why != "" {
		t.Fatalf("a third pod does not fit: %s", why)
	}
	b.Unreserve(t.Context(), s, c, "n")
	if scores := b.scores(s, c, "n", "m"); scores[0] >= scores[1] {
		t.Errorf("the node without cores for it is rated %d, and the empty one %d", scores[0], scores[1])
	}
}

func TestAPodThatAsksForNothingIsSkipped(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	s, p := newState(), plain("a")
	p.Annotations = map[string]string{"team": "web"}
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSkip() {
		t.Errorf("PreFilter: %v", status)
	}
	if status := b.PreScore(t.Context(), s, p, nil); !status.IsSkip() {
		t.Errorf("PreScore: %v", status)
	}
	if status := b.Reserve(t.Context(), s, p, "n"); !status.IsSuccess() {
		t.Errorf("Reserve: %v", status)
	}
	if status := b.Bind(t.Context(), s, p, "n"); !status.IsSkip() {
		t.Errorf("Bind: %v", status)
	}
	b.Unreserve(t.Context(), s, p, "n")
	if fragments, status := b.SignPod(t.Context(), p); !status.IsSuccess() || len(fragments) > 0 {
		t.Errorf("SignPod: %v %v", fragments, status)
	}
}

// TestAPodThatIsLeftAloneGetsNoCPUs schedules a pod of class LSR with the label
// that makes Tenon leave it alone.
func TestAPodThatIsLeftAloneGetsNoCPUs(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	p := plain("a")
	p.Labels = map[string]string{kube.LabelQOSClass: "LSR"}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("2")}
	if _, status := b.PreFilter(t.Context(), newState(), p, nil); status.IsSkip() {
		t.Fatal("the pod asks for no CPUs without the label, either")
	}
	p.Labels[kube.LabelIgnore] = "true"
	s := newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSkip() {
		t.Errorf("PreFilter: %v", status)
	}
	if status := b.Bind(t.Context(), s, p, "n"); !status.IsSkip() {
		t.Errorf("Bind: %v", status)
	}
}

// TestALostAnswerKeepsTheCPUs checks binds for which it is not known whether
// they succeeded.
func TestALostAnswerKeepsTheCPUs(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, x := range map[string]struct {
		err  error
		kept bool
	}{
		"a timeout of the server":     {apierrors.NewTimeoutError("slow", 1), true},
		"a request that took forever": {apierrors.NewServerTimeout(pods, "create", 1), true},
		"an error of the server":      {apierrors.NewInternalError(errors.New("etcd")), true},
		"no server":                   {apierrors.NewServiceUnavailable("restarting"), true},
		"a broken connection":         {errors.New("connection reset by peer"), true},
		"a pod that has a node":       {apierrors.NewConflict(pods, "a", errors.New("bound")), false},
		"a pod that is gone":          {apierrors.NewNotFound(pods, "a"), false},
		"a server with too much work": {apierrors.NewTooManyRequests("later", 1), false},
	} {
		b := newBench(t, machine("n", 1, 1, 4))
		b.handle.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, x.err })
		p := pinned("a", 4, 100)
		s, why := b.tryNode(p, "n")
		if why != "" {
			t.Fatal(why)
		}
		if status := b.Bind(t.Context(), s, p, "n"); status.IsSuccess() {
			t.Fatalf("%s: bound", name)
		}
		b.Unreserve(t.Context(), s, p, "n")
		if kept := b.open("n") == 4; kept != x.kept {
			t.Errorf("%s: %d CPUs are open", name, b.open("n"))
		}
		if !x.kept {
			continue
		}
		b.now = b.now.Add(doubtFor - time.Second)
		b.keeper.sweep()
		if b.open("n") != 4 {
			t.Errorf("%s: given up early", name)
		}
		b.now = b.now.Add(2 * time.Second)
		b.keeper.sweep()
		if b.open("n") != 8 {
			t.Errorf("%s: %d CPUs are open after the doubt", name, b.open("n"))
		}
	}
}

// TestARetryUsesWhatItHolds loses the answer to a bind, and schedules the pod
// again. The bind may have succeeded. So on the same node, the pod must get the
// same CPUs, and they must not be a reason to refuse the pod. On another node,
// it must keep the first CPUs until it is known where the pod is bound.
func TestARetryUsesWhatItHolds(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	conflict := apierrors.NewConflict(pods, "a", errors.New("pod a is already assigned to node \"n\""))
	lost := apierrors.NewTimeoutError("slow", 1)
	for name, x := range map[string]struct {
		retry  string // node of the second bind
		answer error  // to the second bind
		then   string // CPUs that are open after it
		seen   string // node on which the pod is seen then; empty: the time runs out
		end    string // CPUs that are open then
	}{
		"it was bound":                        {"n", conflict, "n 4, m 8", "n", "n 4, m 8"},
		"it was bound, and no answer says so": {"n", conflict, "n 4, m 8", "", "n 8, m 8"},
		"the second answer is lost, too":      {"n", lost, "n 4, m 8", "n", "n 4, m 8"},
		"elsewhere: it was bound":             {"m", conflict, "n 4, m 8", "n", "n 4, m 8"},
		"elsewhere: the second answer's lost": {"m", lost, "n 4, m 4", "n", "n 4, m 8"},
		"elsewhere: that bind happened":       {"m", lost, "n 4, m 4", "m", "n 8, m 4"},
		"elsewhere: neither happened":         {"m", lost, "n 4, m 4", "", "n 8, m 8"},
	} {
		b := newBench(t, machine("n", 1, 1, 4), machine("m", 1, 1, 4))
		answer := error(lost)
		b.handle.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
		open := func() string { return fmt.Sprintf("n %d, m %d", b.open("n"), b.open("m")) }
		p := pinned("a", 4, 100)
		chosen := map[string]place.Contract{}
		for _, node := range []string{"n", x.retry} {
			s, why := b.tryNode(p, node)
			if why != "" {
				t.Fatalf("%s: on %s: %s", name, node, why)
			}
			c := cycleOf(s).contract
			if before, again := chosen[node]; again && before.CPUs != c.CPUs {
				t.Errorf("%s: it gets %v after %v", name, c.CPUs, before.CPUs)
			}
			chosen[node] = c
			if status := b.Bind(t.Context(), s, p, node); status.IsSuccess() {
				t.Fatalf("%s: bound", name)
			}
			b.Unreserve(t.Context(), s, p, node)
			if _, why := b.tryNode(pinned("other", 4, 100), "n"); why == "" {
				t.Errorf("%s: another pod gets the CPUs after the bind to %s", name, node)
			}
			answer = x.answer
		}
		if got := open(); got != x.then {
			t.Errorf("%s: open after the retry: %s, want %s", name, got, x.then)
		}
		if x.seen != "" {
			words := kube.ContractAnnotations(p, b.keeper.view(x.seen).Map(), chosen[x.seen])
			b.keeper.podChanged(p, bound(p, x.seen, words))
			if got := open(); got != x.end {
				t.Errorf("%s: open when it is seen on %s: %s, want %s", name, x.seen, got, x.end)
			}
		}
		b.now = b.now.Add(2 * doubtFor)
		b.keeper.sweep()
		if got := open(); got != x.end {
			t.Errorf("%s: open after the doubt: %s, want %s", name, got, x.end)
		}
	}
}

// TestAPreemptionCountsNoCPUsOfThePodItself tries a node without another pod.
// The node has CPUs of the pod itself, from an uncertain bind.
func TestAPreemptionCountsNoCPUsOfThePodItself(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	victim, p := b.run(pinned("victim", 2, 100), "n"), pinned("a", 4, 100)
	s, _ := b.tryNode(p, "n")
	cycleOf(s).sent = true
	b.Unreserve(t.Context(), s, p, "n")
	s = newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	b.RemovePod(t.Context(), s, p, podInfo{pod: victim}, named("n"))
	b.AddPod(t.Context(), s, p, podInfo{pod: victim}, named("n"))
	if status := b.Filter(t.Context(), s, p, named("n")); !status.IsSuccess() {
		t.Errorf("beside the same pod as before: %v", status)
	}
}

func TestAPreemptionSeesWhatItWouldFree(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	victim, other := b.run(pinned("victim", 4, 100), "n"), b.run(pinned("other", 3, 100), "n")
	p, s := pinned("a", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	filter := func(s fwk.CycleState) string { return b.Filter(t.Context(), s, p, named("n")).Message() }
	if filter(s) == "" {
		t.Fatal("the node is not full")
	}
	dry := s.Clone()
	b.RemovePod(t.Context(), dry, p, podInfo{pod: victim}, named("n"))
	if why := filter(dry); why != "" {
		t.Errorf("without the victim: %s", why)
	}
	if filter(s) == "" {
		t.Error("a trial changes the cycle from which it was cloned")
	}
	beside := dry.Clone()
	b.AddPod(t.Context(), beside, p, podInfo{pod: pinned("nominated", 2, 100)}, named("n"))
	if filter(beside) == "" {
		t.Error("a nominated pod takes no CPUs")
	}
	if why := filter(dry); why != "" {
		t.Errorf("the nominated pod of another trial counts: %s", why)
	}
	b.AddPod(t.Context(), dry, p, podInfo{pod: victim}, named("n"))
	if filter(dry) == "" {
		t.Error("a pod that is put back takes no CPUs")
	}
	b.RemovePod(t.Context(), dry, p, podInfo{pod: other}, named("n"))
	if filter(dry) == "" {
		t.Error("3 CPUs are enough for 4")
	}
}

// TestAWaitingPodIsWokenForRoomOnly ends a pod. A waiting pod must be woken
// only if the end makes room for it.
func TestAWaitingPodIsWokenForRoomOnly(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	big, small := b.run(pinned("big", 4, 100), "n"), b.run(pinned("small", 2, 100), "n")
	p := pinned("a", 4, 100)
	if _, why := b.tryNode(p, "n"); why == "" {
		t.Fatal("it fits")
	}
	if got := b.wokenPods(); len(got) > 0 {
		t.Errorf("woken without a change: %v", got)
	}
	b.keeper.podDeleted(small)
	if got := b.wokenPods(); len(got) > 0 {
		t.Errorf("woken, and 3 CPUs are free: %v", got)
	}
	hint, err := b.hasRoomAfterPod(b.keeper.log, p, big, nil)
	if err != nil || hint != fwk.Queue {
		t.Errorf("the end of a pod that the ledger has not seen: %v %v", hint, err)
	}
	if hint, _ := b.hasRoomAfterPod(b.keeper.log, pinned("huge", 8, 100), big, nil); hint != fwk.QueueSkip {
		t.Errorf("a pod for which the node is too small: %v", hint)
	}
	b.keeper.podDeleted(cache.DeletedFinalStateUnknown{Key: "default/big", Obj: big})
	if got := b.wokenPods(); !slices.Equal(got, []string{"default/a"}) {
		t.Errorf("woken: %v", got)
	}
	b.run(p, "n")
	b.keeper.reportChanged(machine("m", 1, 4, 4))
	if got := b.wokenPods(); len(got) > 0 {
		t.Errorf("a bound pod is woken: %v", got)
	}
}

func TestAnOldReportTakesTheNodeOut(t *testing.T) {
	b := newBench(t, machine("n", 1, 1, 4))
	there := b.run(pinned("there", 2, 100), "n")
	b.now = b.now.Add(defaultStale / 2)
	b.keeper.reportChanged(machine("n", 1, 1, 4)) // a relist without a new report
	b.now = b.now.Add(defaultStale)
	b.keeper.sweep()
	if _, why := b.tryNode(pinned("a", 2, 100), "n"); why != cpus.Stale.Text() {
		t.Errorf("a silent agent: %q", why)
	}
	if !b.keeper.view("n").Has(place.UID(there.UID)) {
		t.Error("the pods of a silent agent are forgotten")
	}
	b.keeper.reportChanged(machine("n", 2, 1, 4))
	if _, why := b.tryNode(pinned("a", 2, 100), "n"); why != "" {
		t.Errorf("it reports again: %s", why)
	}
	b.keeper.reportDeleted(machine("n", 2, 1, 4))
	if _, why := b.tryNode(pinned("b", 2, 100), "n"); why != cpus.NoReport.Text() {
		t.Errorf("no report: %q", why)
	}
	broken := machine("n", 3, 1, 4)
	broken.Status.CPUs.Cores = "?"
	b.keeper.reportChanged(broken)
	if _, why := b.tryNode(pinned("b", 2, 100), "n"); why != cpus.NoReport.Text() {
		t.Errorf("a report that cannot be read: %q", why)
	}
}

// TestARestartedSchedulerKnowsTheSame compares two ledgers: one after a random
// history, and one that sees only the pods and reports that exist at its end.
func TestARestartedSchedulerKnowsTheSame(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for try := range 30 {
		b := newBench(t, machine("n", 1, 2, 4), machine("m", 1, 4, 2))
		alive := map[string]*corev1.Pod{}
		for i := range 60 {
			name, node := fmt.Sprint("p", rnd.IntN(14)), []string{"n", "m"}[rnd.IntN(2)]
			if p := alive[name]; p != nil {
				b.keeper.podDeleted(p)
				delete(alive, name)
				continue
			}
			p := pinned(name, 1+rnd.IntN(3), []int{100, 50, 10}[rnd.IntN(3)])
			if rnd.IntN(4) == 0 {
				p.Annotations[kube.AnnotationCPUPolicy] = kube.StaticBurst
			}
			s, why := b.tryNode(p, node)
			switch {
			case why != "":
			case i%5 == 0:
				b.Unreserve(t.Context(), s, p, node)
			default:
				words := kube.ContractAnnotations(p, b.keeper.view(node).Map(), cycleOf(s).contract)
				alive[name] = bound(p, node, words)
				b.keeper.podChanged(p, alive[name])
			}
		}
		again := newBench(t)
		for _, p := range alive {
			again.keeper.podChanged(nil, p)
		}
		for _, r := range []string{"m", "n"} {
			again.keeper.reportChanged(map[string]any{"n": machine("n", 9, 2, 4), "m": machine("m", 9, 4, 2)}[r])
			if was, is := b.holds(r), again.holds(r); was != is {
				t.Fatalf("try %d: %s before the restart:\n%s\nafter:\n%s", try, r, was, is)
			}
		}
	}
}

func TestAForgedContractGetsNoMoreThanTheDemand(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4))
	big := pinned("big", 12, 100)
	s, _ := b.tryNode(big, "n")
	words := kube.ContractAnnotations(big, b.keeper.view("n").Map(), cycleOf(s).contract)
	b.Unreserve(t.Context(), s, big, "n")
	b.keeper.podChanged(nil, bound(pinned("forger", 2, 100), "n", words))
	if got := b.open("n"); got != 14 {
		t.Errorf("%d CPUs are open beside a pod that demands 2", got)
	}
	b.keeper.podChanged(nil, bound(plain("shared"), "n", words))
	if got := b.open("n"); got != 14 {
		t.Errorf("%d CPUs are open: a pod that demands none has some", got)
	}
}

func TestEqualDemandsHaveEqualSignatures(t *testing.T) {
	b := newBench(t)
	sign := func(p *corev1.Pod) any {
		fragments, status := b.SignPod(t.Context(), p)
		if !status.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("%v %v", fragments, status)
		}
		return fragments[0].Value
	}
	if !reflect.DeepEqual(sign(pinned("a", 2, 100)), sign(pinned("b", 2, 100))) {
		t.Error("two equal pods differ")
	}
	for _, p := range []*corev1.Pod{pinned("b", 3, 100), pinned("c", 2, 50)} {
		if reflect.DeepEqual(sign(pinned("a", 2, 100)), sign(p)) {
			t.Errorf("%s is as a", p.Name)
		}
	}
}

// TestEachNodeIsRatedByItsName rates nodes with different answers, in the order
// of PreScore and in other orders.
func TestEachNodeIsRatedByItsName(t *testing.T) {
	b := newBench(t, machine("cache", 1, 4, 4), machine("split", 1, 4, 1), machine("small", 1, 1, 1))
	p, s := pinned("a", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	nodes := []string{"cache", "split", "small", "unknown"}
	want := map[string]int64{}
	for i, score := range b.scores(s, p, nodes...) {
		want[nodes[i]] = score
	}
	if want["cache"] <= want["split"] || want["split"] <= 0 || want["small"] != 0 || want["unknown"] != 0 {
		t.Errorf("scores: %v", want)
	}
	for _, order := range [][]string{{"split", "cache", "unknown", "small"}, {"split"}, {}} {
		scores := make(fwk.NodeScoreList, len(order))
		for i, name := range order {
			scores[i].Name = name
		}
		b.NormalizeScore(t.Context(), s, p, scores)
		for _, score := range scores {
			if score.Score != want[score.Name] {
				t.Errorf("in the order %v, %s has %d, want %d", order, score.Name, score.Score, want[score.Name])
			}
		}
	}
}

// TestScoreIsSkippedWhileAllRatingsAreEqual checks that the framework scores no
// node if the plugin rates all nodes the same, and that it scores them otherwise.
func TestScoreIsSkippedWhileAllRatingsAreEqual(t *testing.T) {
	b := newBench(t, machine("n", 1, 2, 4), machine("m", 1, 2, 4), machine("small", 1, 1, 1), machine("tiny", 1, 1, 1))
	all := []fwk.NodeInfo{named("n"), named("m"), named("small"), named("tiny")}
	skips := func(nodes ...fwk.NodeInfo) bool {
		t.Helper()
		p, s := pinned("new", 4, 100), newState()
		if _, status := b.PreFilter(t.Context(), s, p, all); !status.IsSuccess() && !status.IsSkip() {
			t.Fatal(status)
		}
		return b.PreScore(t.Context(), s, p, nodes).IsSkip()
	}
	if !skips(all[:2]...) || !skips(all[2:]...) || !skips(all[0]) {
		t.Error("equal nodes are scored")
	}
	if skips(all...) {
		t.Error("the pod has room on some of the nodes")
	}
	there := b.run(pinned("there", 4, 100), "m")
	if skips(all[:2]...) {
		t.Error("fewer CPUs are left in a cache of one node")
	}
	b.run(pinned("here", 4, 100), "n")
	if !skips(all[:2]...) {
		t.Error("both nodes have the same CPUs left")
	}
	b.keeper.podDeleted(there)
	if skips(all[:2]...) {
		t.Error("the pod of one node has ended")
	}
}

// TestABatchIsRatedAfterSkippedScores rates the nodes of a batch. For its first
// pod, all ratings were equal. The framework gives NormalizeScore only the names
// of the nodes that it has scored for the present pod.
func TestABatchIsRatedAfterSkippedScores(t *testing.T) {
	b := newBench(t, machine("a", 1, 4, 4), machine("b", 1, 4, 4), machine("c", 1, 4, 4))
	b.run(pinned("there", 4, 100), "c")
	p, s := pinned("new", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := b.scores(s, p, "a", "b", "c")
	scores := fwk.NodeScoreList{{}, {}, {Name: "c"}}
	b.NormalizeScore(t.Context(), s, p, scores)
	if want[0] == 0 || want[0] != want[1] || want[1] >= want[2] || scores[0].Score != want[0] || scores[1].Score != want[1] || scores[2].Score != want[2] {
		t.Errorf("scores %v, want %v", scores, want)
	}
}

// TestASignatureNamesTheWholeRequest changes each field of a request.
func TestASignatureNamesTheWholeRequest(t *testing.T) {
	var zero cpus.Request
	seen := map[string]string{signature(&zero): "none"}
	for i := range reflect.TypeFor[cpus.Request]().NumField() {
		c, name := zero, reflect.TypeFor[cpus.Request]().Field(i).Name
		switch f := reflect.ValueOf(&c).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint8:
			f.SetUint(1)
		case reflect.Int, reflect.Int64:
			f.SetInt(11)
		default:
			t.Fatalf("%s is of a type that this test does not know", name)
		}
		text := signature(&c)
		if with, twice := seen[text]; twice {
			t.Errorf("%q is the signature with another %s and with another %s", text, name, with)
		}
		seen[text] = name
	}
}

func TestFilterAndScoreDoNotAllocate(t *testing.T) {
	b := newBench(t, machine("n", 1, 32, 4))
	p, s := pinned("a", 4, 100), newState()
	if _, status := b.PreFilter(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	ctx := t.Context()
	var node fwk.NodeInfo = named("n")
	scores := fwk.NodeScoreList{{Name: "n"}}
	b.PreScore(ctx, s, p, []fwk.NodeInfo{node})
	if n := testing.AllocsPerRun(100, func() {
		if status := b.Filter(ctx, s, p, node); status != nil {
			t.Fatal(status)
		}
		b.NormalizeScore(ctx, s, p, scores)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTheHandlersFollowTheCluster runs the plugin with real informers.
func TestTheHandlersFollowTheCluster(t *testing.T) {
	b := newBench(t)
	source := fcache.NewFakeControllerSource()
	source.Add(machine("n", 1, 1, 4))
	there := pinned("there", 4, 100)
	there.Spec.NodeName = "n"
	if err := b.handle.client.Tracker().Add(there); err != nil {
		t.Fatal(err)
	}
	args := &runtime.Unknown{Raw: []byte(`{"staleAfter":"2m"}`)}
	from := func(fwk.Handle) (cache.ListerWatcher, error) { return source, nil }
	p, err := makePlugin(t.Context(), args, b.handle, from)
	if err != nil {
		t.Fatal(err)
	}
	if twin, err := makePlugin(t.Context(), args, b.handle, from); err != nil || twin.keeper != p.keeper {
		t.Errorf("a second profile has a ledger of its own: %v", err)
	}
	b.handle.factory.Start(t.Context().Done())
	b.Plugin = p
	waiting := pinned("a", 4, 100)
	if _, why := b.tryNode(waiting, "n"); why != cpus.LastOpen.Text() {
		t.Fatalf("beside a pod without a contract: %q", why)
	}
	if err := b.handle.client.CoreV1().Pods("default").Delete(t.Context(), "there", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		b.handle.mu.Lock()
		woken := slices.Clone(b.handle.woken)
		b.handle.mu.Unlock()
		if slices.Contains(woken, "default/a") {
			break
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the waiting pod is not woken")
		}
	}
	if _, why := b.tryNode(waiting, "n"); why != "" {
		t.Errorf("woken, and it does not fit: %s", why)
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		`{"staleAfter":"1s"}`:   "args.staleAfter",
		`{"staleAfter":"1m"}`:   "args.staleAfter", // a healthy agent may not report for so long
		`{"staleAfter":"soon"}`: "args.staleAfter",
		`{"weight":5}`:          "args.weight",
		`[]`:                    "args",
	} {
		if _, err := parseArgs(&runtime.Unknown{Raw: []byte(raw)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	for _, raw := range []string{``, `{}`, `{"staleAfter":"90s"}`} {
		if _, err := parseArgs(&runtime.Unknown{Raw: []byte(raw)}); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
