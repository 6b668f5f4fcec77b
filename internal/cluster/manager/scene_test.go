package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
)

const (
	mem4 = "37478Mi"        // the memory of a node of 64 GiB that batchOf(_, 4) leaves
	soon = 30 * time.Second // maximum time until a manager has started and leads, on a busy machine
	now  = 2 * time.Second  // maximum time until a running manager reacts
)

func TestAReportBecomesAllocatableWithinASecond(t *testing.T) {
	s := newScene(t)
	s.start()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	s.waitUntil("the report says what was published", now, func() bool {
		p := s.publishedPart("n1")
		return p.CPU != nil && p.CPU.String() == "5200m" && p.Memory != nil && p.Reason == "as the agent reports" && !p.At.IsZero()
	})
	s.report("n1", batchOf(8000, 4))
	if took := s.becomes("n1", "1200m "+mem4, now); took > time.Second {
		t.Errorf("less took %v", took)
	} else {
		t.Logf("from the report of a load step to the node: %v", took)
	}
}

func TestSettingsHoldAsTheyAreWritten(t *testing.T) {
	s := newScene(t)
	r := s.start()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	set := func(text string) {
		t.Helper()
		var m corev1.ConfigMap
		s.must(s.client.Get(s.ctx, s.config, &m))
		m.Data = map[string]string{"colocation-config": text}
		s.must(s.client.Update(s.ctx, &m))
	}
	set(`{"enable":true,"cpuReclaimThresholdPercent":40}`)
	s.becomes("n1", "2000m "+mem4, now)
	set(`{"enable":true,"cpuReclaimThresholdPercent":"x"}`) // an invalid value: the old one stays
	s.waitUntil("the fault is logged", now, func() bool { return r.log.count("cpuReclaimThresholdPercent") > 0 })
	set(`{"enable":false}`)
	s.becomes("n1", "none none", now)
	s.waitUntil("the report says why", now, func() bool { return s.publishedPart("n1").Reason == "colocation is not enabled for this node" })
	s.waitUntil("an event names the fault", now, func() bool {
		var list eventsv1.EventList
		s.must(s.client.List(s.ctx, &list))
		for _, e := range list.Items {
			if e.Reason == "ConfigRefused" && strings.Contains(e.Note, "cpuReclaimThresholdPercent") && e.Regarding.Namespace == s.name {
				return true
			}
		}
		return false
	})
	s.must(s.client.Delete(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.config.Namespace, Name: s.config.Name}}))
	s.waitUntil("it is missed", now, func() bool { return r.log.count("the last settings hold") > 0 })
	s.waitUntil("an event says so", soon, func() bool {
		var list eventsv1.EventList
		s.must(s.client.List(s.ctx, &list))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == "ConfigMissing" && e.Regarding.Namespace == s.name })
	})
}

// aClock is the real clock. A test can move it forward.
type aClock struct{ ahead atomic.Int64 }

func (c *aClock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *aClock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func TestAStaleReportTakesTheResourcesAway(t *testing.T) {
	s := newScene(t)
	var clock aClock
	r := s.start(func(o *Options) { o.now, o.Elect = clock.now, false })
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	clock.advance(14 * time.Minute)
	s.touch("n1")
	time.Sleep(200 * time.Millisecond)
	if got := s.batchResources("n1"); got != "5200m "+mem4 {
		t.Errorf("after 14 minutes there is %s", got)
	}
	clock.advance(time.Minute)
	s.touch("n1")
	s.becomes("n1", "none none", now)
	s.waitUntil("an event says so", soon, func() bool { return s.event("n1", "BatchResourcesDegraded", "no good report for 15m0s") })
	if got := gauge(t, r, "stale"); got != 1 {
		t.Errorf("%v nodes are stale", got)
	}
	s.report("n1", batchOf(4000, 4))
	clock.advance(Pause)
	s.touch("n1")
	s.becomes("n1", "5200m "+mem4, now)
	s.waitUntil("an event says so", soon, func() bool { return s.event("n1", "BatchResourcesRestored", "") })
}

func TestGarbageIsRefusedAndNeverPublished(t *testing.T) {
	s := newScene(t)
	r := s.start()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	for name, change := range map[string]func(*v1alpha1.Batch){
		"terms that do not add up": func(b *v1alpha1.Batch) { b.CPU.Amount = resource.MustParse("9") },
		"below 0": func(b *v1alpha1.Batch) {
			b.CPU.Amount, b.CPU.Terms = resource.MustParse("-1"), []v1alpha1.BatchTerm{{Name: "capacity", Amount: resource.MustParse("-1")}}
		},
		"absurd": func(b *v1alpha1.Batch) { b.CPU = promise(cpu, 1_000_000, 0, 0) },
		"without end": func(b *v1alpha1.Batch) {
			b.Memory.Amount, b.Memory.Terms = resource.MustParse("9E"), []v1alpha1.BatchTerm{{Name: "capacity", Amount: resource.MustParse("9E")}}
		},
	} {
		b := batchOf(1000, 1)
		change(b)
		s.report("n1", b)
		s.waitUntil(name+" is refused", now, func() bool { return r.log.count("state=refused") > 0 })
		s.waitUntil(name+" is refused in the report", Pause+now, func() bool { return strings.Contains(s.publishedPart("n1").Reason, "refused: batch-") })
		if got := s.batchResources("n1"); got != "5200m "+mem4 {
			t.Errorf("%s: the node has %s", name, got)
		}
	}
	s.waitUntil("an event says so", soon, func() bool { return s.event("n1", "BatchResourcesDegraded", "refused: batch-") })
	s.report("n1", batchOf(5000, 4))
	s.becomes("n1", "4200m "+mem4, Pause+now)
}

// TestTheAPIServerRefusesUncountableQuantities checks that the API server
// refuses a report with a quantity such as 1e2147483647, because reading it
// would take hours.
func TestTheAPIServerRefusesUncountableQuantities(t *testing.T) {
	s := newScene(t)
	s.report("n1", batchOf(4000, 4))
	for i, amount := range []string{"1e999", "1e2147483647", "-1e99", "1E-2147483647", ".5", "99999999999999999999999999999999999999", "1e1.5"} {
		patch := fmt.Sprintf(`{"status":{"run":"evil","sequence":%d,"batch":{"cpu":{"amount":%q,"policy":"usage","formula":"0"}}}}`, i, amount)
		r := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"}}
		r.Name = "n1"
		if err := s.client.Status().Patch(s.ctx, r, client.RawPatch(types.MergePatchType, []byte(patch))); err == nil {
			t.Errorf("%s is admitted", amount)
		}
	}
}

// TestAManagerThatDiesInAWriteLeavesNothingHalfDone cuts the connection between
// a manager and the API server during the first write to a node. In one case,
// the request is lost. In the other case, the answer is lost.
func TestAManagerThatDiesInAWriteLeavesNothingHalfDone(t *testing.T) {
	for name, arrives := range map[string]bool{"before it arrives": false, "after it arrived": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			var cut atomic.Bool
			died := make(chan struct{})
			whole := s.rc
			s.rc = rest.CopyConfig(whole)
			s.rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return through(func(r *http.Request) (*http.Response, error) {
					if cut.Load() {
						return nil, errors.New("cut off")
					}
					if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/n1/status") {
						if arrives {
							response, err := next.RoundTrip(r)
							if err == nil {
								_ = response.Body.Close()
							}
						}
						if cut.CompareAndSwap(false, true) {
							close(died)
						}
						return nil, errors.New("cut off")
					}
					return next.RoundTrip(r)
				})
			})
			first := s.startAgain(func() bool { return !cut.Load() })
			s.node("n1")
			s.report("n1", batchOf(4000, 4))
			select {
			case <-died:
			case <-time.After(soon):
				t.Fatal("the manager wrote nothing")
			}
			want := "none none"
			if arrives {
				want = "5200m " + mem4
			}
			if got := s.batchResources("n1"); got != want {
				t.Errorf("the node has %s, want %s", got, want)
			}
			if p := s.publishedPart("n1"); p.Reason != "" {
				t.Errorf("the stopped manager still wrote: %+v", p)
			}
			s.rc = whole
			s.startAgain(func() bool { return true })
			s.becomes("n1", "5200m "+mem4, soon)
			s.waitUntil("the report says so", soon, func() bool { return s.publishedPart("n1").CPU != nil })
			first.stop()
		})
	}
}

// TestAManagerThatLostItsLeaseBeginsAgain gives the lease of a manager to a replica that
// does not exist. The manager ends, and the next one leads when that lease has expired.
func TestAManagerThatLostItsLeaseBeginsAgain(t *testing.T) {
	s := newScene(t)
	r := s.startAgain(func() bool { return true })
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	s.waitUntil("another replica has the lease", now, func() bool {
		var lease coordinationv1.Lease
		s.must(s.client.Get(s.ctx, client.ObjectKey{Namespace: s.name, Name: s.name}, &lease))
		at := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("another"), &at
		return s.client.Update(s.ctx, &lease) == nil // the manager may have renewed it since
	})
	s.waitUntil("the manager begins again", soon, func() bool { return r.log.count("Attempting to acquire leader lease") > 1 })
	s.report("n1", batchOf(8000, 4))
	s.becomes("n1", "1200m "+mem4, soon)
}

type through func(*http.Request) (*http.Response, error)

func (f through) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnotherReplicaTakesOver(t *testing.T) {
	s := newScene(t)
	a := s.start()
	s.node("n1")
	s.node("n2")
	s.report("n1", batchOf(4000, 4))
	s.report("n2", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	b := s.start()
	s.waitUntil("the other replica runs", soon, func() bool { return b.log.count("Attempting to acquire leader lease") > 0 })
	s.report("n1", batchOf(8000, 4))
	s.becomes("n1", "1200m "+mem4, now)
	if n := b.log.count("msg=wrote"); n != 0 {
		t.Errorf("the replica that does not lead wrote %d times", n)
	}
	a.end()
	start := time.Now()
	s.report("n1", batchOf(9000, 4))
	s.becomes("n1", "200m "+mem4, soon)
	t.Logf("after the end of a replica, the next one wrote a fall after %v", time.Since(start))
	if got := s.batchResources("n2"); got != "5200m "+mem4 {
		t.Errorf("taking over changed a node: %s", got)
	}
	if n := b.log.count("the age of its report is not known"); n != 0 {
		t.Errorf("the replica that took over does not know the age of the reports")
	}
}

func TestAReplicaThatIsCutOffStopsBeforeTheOtherBegins(t *testing.T) {
	s := newScene(t)
	var cut atomic.Bool
	whole := s.rc
	s.rc = rest.CopyConfig(whole)
	s.rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return through(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errors.New("cut off")
			}
			return next.RoundTrip(r)
		})
	})
	a := s.start()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	s.rc = whole
	b := s.start()
	s.waitUntil("the other replica runs", soon, func() bool { return b.log.count("Attempting to acquire leader lease") > 0 })
	start := time.Now()
	cut.Store(true)
	s.report("n1", batchOf(8000, 4))
	s.becomes("n1", "1200m "+mem4, soon)
	t.Logf("after a replica was cut off, the next one wrote a fall after %v, with a lease of 3 s", time.Since(start))
	select {
	case <-a.done:
	case <-time.After(soon):
		t.Error("the replica that was cut off runs on")
	}
	cut.Store(false) // so that the manager can end without errors in its log
}

func TestADryRunWritesNothing(t *testing.T) {
	s := newScene(t)
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	r := s.start(func(o *Options) { o.DryRun = true })
	s.waitUntil("it says what it would write", soon, func() bool { return r.log.count("would write\" node=n1 batch-cpu=5200m") > 0 })
	if got := s.batchResources("n1"); got != "none none" {
		t.Errorf("the node has %s", got)
	}
}

// touch triggers a reconciliation of a node.
func (s *scene) touch(name string) {
	s.t.Helper()
	n := &corev1.Node{}
	n.Name = name
	patch := fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, s.serials.Add(1))
	s.must(s.client.Patch(s.ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// event reports whether there is an event about the node with this reason and
// note.
func (s *scene) event(name, reason, note string) bool {
	var list eventsv1.EventList
	if err := s.client.List(context.Background(), &list); err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Kind == "Node" && e.Regarding.Name == name && e.Reason == reason && strings.Contains(e.Note, note) {
			return true
		}
	}
	return false
}

// gauge returns how many nodes are in a state, according to the metric.
func gauge(t *testing.T, r *replica, state string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "tenon_manager_nodes" && m.Label[0].GetValue() == state {
				return m.Gauge.GetValue()
			}
		}
	}
	t.Fatalf("no metric of nodes that are %s", state)
	return 0
}

// TestADegradationCausesAnEventAtItsBeginAndEnd sets an annotation that cannot
// be read, and then removes it. Each of these two steps must cause one event.
func TestADegradationCausesAnEventAtItsBeginAndEnd(t *testing.T) {
	s := newScene(t)
	r := s.start()
	s.node("doubted")
	s.report("doubted", batchOf(4000, 4))
	s.becomes("doubted", "5200m "+mem4, soon)
	note := func(value string) {
		n := &corev1.Node{}
		n.Name = "doubted"
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, thirdPartyKey, value)
		s.must(s.client.Patch(s.ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	note(`"{\"allocations\":[{\"resources\":{\"kubernetes.io/batch-cpu\":\"many\"}}]}"`)
	s.waitUntil("an event says that it is degraded", soon, func() bool { return s.event("doubted", "BatchResourcesDegraded", thirdPartyKey) })
	if s.event("doubted", "BatchResourcesRestored", "") {
		t.Error("an event says that it is restored")
	}
	note("null")
	s.waitUntil("an event says that it is restored", soon, func() bool { return s.event("doubted", "BatchResourcesRestored", "") })
	if n := r.log.count("msg=restored"); n != 1 {
		t.Errorf("%d lines of the log say that it is restored", n)
	}
}

// TestOthersSharesAreTakenOffInTheSameWrite checks that the amounts, and the
// annotation with the original amounts, change in one write.
func TestOthersSharesAreTakenOffInTheSameWrite(t *testing.T) {
	s := newScene(t)
	s.start()
	s.node("n1")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5200m "+mem4, soon)
	n := &corev1.Node{}
	n.Name = "n1"
	yarn := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, thirdPartyKey, value)
		s.must(s.client.Patch(s.ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	origin := func() string {
		var n corev1.Node
		s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &n))
		return n.Annotations[originKey]
	}
	yarn(`"{\"allocations\":[{\"name\":\"yarn\",\"priority\":\"koord-batch\",\"resources\":{\"kubernetes.io/batch-cpu\":\"2k\"}}]}"`)
	s.becomes("n1", "3200m "+mem4, now)
	if got, want := origin(), `{"resources":{"kubernetes.io/batch-cpu":"5200","kubernetes.io/batch-memory":"39298950758"}}`; got != want {
		t.Errorf("origin is %s, want %s", got, want)
	}
	yarn("null")
	s.becomes("n1", "5200m "+mem4, Pause+now)
	if got := origin(); got != "" {
		t.Errorf("origin is left: %s", got)
	}
}
