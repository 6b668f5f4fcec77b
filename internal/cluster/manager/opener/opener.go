// Package opener opens the scheduling gates of batch pods when nodes have batch room for
// them, as package gate decides. It remembers nothing that the API server does not have:
// a pod without a gate and without a node holds room, and a pod with the gate waits. So
// another replica can go on at any time.
package opener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/gate"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// gather is the time for which the opener collects changes before it decides.
	gather = 100 * time.Millisecond
	// idle is the longest time between two decisions. Events are due then, too.
	idle = 15 * time.Second
	// retry is the time after which the opener tries again what failed.
	retry = 2 * time.Second
	// quietFor is the time for which no pod with the gate must be found before the opener
	// stops searching for them, while the gate is off.
	quietFor = 5 * time.Minute
	// openFor bounds one request to open a gate. It is shorter than the time between the
	// end of a leader that cannot renew its lease and the begin of the next one.
	openFor = 5 * time.Second
	// lateFor is the time after which a pod that no scheduler has bound stops others no more
	// from going where they might take its room. A scheduler binds a pod within seconds; one
	// that does not exist never does.
	lateFor = time.Minute
	// most is the largest number of gates that one decision opens.
	most = 100
)

// Selector selects the pods that may hold or want batch resources: the webhook gives
// each of them this label. A pod that the webhook has not seen, such as one of an ignored
// namespace, may request batch resources without it. The opener does not count that one.
var Selector = labels.SelectorFromSet(labels.Set{kube.LabelQOSClass: string(node.BE)})

// Access is how an Opener reads and writes.
type Access struct {
	// Cache has the nodes and namespaces. It follows pods from the time on at which the
	// gate is switched on. Live reads from the API server itself.
	Cache  cache.Cache
	Live   client.Reader
	Client client.Client
	Permit *Permit
	// Owner is the field manager of what is written.
	Owner string
}

// A Voice is how an Opener says what it does, and when.
type Voice struct {
	Events events.EventRecorder
	Log    *slog.Logger
	Now    func() time.Time
}

// An Opener opens gates on the replica that leads.
type Opener struct {
	Access
	Voice
	Metrics
	Settings interface{ Cluster() *config.Cluster }

	wake      chan struct{}
	following bool // the cache follows pods
	primed    bool // newer has what a former leader did
	// While the gate is off: when a pod was last found with it, or the time from which on
	// none was, and the time of the next search.
	found, search time.Time

	newer  map[types.UID]newer
	shapes map[types.UID]shape
	said   map[types.UID]gate.Code
	// assumed has the time at which a pod without a gate and without a node was first seen.
	assumed map[types.UID]time.Time
	// stuck are the pods whose gate the API server did not let the opener remove.
	stuck map[types.UID]stuck
}

// Metrics are those of an Opener.
type Metrics struct {
	Waiting *prometheus.GaugeVec
	Assumed prometheus.Gauge
	Opened  prometheus.Counter
}

// NewMetrics returns the metrics of an Opener.
func NewMetrics() Metrics {
	m := Metrics{
		Waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenon_manager_batch_pods_waiting", Help: "Batch pods with the scheduling gate of batch room, by why they wait; known to the replica that leads.",
		}, []string{"reason"}),
		Assumed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tenon_manager_batch_pods_assumed", Help: "Batch pods without that gate and without a node, for which room is held; known to the replica that leads.",
		}),
		Opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenon_manager_batch_gates_opened_total", Help: "Scheduling gates of batch pods that this replica has opened.",
		}),
	}
	m.count(nil, 0)
	return m
}

// Register registers the metrics.
func (m Metrics) Register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.Waiting, m.Assumed, m.Opened} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m Metrics) count(waits []gate.Wait, assumed int) {
	by := map[gate.Code]int{}
	for _, w := range waits {
		by[w.Code]++
	}
	for _, code := range gate.Codes {
		m.Waiting.WithLabelValues(string(code)).Set(float64(by[code]))
	}
	m.Assumed.Set(float64(assumed))
}

// New returns o, ready to start.
func New(o Opener) *Opener {
	o.wake = make(chan struct{}, 1)
	o.newer, o.shapes, o.said, o.stuck = map[types.UID]newer{}, map[types.UID]shape{}, map[types.UID]gate.Code{}, map[types.UID]stuck{}
	o.assumed = map[types.UID]time.Time{}
	return &o
}

// NeedLeaderElection says that only the leader opens gates.
func (o *Opener) NeedLeaderElection() bool { return true }

// Wake makes the opener decide again soon.
func (o *Opener) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Start decides again after each change, until ctx ends.
func (o *Opener) Start(ctx context.Context) error {
	for {
		pause, err := o.step(ctx)
		if err != nil && ctx.Err() == nil {
			o.Log.Warn("cannot open the gates of batch pods; trying again", "after", retry, "error", err)
			pause = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
			if !sleep(ctx, gather) {
				return nil
			}
		case <-time.After(pause):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// step opens what may be opened now, and returns the time until it looks again if
// nothing changes.
func (o *Opener) step(ctx context.Context) (time.Duration, error) {
	c := o.Settings.Cluster()
	switch {
	case c == nil || c.LacksBatch():
		return retry, nil // an open gate cannot be closed again
	case !c.GatesBatch():
		return idle, o.openAll(ctx)
	case !o.Permit.Granted(ctx):
		return idle, nil // nor does a webhook close a gate
	}
	o.found, o.search = time.Time{}, time.Time{}
	if err := o.follow(ctx); err != nil {
		return 0, err
	}
	return o.round(ctx)
}

// openAll opens all gates after the option was switched off. A webhook of another replica
// may not know of it yet, and a pod that it gave the gate may be stored later. So openAll
// searches again until none was found for quietFor.
func (o *Opener) openAll(ctx context.Context) error {
	o.primed = false
	o.count(nil, 0)
	now := o.Now()
	if o.found.IsZero() {
		o.found = now
	}
	if now.Before(o.search) || now.Sub(o.found) > quietFor {
		return nil
	}
	opened, err := OpenAll(ctx, o.Live, o.Client, o.Owner)
	if opened > 0 || err != nil {
		o.found = now
	}
	if err == nil {
		o.search = now.Add(idle)
	}
	o.Opened.Add(float64(opened))
	if opened > 0 {
		o.Log.Info("opened the gates of batch pods, because they are switched off", "pods", opened)
	}
	return err
}

// OpenAll opens the gates of all batch pods, and returns their number. It tries all, and
// returns all errors.
func OpenAll(ctx context.Context, live client.Reader, c client.Client, owner string) (opened int, err error) {
	var failed []error
	err = eachPod(ctx, live, func(p *corev1.Pod) error {
		if kube.HasBatchGate(p) {
			_, err := Open(ctx, c, p, owner)
			failed = append(failed, err)
			if err == nil {
				opened++
			}
		}
		return ctx.Err()
	})
	return opened, errors.Join(append(failed, err)...)
}

// follow makes the cache follow pods, and wakes the opener when one of them, a node or a
// namespace changes.
func (o *Opener) follow(ctx context.Context) error {
	if !o.following {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for _, object := range []client.Object{&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}} {
			informer, err := o.Cache.GetInformer(ctx, object)
			if err != nil {
				return fmt.Errorf("follow %T: %w", object, err)
			}
			if _, err := informer.AddEventHandler(o.waker()); err != nil {
				return fmt.Errorf("follow %T: %w", object, err)
			}
		}
		o.following = true
	}
	if o.primed {
		return nil
	}
	// The cache may be older than what a former leader did.
	clear(o.newer)
	err := eachPod(ctx, o.Live, func(p *corev1.Pod) error {
		slim, err := SlimPod(p)
		if err == nil {
			o.newer[p.UID] = newer{pod: slim.(*corev1.Pod), since: o.Now()}
		}
		return err
	})
	o.primed = err == nil
	return err
}

func (o *Opener) waker() clientcache.ResourceEventHandler {
	return clientcache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { o.Wake() },
		DeleteFunc: func(any) { o.Wake() },
		UpdateFunc: func(before, after any) {
			old, is := before.(*corev1.Node)
			now, also := after.(*corev1.Node)
			if is && also && old.Spec.Unschedulable == now.Spec.Unschedulable && equality.Semantic.DeepEqual(old.Labels, now.Labels) &&
				equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints) && equality.Semantic.DeepEqual(old.Status.Allocatable, now.Status.Allocatable) {
				return // a heartbeat
			}
			o.Wake()
		},
	}
}

// eachPod calls f with each pod that Selector selects, as the API server has it now.
func eachPod(ctx context.Context, live client.Reader, f func(p *corev1.Pod) error, options ...client.ListOption) error {
	var list corev1.PodList
	for {
		page := append([]client.ListOption{client.MatchingLabelsSelector{Selector: Selector}, client.Limit(500), client.Continue(list.Continue)}, options...)
		list = corev1.PodList{}
		if err := live.List(ctx, &list, page...); err != nil {
			return fmt.Errorf("list the batch pods: %w", err)
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// Used returns what the pods of a namespace request that have a node or may get one at
// any time.
func Used(ctx context.Context, live client.Reader, namespace string) (sum share.Amount, err error) {
	err = eachPod(ctx, live, func(p *corev1.Pod) error {
		if !kube.HasEnded(p) && !kube.HasBatchGate(p) {
			sum = sum.Plus(kube.RequestedBatch(p))
		}
		return nil
	}, client.InNamespace(namespace))
	return sum, err
}

// Open opens the gate of a pod, and returns the pod as the API server has it then. A pod
// that is gone, or another pod of this name, is no error, and the result is nil.
func Open(ctx context.Context, c client.Client, p *corev1.Pod, owner string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, openFor)
	defer cancel()
	text := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"schedulingGates":[{"$patch":"delete","name":%q}]}}`, p.UID, kube.BatchGate)
	opened := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	switch err := c.Patch(ctx, opened, client.RawPatch(types.StrategicMergePatchType, []byte(text)), client.FieldOwner(owner)); {
	case err == nil:
		return opened, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil, nil
	default:
		return nil, fmt.Errorf("open the gate of pod %s: %w", kube.NameOf(p), err)
	}
}
