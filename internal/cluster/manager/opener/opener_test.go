package opener

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/gate"
	"tenon.sh/tenon/internal/decide/share"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// podOf returns a batch pod with the gate. A change may take it away.
func podOf(name string, version int, milli int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(version), CreationTimestamp: metav1.NewTime(noon)}}
	list := corev1.ResourceList{kube.BatchCPU: *resource.NewQuantity(milli, resource.DecimalSI), kube.BatchMemory: *resource.NewQuantity(1<<30, resource.BinarySI)}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kube.BatchGate}}
	for _, f := range change {
		f(p)
	}
	return p
}

func opened(p *corev1.Pod) { p.Spec.SchedulingGates = nil }
func on(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGates, p.Spec.NodeName = nil, name }
}

func nodeOf(name string, milli int64, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
	n.Status.Allocatable = corev1.ResourceList{kube.BatchCPU: *resource.NewQuantity(milli, resource.DecimalSI), kube.BatchMemory: resource.MustParse("64Gi")}
	for _, f := range change {
		f(&n)
	}
	return n
}

func newOpener() *Opener {
	return New(Opener{Voice: Voice{Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }}, Metrics: NewMetrics()})
}

// TestACaseCountsWhatASchedulerCounts makes a case of pods in all states.
func TestACaseCountsWhatASchedulerCounts(t *testing.T) {
	o := newOpener()
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}
	}
	nodes := []corev1.Node{nodeOf("a", 8000), nodeOf("b", 4000, tainted), nodeOf("c", 2000, func(n *corev1.Node) { n.Spec.Unschedulable = true }), {ObjectMeta: metav1.ObjectMeta{Name: "without"}}}
	spaces := []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "batch", Annotations: map[string]string{kube.AnnotationBatch: `{"weight":3}`}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "faulty", Annotations: map[string]string{kube.AnnotationBatch: `{"weight":0}`}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
	}
	now := metav1.NewTime(noon)
	pods := []*corev1.Pod{
		podOf("waits", 1, 100),
		podOf("runs", 1, 1000, on("a")),
		podOf("ends", 1, 500, on("a"), func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		podOf("has-ended", 1, 500, on("a"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		podOf("on-a-node-that-is-gone", 1, 500, on("gone")),
		podOf("open", 1, 200, opened),
		podOf("goes", 1, 200, func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		podOf("waits-for-another-program", 1, 200, func(p *corev1.Pod) {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/quota"})
		}),
		podOf("elsewhere", 1, 300, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "b"}
		}),
	}
	c, waiting := o.caseOf(nodes, spaces, pods)
	if len(c.Nodes) != 3 || c.Nodes[0].Free.CPU != 6500 || c.Nodes[1].Free.CPU != 4000 || c.Room.CPU != 14_000 {
		t.Errorf("nodes %+v of %+v", c.Nodes, c.Room)
	}
	if len(c.Waiting) != 2 || c.Waiting[0].Name != "waits" || waiting[1].Name != "elsewhere" || len(c.Assumed) != 1 || c.Assumed[0].Name != "open" {
		t.Errorf("waiting %+v, assumed %+v", c.Waiting, c.Assumed)
	}
	if first, second := c.Places[c.Waiting[0].Place], c.Places[c.Waiting[1].Place]; !slices.Equal(first, []int{0}) || !slices.Equal(second, []int{1}) || c.Assumed[0].Place != c.Waiting[0].Place {
		t.Errorf("places %v and %v", first, second)
	}
	if len(c.Namespaces) != 2 || c.Namespaces[0].Terms.Weight != 3 || c.Namespaces[0].Bound.CPU != 2000 || !c.Namespaces[1].Unread {
		t.Errorf("namespaces %+v", c.Namespaces)
	}
}

// aCluster is an API server with a cache that is behind it.
type aCluster struct {
	cached, live []*corev1.Pod
	nodes        []corev1.Node
	patched      []string
	fails        error // of the next patches
	newSpace     bool  // the cache lacks the namespace of the pods
}

// cacheOf reads the cache.
type cacheOf struct {
	cache.Cache
	of *aCluster
}

func (c cacheOf) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	switch l := to.(type) {
	case *corev1.PodList:
		for _, p := range c.of.cached {
			l.Items = append(l.Items, *p)
		}
	case *corev1.NodeList:
		l.Items = c.of.nodes
	case *corev1.NamespaceList:
		if !c.of.newSpace {
			l.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}}
		}
	}
	return nil
}

// theServer reads the API server itself.
type theServer struct{ of *aCluster }

func (s theServer) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	for _, p := range s.of.live {
		l := to.(*corev1.PodList)
		l.Items = append(l.Items, *p)
	}
	return nil
}

func (s theServer) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	for _, p := range s.of.live {
		if p.Name == key.Name {
			p.DeepCopyInto(to.(*corev1.Pod))
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

// aWriter opens gates at the API server.
type aWriter struct {
	client.Client
	of *aCluster
}

func (w aWriter) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if w.of.fails != nil {
		return w.of.fails
	}
	w.of.patched = append(w.of.patched, o.GetName())
	for i, p := range w.of.live {
		if p.Name == o.GetName() {
			next := p.DeepCopy()
			opened(next)
			next.ResourceVersion = fmt.Sprint(version(p) + 100)
			w.of.live[i] = next
			next.DeepCopyInto(o.(*corev1.Pod))
		}
	}
	return nil
}

// scene returns an opener of a cluster with one node, whose cache has these pods. The API
// server has the same at first.
func scene(milli int64, pods ...*corev1.Pod) (*aCluster, *Opener, *time.Time) {
	a := &aCluster{cached: pods, live: slices.Clone(pods), nodes: []corev1.Node{nodeOf("n", milli)}}
	clock := noon
	o := New(Opener{
		Access: Access{Cache: cacheOf{of: a}, Live: theServer{a}, Client: aWriter{of: a}}, Metrics: NewMetrics(),
		Voice: Voice{Events: events.NewFakeRecorder(10), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return clock }},
	})
	o.following = true
	return a, o, &clock
}

func (a *aCluster) round(t *testing.T, o *Opener, want ...string) {
	t.Helper()
	a.patched = nil
	if err := o.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.round(t.Context()); err != nil && a.fails == nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.patched, want) {
		t.Errorf("opened %v, want %v", a.patched, want)
	}
}

// TestACacheThatIsBehindGivesNoRoomTwice decides again before the cache has seen what was
// opened.
func TestACacheThatIsBehindGivesNoRoomTwice(t *testing.T) {
	a, o, _ := scene(4000, podOf("a", 1, 3000), podOf("b", 2, 3000))
	a.round(t, o, "a")
	a.round(t, o)
	a.cached = slices.Clone(a.live) // a is open now, and bound elsewhere
	a.cached[0] = podOf("a", 300, 3000, on("elsewhere"))
	a.round(t, o, "b")
}

// TestANewLeaderKnowsWhatTheLastOneDid begins with a cache from before the last leader
// opened a gate, and with one that does not have the pod at all.
func TestANewLeaderKnowsWhatTheLastOneDid(t *testing.T) {
	a, o, _ := scene(4000, podOf("a", 1, 3000), podOf("b", 2, 3000))
	a.live[0] = podOf("a", 101, 3000, opened)
	a.round(t, o)
	a, o, clock := scene(4000, podOf("b", 2, 3000))
	a.live = append(a.live, podOf("a", 101, 3000, opened))
	a.round(t, o)
	*clock = clock.Add(2 * unseenFor)
	a.round(t, o) // the pod still exists
	a.live = a.live[:1]
	*clock = clock.Add(2 * unseenFor)
	a.round(t, o, "b")
}

// TestARequestWithoutAnAnswerHoldsRoom loses the answer to a request. The gate may be
// open, so the room is held for a while.
func TestARequestWithoutAnAnswerHoldsRoom(t *testing.T) {
	a, o, clock := scene(4000, podOf("a", 1, 3000), podOf("b", 2, 3000))
	a.fails = apierrors.NewTimeoutError("slow", 1)
	a.round(t, o)
	a.fails = nil
	a.round(t, o)
	*clock = clock.Add(2 * doubtFor)
	a.round(t, o, "a") // it was not opened
	a, o, _ = scene(4000, podOf("a", 1, 3000), podOf("b", 2, 3000))
	a.fails = apierrors.NewForbidden(corev1.Resource("pods"), "a", nil)
	a.round(t, o)
	a.fails = nil
	a.round(t, o, "b") // a refusal holds nothing
}

// TestAGateThatCannotBeRemovedStopsNobody has as many pods with such a gate as a round
// opens, and one more. The refused ones are tried again after a minute, then after two.
func TestAGateThatCannotBeRemovedStopsNobody(t *testing.T) {
	var pods []*corev1.Pod
	for i := range most {
		pods = append(pods, podOf(fmt.Sprintf("a%03d", i), 1, 10))
	}
	a, o, clock := scene(4000, append(pods, podOf("b", 2, 3000))...)
	o.Events = events.NewFakeRecorder(1000)
	a.nodes[0].Status.Allocatable[kube.BatchMemory] = resource.MustParse("1Ti")
	tried := func() (n int) {
		for _, s := range o.stuck {
			if s.until.After(*clock) {
				n++
			}
		}
		return n
	}
	a.fails = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil)
	a.round(t, o)
	if tried() != most {
		t.Errorf("%d pods count as stuck", tried())
	}
	a.fails = nil
	a.round(t, o, "b")
	a.fails = apierrors.NewBadRequest("no")
	*clock = clock.Add(stuckFor)
	a.round(t, o)
	*clock = clock.Add(stuckFor)
	if tried() != most {
		t.Errorf("%d pods are tried again after a minute", most-tried())
	}
	a.fails, a.cached = nil, nil
	clear(o.newer)
	if a.round(t, o); len(o.stuck) > 0 {
		t.Errorf("%d pods that are gone are remembered", len(o.stuck))
	}
}

// theSettings are those of a ConfigMap with this batch-config, or of none.
type theSettings struct{ batch *string }

func (s *theSettings) Cluster() *config.Cluster {
	var c config.Cluster
	if s.batch != nil {
		c, _ = config.ParseConfigMap(map[string]string{"batch-config": *s.batch})
	}
	return &c
}

func (a *aCluster) step(t *testing.T, o *Opener, want ...string) {
	t.Helper()
	a.patched = nil
	if _, err := o.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.patched, want) {
		t.Errorf("opened %v, want %v", a.patched, want)
	}
}

// TestAPodWithoutASchedulerStopsNobodyForLong has a pod whose gate is open, whose scheduler
// does not exist, and which fits on one node only. Another pod has room on a second node,
// but its scheduler might choose the first one.
func TestAPodWithoutASchedulerStopsNobodyForLong(t *testing.T) {
	pinned := podOf("pinned", 1, 2900, opened, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n"} })
	a, o, clock := scene(3000, pinned, podOf("web", 1, 1000))
	a.nodes = append(a.nodes, nodeOf("m", 16_000))
	a.round(t, o)
	*clock = clock.Add(lateFor - time.Second)
	a.round(t, o)
	*clock = clock.Add(time.Second)
	a.round(t, o, "web")
	a.cached = slices.Clone(a.live)
	a.cached = append(a.cached, podOf("there", 1, 1000, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n"} }))
	a.live = slices.Clone(a.cached)
	a.round(t, o) // the room of the first pod is still held
	if a.live, a.cached = a.live[1:], a.cached[1:]; len(o.assumed) == 0 {
		t.Error("nothing is remembered")
	}
	*clock = clock.Add(unseenFor + time.Second)
	a.round(t, o, "there")
	if _, known := o.assumed[pinned.UID]; known {
		t.Error("a pod that is gone is remembered")
	}
}

// TestAFaultOpensNoGate has settings that do not say whether the gate is on, because of a
// fault and because there is no ConfigMap.
func TestAFaultOpensNoGate(t *testing.T) {
	a, o, _ := scene(1000, podOf("a", 1, 3000))
	set := &theSettings{}
	o.Settings = set
	a.step(t, o)
	set.batch = new(`{"gate": "yes"}`)
	a.step(t, o)
	set.batch = new(`{"gate": false}`)
	a.step(t, o, "a")
}

// TestAPodThatComesLateKeepsNoGate switches the gate off, and then stores pods that a
// webhook with older settings gave the gate.
func TestAPodThatComesLateKeepsNoGate(t *testing.T) {
	a, o, clock := scene(1000, podOf("a", 1, 3000))
	o.Settings = &theSettings{batch: new(`{"gate": false}`)}
	a.step(t, o, "a")
	a.live = append(a.live, podOf("b", 2, 3000))
	a.step(t, o) // an event may wake it often
	*clock = clock.Add(idle)
	a.step(t, o, "b")
	*clock = clock.Add(quietFor)
	a.live = append(a.live, podOf("c", 3, 3000))
	a.step(t, o, "c")
	*clock = clock.Add(quietFor + time.Second)
	a.live = append(a.live, podOf("d", 4, 3000))
	a.step(t, o) // nothing gives pods the gate any more
}

// TestANewNamespaceWaitsForItsTerms decides while the cache lacks the namespace of a pod,
// which may have a cap.
func TestANewNamespaceWaitsForItsTerms(t *testing.T) {
	a, o, _ := scene(4000, podOf("a", 1, 3000))
	a.newSpace = true
	a.round(t, o)
	a.newSpace = false
	a.round(t, o, "a")
}

// TestAPodIsToldOnceWhyItWaits checks the events.
func TestAPodIsToldOnceWhyItWaits(t *testing.T) {
	a, o, clock := scene(1000, podOf("a", 1, 3000))
	told := func() int { return len(o.Events.(*events.FakeRecorder).Events) }
	a.round(t, o)
	if told() != 0 {
		t.Error("a new pod has an event")
	}
	*clock = clock.Add(2 * time.Minute)
	a.round(t, o)
	a.round(t, o)
	if told() != 1 {
		t.Errorf("it has %d events", told())
	}
	a.nodes = nil
	a.round(t, o)
	if told() != 2 {
		t.Errorf("after another reason it has %d events", told())
	}
}

// TestNamespacesTakeTurnsInEvents has a namespace with more pods that wait than one round
// tells of, before a pod of another namespace.
func TestNamespacesTakeTurnsInEvents(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 3 * mostTold {
		pods = append(pods, podOf(fmt.Sprint("crowd-", i), 1, 9000))
	}
	pods = append(pods, podOf("web", 1, 9000, func(p *corev1.Pod) { p.Namespace = "shop" }))
	a, o, clock := scene(3000, pods...)
	a.newSpace = true // then they wait for the terms of their namespaces
	told := events.NewFakeRecorder(len(pods))
	o.Events = told
	*clock = clock.Add(tellAfter)
	a.round(t, o)
	if n := len(told.Events); n != mostTold || o.said["web"] == "" {
		t.Errorf("%d events; the pod of the other namespace: %q", n, o.said["web"])
	}
}

// TestEveryReasonHasWords prints each code.
func TestEveryReasonHasWords(t *testing.T) {
	c := gate.Case{Nodes: []gate.Node{{Name: "n"}}}
	seen := map[string]bool{}
	for _, code := range gate.Codes {
		text := words(c, gate.Pod{Namespace: "batch", Asks: share.Amount{CPU: 1000}}, gate.Wait{Code: code})
		if (text == "") != (code == gate.Later) || seen[text] {
			t.Errorf("%s: %q", code, text)
		}
		seen[text] = true
	}
}

// aSlowServer answers no question before it is let go.
type aSlowServer struct {
	client.Client
	asked, letGo chan struct{}
}

func (s *aSlowServer) Create(context.Context, client.Object, ...client.CreateOption) error {
	s.asked <- struct{}{}
	<-s.letGo
	return apierrors.NewTimeoutError("slow", 1)
}

// TestNobodyWaitsForTheQuestionOfAnother asks again while the API server does not answer.
func TestNobodyWaitsForTheQuestionOfAnother(t *testing.T) {
	slow, clock := &aSlowServer{asked: make(chan struct{}), letGo: make(chan struct{})}, noon
	p := &Permit{API: &rights{verbs: []string{"list", "watch", "patch"}}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return clock }}
	if !p.Granted(t.Context()) {
		t.Fatal("the right is not known")
	}
	clock = clock.Add(grantedFor)
	p.API = slow
	first := make(chan bool, 1)
	go func() { first <- p.Granted(t.Context()) }()
	<-slow.asked
	if !p.Granted(t.Context()) {
		t.Error("the last answer does not count while another call asks")
	}
	close(slow.letGo)
	if !<-first {
		t.Error("the last answer does not count after a question without an answer")
	}
}

// rights answers which verbs of pods this process may use.
type rights struct {
	client.Client
	verbs []string
	asked int
	fails error
}

func (r *rights) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	r.asked++
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	review.Status.Allowed = slices.Contains(r.verbs, review.Spec.ResourceAttributes.Verb)
	return r.fails
}

// TestARightIsAskedForSeldom checks what counts, and for how long.
func TestARightIsAskedForSeldom(t *testing.T) {
	r, clock := &rights{verbs: []string{"list", "watch"}}, noon
	p := &Permit{API: r, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return clock }}
	granted := func(want bool, asked int) {
		t.Helper()
		r.asked = 0
		if got := p.Granted(t.Context()); got != want || r.asked != asked {
			t.Errorf("granted %v after %d questions, want %v after %d", got, r.asked, want, asked)
		}
	}
	granted(false, 3)
	granted(false, 0)
	r.verbs = append(r.verbs, "patch")
	clock = clock.Add(refusedFor)
	granted(true, 3)
	clock = clock.Add(grantedFor - time.Second)
	granted(true, 0)
	clock = clock.Add(time.Second)
	r.fails = apierrors.NewTimeoutError("slow", 1)
	granted(true, 1) // the last answer stays
	granted(true, 0) // and is not asked for again by each call
	clock = clock.Add(refusedFor)
	r.fails, r.verbs = nil, nil
	granted(false, 1)
}
