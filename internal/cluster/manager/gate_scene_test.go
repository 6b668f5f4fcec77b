package manager

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/unit"
)

// gate switches the gate of batch pods on or off. Batch pods of other tests would hold
// room, so they are deleted.
func (s *scene) gate(on bool) {
	s.t.Helper()
	var left corev1.PodList
	if s.must(s.client.List(s.ctx, &left, client.MatchingLabelsSelector{Selector: opener.Selector})); on {
		for i := range left.Items {
			s.must(client.IgnoreNotFound(s.client.Delete(s.ctx, &left.Items[i], client.GracePeriodSeconds(0))))
		}
	}
	var m corev1.ConfigMap
	s.must(s.client.Get(s.ctx, s.config, &m))
	m.Data["batch-config"] = fmt.Sprintf(`{"gate":%v}`, on)
	s.must(s.client.Update(s.ctx, &m))
}

// batch creates a BE pod in a namespace, as far as the webhooks let it.
func (s *scene) batch(namespace, cpu, memory string, change ...func(*corev1.Pod)) (*corev1.Pod, error) {
	p := s.pod("BE", listOf("kubernetes.io/batch-cpu", cpu, "kubernetes.io/batch-memory", memory))
	p.Namespace = namespace
	for _, f := range change {
		f(p)
	}
	err := s.client.Create(s.ctx, p)
	return p, err
}

// isOpen reports whether a pod has no scheduling gate.
func (s *scene) isOpen(p *corev1.Pod) bool {
	s.t.Helper()
	var now corev1.Pod
	s.must(s.client.Get(s.ctx, client.ObjectKeyFromObject(p), &now))
	return len(now.Spec.SchedulingGates) == 0
}

func (s *scene) bind(p *corev1.Pod, node string) error {
	return s.client.SubResource("binding").Create(s.ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})
}

// space creates a namespace with terms for batch resources.
func (s *scene) space(name, terms string) string {
	s.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + name, Annotations: map[string]string{kube.AnnotationBatch: terms}}}
	s.must(s.client.Create(s.ctx, n))
	return n.Name
}

// ready takes the taint off a node that the API server gives a new one. The
// controller-manager does so when the kubelet is ready.
func (s *scene) ready(name string) {
	s.t.Helper()
	taints := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))
	s.must(s.client.Patch(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, taints))
}

// awaitGate waits until the webhooks give batch pods a gate.
func (s *scene) awaitGate() {
	s.t.Helper()
	s.waitUntil("batch pods get a gate", soon, func() bool {
		p := s.pod("BE", listOf("kubernetes.io/batch-cpu", "1k"))
		return s.client.Create(s.ctx, p, client.DryRunAll) == nil && kube.HasBatchGate(p)
	})
}

// TestAGateOpensWhenThereIsRoom follows pods through their gate: two of which only one
// has room, one that no node admits, one that says why it waits, and those that are left
// when the gate is switched off.
func TestAGateOpensWhenThereIsRoom(t *testing.T) {
	s := newScene(t)
	s.gate(true)
	var clock aClock
	s.start(s.webhooks, func(o *Options) { o.now, o.Elect = clock.now, false })
	s.awaitGate()
	first, err := s.batch("default", "3k", "1Gi")
	s.must(err)
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	if time.Sleep(500 * time.Millisecond); s.isOpen(first) {
		t.Error("a pod went to the scheduler for a node that is not ready")
	}
	s.ready("n1")
	s.waitUntil("the first pod goes to the scheduler", now, func() bool { return s.isOpen(first) })
	second, err := s.batch("default", "3k", "1Gi")
	s.must(err)
	elsewhere, err := s.batch("default", "100", "1Mi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} })
	s.must(err)
	service := s.pod("LS", listOf("cpu", "1"))
	s.must(s.client.Create(s.ctx, service))
	daemons := rest.CopyConfig(s.rc)
	daemons.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:daemon-set-controller", Groups: []string{"system:masters"}}
	controller, err := client.New(daemons, client.Options{})
	s.must(err)
	daemon := s.pod("BE", listOf("kubernetes.io/batch-cpu", "100", "kubernetes.io/batch-memory", "1Mi"))
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
	s.must(controller.Create(s.ctx, daemon))
	if !s.isOpen(service) || !s.isOpen(daemon) {
		t.Error("a service or a pod of a DaemonSet has a gate")
	}
	small, err := s.batch("default", "1k", "1Mi")
	s.must(err)
	s.waitUntil("a small pod passes", now, func() bool { return s.isOpen(small) })
	clock.advance(2 * time.Minute)
	s.touch("n1")
	told := func(p *corev1.Pod, note string) bool {
		var list eventsv1.EventList
		s.must(s.client.List(s.ctx, &list, client.InNamespace("default")))
		for _, e := range list.Items {
			if e.Reason == opener.ReasonWaits && e.Regarding.Name == p.Name && strings.Contains(e.Note, note) {
				return true
			}
		}
		return false
	}
	s.waitUntil("an event says that room is held", soon, func() bool { return told(second, "there is room, but it is held for ") })
	s.waitUntil("an event says that no node admits the other", soon, func() bool { return told(elsewhere, "no node offers batch resources that its node selector") })
	if s.isOpen(second) || s.isOpen(elsewhere) {
		t.Error("a pod without room went to the scheduler")
	}
	s.must(s.bind(first, "n1"), s.bind(small, "n1"), s.client.Delete(s.ctx, daemon, client.GracePeriodSeconds(0)))
	s.waitUntil("an event says what is free", soon, func() bool { return told(second, "n1 comes nearest and has batch-cpu 1200m") })
	s.must(s.client.Delete(s.ctx, first, client.GracePeriodSeconds(0)))
	s.waitUntil("the second pod gets the room", now, func() bool { return s.isOpen(second) })
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"disk":"fast"}}}`))
	s.must(s.client.Patch(s.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, label))
	s.waitUntil("the node admits the other pod", now, func() bool { return s.isOpen(elsewhere) })
	large, err := s.batch("default", "9k", "1Gi")
	s.must(err)
	if s.isOpen(large) {
		t.Error("a large pod has no gate")
	}
	s.gate(false)
	s.waitUntil("no pod keeps a gate that is switched off", now, func() bool { return s.isOpen(large) })
	late, err := s.batch("default", "9k", "1Gi")
	s.must(err)
	if !s.isOpen(late) {
		t.Error("a pod has a gate that is switched off")
	}
}

// TestANamespaceKeepsToItsCap checks the terms of namespaces at a real API server.
func TestANamespaceKeepsToItsCap(t *testing.T) {
	s := newScene(t)
	s.gate(true)
	s.start(s.webhooks)
	s.awaitGate()
	bad := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-bad", Annotations: map[string]string{kube.AnnotationBatch: `{"weight":0}`}}}
	s.refused(s.client.Create(s.ctx, bad), "metadata.annotations[tenon.sh/batch].weight: 0: want a whole number from 1 to 1000")
	team := s.space("team", `{"cpu":"2"}`)
	s.node("n1")
	s.report("n1", batchOf(1000, 4))
	s.becomes("n1", "8200m "+mem4, soon)
	s.ready("n1")
	var pods []*corev1.Pod
	for range 4 {
		p, err := s.batch(team, "1k", "1Gi")
		s.must(err)
		pods = append(pods, p)
	}
	open := func() (n int) {
		for _, p := range pods {
			if s.isOpen(p) {
				n++
			}
		}
		return n
	}
	s.waitUntil("two of four go to the scheduler", now, func() bool { return open() == 2 })
	other, err := s.batch("default", "1k", "1Gi")
	s.must(err)
	s.waitUntil("another namespace gets room", now, func() bool { return s.isOpen(other) })
	if n := open(); n != 2 {
		t.Errorf("%d pods of a namespace for two went to the scheduler", n)
	}
	_, err = s.batch(team, "3k", "1Gi")
	s.refused(err, "the namespace may have batch-cpu 2000m in all")
	named := func(p *corev1.Pod) { p.Spec.NodeName = "n1" }
	_, err = s.batch(team, "100", "1Gi", named)
	s.refused(err, "the namespace has 2000m and 2048Mi, and may have batch-cpu 2000m")
	_, err = s.batch("default", "100", "1Gi", named)
	s.must(err)
	more := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tenon.sh/batch":"{\"cpu\":\"3\"}"}}}`))
	s.must(s.client.Patch(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, more))
	s.waitUntil("a third goes after the cap was raised", now, func() bool { return open() == 3 })
}

// aScheduler stands for a scheduler and for the ends of pods: it binds each batch pod
// without a gate to a random node that has room, and deletes each pod a moment later.
// After each list of the API server it checks the caps.
type aScheduler struct {
	*scene
	rnd           *rand.Rand
	caps          map[string]share.Amount // by namespace
	unschedulable atomic.Int64
	ended         atomic.Int64
	faults        atomic.Int64
}

func (w *aScheduler) run(done <-chan struct{}) {
	bound := map[types.UID]time.Time{}
	for {
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
		var list corev1.PodList
		var nodes corev1.NodeList
		if err := errors.Join(w.client.List(w.ctx, &list, client.MatchingLabelsSelector{Selector: opener.Selector}), w.client.List(w.ctx, &nodes)); err != nil {
			continue // the test ends
		}
		free, used := map[string]share.Amount{}, map[string]share.Amount{}
		for i := range nodes.Items {
			f := factsOf(&nodes.Items[i])
			free[nodes.Items[i].Name] = share.Amount{CPU: unit.MilliCPU(f.Present[cpu].Or(0)), Memory: unit.Bytes(f.Present[memory].Or(0))}
		}
		for i := range list.Items {
			p := &list.Items[i]
			if !kube.HasBatchGate(p) {
				used[p.Namespace] = used[p.Namespace].Plus(kube.RequestedBatch(p))
			}
			free[p.Spec.NodeName] = free[p.Spec.NodeName].Minus(kube.RequestedBatch(p))
		}
		for name, most := range w.caps {
			if !used[name].FitsIn(most) {
				w.faults.Add(1)
				w.t.Errorf("namespace %s has %+v, more than %+v", name, used[name], most)
			}
		}
		for _, i := range w.rnd.Perm(len(list.Items)) {
			p := &list.Items[i]
			switch at, known := bound[p.UID]; {
			case kube.HasBatchGate(p):
			case p.Spec.NodeName == "":
				w.schedule(p, nodes.Items, free)
			case !known:
				bound[p.UID] = time.Now()
			case time.Since(at) > 150*time.Millisecond:
				if err := w.client.Delete(w.ctx, p, client.GracePeriodSeconds(0)); err == nil {
					w.ended.Add(1)
				}
			}
		}
	}
}

func (w *aScheduler) schedule(p *corev1.Pod, nodes []corev1.Node, free map[string]share.Amount) {
	for _, k := range w.rnd.Perm(len(nodes)) {
		name := nodes[k].Name
		if !kube.RequestedBatch(p).FitsIn(free[name]) {
			continue
		}
		if err := w.bind(p, name); err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			free[name] = free[name].Minus(kube.RequestedBatch(p))
			return
		}
	}
	w.unschedulable.Add(1)
}

// TestNoLeaderGivesRoomTwice kills one leader after the other while pods of some
// namespaces wait: each second one loses its connection in the middle, and the others
// end in order. No pod is ever without a node, no list of the API server has a namespace
// above its cap, and all pods run. With TENON_TEST_LONG=1, 50 leaders die while 2,000 pods
// of each of five namespaces run.
func TestNoLeaderGivesRoomTwice(t *testing.T) {
	terms, pods, nodes, least := []string{`{"cpu":"3","memory":"4Gi"}`, `{"weight":2}`}, 120, 3, 5
	if os.Getenv("TENON_TEST_LONG") == "1" {
		terms, pods, nodes, least = append(terms, `{"cpu":"20"}`, `{"memory":"16Gi","weight":3}`, `{}`), 2000, 30, 50
	}
	pods *= len(terms)
	s := newScene(t)
	s.gate(true)
	whole := s.rc
	lead := func() (r *replica, kill func()) {
		var cut atomic.Bool
		s.rc = rest.CopyConfig(whole)
		s.rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return through(func(r *http.Request) (*http.Response, error) {
				if cut.Load() {
					return nil, errors.New("cut off")
				}
				return next.RoundTrip(r)
			})
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		s.must(err)
		port := l.Addr().(*net.TCPAddr).Port
		s.must(l.Close())
		r = s.start(s.webhooks, func(o *Options) {
			o.Port = port // the API server calls the first one only, which answers at s.port
		})
		s.rc = whole
		return r, func() { cut.Store(true) }
	}
	first := s.start(s.webhooks, func(o *Options) { o.Elect = false }) // it must not lose its lease while all pods are created
	s.awaitGate()
	w := &aScheduler{scene: s, rnd: rand.New(rand.NewPCG(47, 9)), caps: map[string]share.Amount{}}
	var spaces []string
	for i, text := range terms {
		name := s.space(fmt.Sprint("team-", i), text)
		t, _, _ := kube.BatchTermsOf(map[string]string{kube.AnnotationBatch: text})
		w.caps[name] = share.Amount{CPU: t.CPU.Or(1 << 40), Memory: t.Memory.Or(1 << 50)}
		spaces = append(spaces, name)
	}
	forEach(16, pods, func(i int) {
		if _, err := s.batch(spaces[i%len(spaces)], fmt.Sprint(200+100*(i*7%20)), fmt.Sprintf("%dMi", 64+i*331%1024)); err != nil {
			t.Error(err)
		}
	})
	first.end()
	for i := range nodes {
		name := fmt.Sprint("n", i)
		s.node(name)
		s.report(name, batchOf(4000+1000*int64(i%3), 4))
		s.ready(name)
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { w.run(done) })
	r, kill := lead()
	kills := 0
	begun := time.Now()
	for all := int64(pods); w.ended.Load() < all && time.Since(begun) < 20*time.Minute; {
		next, killNext := lead()
		before := w.ended.Load()
		s.waitUntil("some pods run", 4*soon, func() bool { return w.ended.Load() >= min(before+all/int64(least+2), all) })
		if kills++; kills%2 == 0 {
			kill()
		} else {
			r.end()
		}
		r, kill = next, killNext
	}
	close(done)
	running.Wait()
	t.Logf("%d pods ran under %d leaders in %v", w.ended.Load(), kills+1, time.Since(begun).Round(time.Second))
	if w.ended.Load() != int64(pods) || w.unschedulable.Load() > 0 || kills < least {
		t.Errorf("%d of %d pods ran, %d times a pod had no node, %d leaders were killed", w.ended.Load(), pods, w.unschedulable.Load(), kills)
	}
	kill()
}
