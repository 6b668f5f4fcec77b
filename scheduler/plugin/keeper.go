package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// keeper maintains the ledger of the cluster. It watches pods and reports. When
// a node has changed, it publishes the new view of the node. It stores nothing
// on disk: a new keeper makes the same ledger from the same pods and reports.
type keeper struct {
	stale time.Duration
	queue fwk.PodActivator
	log   klog.Logger
	now   func() time.Time

	mu       sync.Mutex
	ledger   *place.Ledger
	nodes    map[string]bool          // the nodes of the cluster
	seen     map[string]*sighting     // by node with a report
	doubts   map[doubt]time.Time      // the time at which to give up the CPUs of a bind in doubt
	failed   map[types.UID]waitingPod // pods that a node did not take
	nominees map[types.UID]bool       // pods that demand CPUs and are nominated for a node
	freed    map[string]bool          // nodes with new room, for wake
	turn     uint64                   // number of times at which a node got room
	rooms    map[string]uint64        // by node: the last of these times
	counts   counts
	waker    chan struct{}

	// views contains the present view of each node of the cluster. It also
	// contains other nodes that have a report or a pod with CPUs.
	views atomic.Pointer[index]

	begun  time.Time
	synced []cache.InformerSynced // synced contains that of the pods, and then that of the reports
	all    atomic.Bool            // all of synced were true
	pods   listers.PodLister      // of the scheduler's informer
}

// A sighting is the knowledge of the keeper about the report of a node.
type sighting struct {
	sequence int64
	run      string
	changed  time.Time
	stale    bool
	cpus     *v1alpha1.CPUs
	moved    map[place.UID]bool // pods that own CPUs other than those chosen for them
}

// A doubt is about a bind of a pod to a node.
type doubt struct {
	uid  types.UID
	node string
}

// doubtFor is the time for which the ledger keeps the CPUs of a pod after an
// uncertain bind. It is longer than any request to the API server takes.
const doubtFor = time.Minute

// noView is the view of an unknown node.
var noView = place.New().View("")

func newKeeper(queue fwk.PodActivator, stale time.Duration) *keeper {
	k := &keeper{
		stale: stale, queue: queue, log: klog.Background().WithName(Name), now: time.Now, ledger: place.New(),
		nodes: map[string]bool{}, seen: map[string]*sighting{}, doubts: map[doubt]time.Time{}, failed: map[types.UID]waitingPod{},
		nominees: map[types.UID]bool{}, freed: map[string]bool{}, rooms: map[string]uint64{}, counts: counts{refused: map[cpus.Code]int{}}, waker: make(chan struct{}, 1),
	}
	k.begun = k.now()
	k.views.Store(newIndex(minSize))
	return k
}

// start makes the keeper watch the reports, and the pods of the scheduler's
// informer.
func (k *keeper) start(ctx context.Context, factory informers.SharedInformerFactory, source cache.ListerWatcher) error {
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.podChanged(nil, o) },
		UpdateFunc: k.podChanged,
		DeleteFunc: k.podDeleted,
	})
	if err != nil {
		return fmt.Errorf("follow the pods: %w", err)
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: k.nodeAdded, DeleteFunc: k.nodeDeleted})
	if err != nil {
		return fmt.Errorf("follow the nodes: %w", err)
	}
	informer, err := newReportInformer(source)
	if err != nil {
		return fmt.Errorf("follow the reports of the nodes: %w", err)
	}
	reports, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.reportChanged,
		UpdateFunc: func(_, o any) { k.reportChanged(o) },
		DeleteFunc: k.reportDeleted,
	})
	if err != nil {
		return fmt.Errorf("follow the reports of the nodes: %w", err)
	}
	k.pods = factory.Core().V1().Pods().Lister()
	k.synced = []cache.InformerSynced{pods.HasSynced, nodes.HasSynced, reports.HasSynced}
	go informer.RunWithContext(ctx)
	go k.wake(ctx)
	go k.tick(ctx)
	return nil
}

// reportsWithin is the time for which the first pods wait for the reports of
// the nodes after the start. It is limited, because a cluster without the CRD
// has no reports.
const reportsWithin = 10 * time.Second

// awaitReady waits until the handlers of the keeper have seen all pods. For a
// limited time, it also waits until they have seen all reports. A synced
// informer is not enough, because its handlers may run later
// (kubernetes/kubernetes#87083).
func (k *keeper) awaitReady(ctx context.Context) error {
	if k.all.Load() {
		return nil
	}
	for _, synced := range k.synced {
		if !synced() {
			return k.await(ctx)
		}
	}
	k.all.Store(true)
	return nil
}

func (k *keeper) await(ctx context.Context) error {
	last := len(k.synced) - 1
	for {
		bound := true
		for _, synced := range k.synced[:last] {
			bound = bound && synced()
		}
		if bound && (k.synced[last]() || k.now().Sub(k.begun) > reportsWithin) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// view returns the present view of a node.
func (k *keeper) view(node string) *place.View { return k.views.Load().viewByName(node) }

// answer returns the answer of a node to the demand of a cycle. It allocates no
// memory, and takes no lock if the object of the node is known.
func (k *keeper) answer(c *cycle, n *corev1.Node) place.Answer {
	if x := k.views.Load(); x != c.answers.index { // nodes were added during the cycle
		return x.viewByObject(n).Answer(&c.pod.Request)
	}
	return c.answers.answerOf(n, &c.pod.Request)
}

// answers returns the answers of the nodes to the demand of a cycle, in the
// order of the nodes.
func (k *keeper) answers(c *cycle, nodes []fwk.NodeInfo) []place.Answer {
	if k.views.Load() == c.answers.index {
		return c.answers.answersOf(nodes, &c.pod.Request)
	}
	all := make([]place.Answer, len(nodes))
	for i, n := range nodes {
		all[i] = k.answer(c, n.Node())
	}
	return all
}

// fitsEverywhere reports whether the demand of a cycle is known to fit on all nodes, whose number
// is n. If a pod waits for CPUs or is nominated for a node, the result is false: other pods must
// not take the CPUs for that pod, but no view shows them. If there are n views, they are those of
// the n nodes.
func (k *keeper) fitsEverywhere(c *cycle, n int) bool {
	k.mu.Lock()
	free := len(k.failed) == 0 && len(k.nominees) == 0
	k.mu.Unlock()
	return free && k.views.Load() == c.answers.index && c.answers.fitEverywhere(n)
}

// publish makes readers see the present state of a node. The caller holds k.mu.
func (k *keeper) publish(node string) {
	x, view := k.views.Load(), k.ledger.View(node)
	if x.put(node, view) {
		return
	}
	x = x.enlarge()
	x.put(node, view)
	k.views.Store(x)
}

// forget forgets a node that has neither a report nor pods. The caller holds
// k.mu.
func (k *keeper) forget(node string) {
	k.ledger.RemoveNode(node)
	delete(k.seen, node)
	delete(k.rooms, node)
	if k.nodes[node] {
		k.publish(node)
		return
	}
	k.views.Load().remove(node)
}

// reserve chooses CPUs for a pod. The pod keeps the CPUs that it holds on other
// nodes after an uncertain bind: if that bind succeeded, the API server refuses
// a second one. In a trial of a PodGroup, trial is the node. A bound pod that
// is missing in the list of that node then holds nothing.
func (k *keeper) reserve(p place.Pod, node string, trial fwk.NodeInfo) (place.Contract, cpus.Code) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, doubtful := k.ledger.View(node), slices.Contains(k.ledger.Doubts(p.UID), node)
	c, why := k.ledger.Assume(p, node)
	if doubtful && k.ledger.View(node) != before { // the pod gave up what it held there for another demand or hardware
		k.changed(node)
	} else {
		k.publish(node)
	}
	switch {
	case why == cpus.Fits:
		delete(k.failed, types.UID(p.UID))
	case trial != nil:
		if c, next := k.ledger.Rehearse(p, node, listPods(trial)); next == cpus.Fits {
			k.publish(node)
			return c, cpus.Fits
		}
	}
	return c, why
}

// unreserve releases the CPUs of a pod that was not bound.
//
// If trial is true, the scheduler has tried the pods of a PodGroup one after
// the other, and now reverts all of them. Pods outside the group were never
// refused because of the trial, so its end frees no room for waiting pods. It
// is also no reason to try the same PodGroup again. But the node may have got
// more room during the trial.
func (k *keeper) unreserve(uid types.UID, trial bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	node, known := k.ledger.Node(place.UID(uid))
	k.ledger.Forget(place.UID(uid))
	switch {
	case !known:
	case trial:
		k.publishGrown(node)
	default:
		k.changed(node)
	}
}

// keepDoubtful keeps the CPUs of a pod for doubtFor, because it may have been bound.
func (k *keeper) keepDoubtful(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if node, is := k.ledger.Doubt(place.UID(uid)); is {
		k.doubts[doubt{uid, node}] = k.now().Add(doubtFor)
	}
}

// changed publishes a node that may have more room than before, and wakes the
// pods that wait for room. The caller holds k.mu.
func (k *keeper) changed(node string) {
	k.turn++
	k.rooms[node] = k.turn
	k.publishGrown(node)
}

// publishGrown publishes a node, and wakes the pods that already waited when
// the node last got room. A pod that begins to wait later sees the present
// node. The caller holds k.mu.
func (k *keeper) publishGrown(node string) {
	k.publish(node)
	if len(k.failed) == 0 {
		return
	}
	k.freed[node] = true
	select {
	case k.waker <- struct{}{}:
	default:
	}
}

// tick does three things. It releases the CPUs of pods whose bind has been
// uncertain for too long. It excludes nodes whose reports are old. It forgets
// waiting pods that no longer exist.
func (k *keeper) tick(ctx context.Context) {
	every := time.NewTicker(min(5*time.Second, k.stale/4))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			k.sweep()
		}
	}
}

func (k *keeper) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for uid, w := range k.failed {
		if k.isDeleted(w.pod) { // the pod was deleted before waits added it, so podDeleted did not find it
			delete(k.failed, uid)
		}
	}
	for d, until := range k.doubts {
		if !now.After(until) {
			continue
		}
		delete(k.doubts, d)
		if k.ledger.ForgetDoubt(place.UID(d.uid), d.node) {
			k.changed(d.node)
		}
	}
	for node, s := range k.seen {
		if s.cpus != nil && !s.stale && now.Sub(s.changed) > k.stale {
			s.stale = true
			k.ledger.CloseNode(node, cpus.Stale)
			k.publish(node)
			k.log.Info("The report of a node is too old: it takes no more pods that ask for CPUs", "node", node, "unchanged", now.Sub(s.changed))
		}
	}
}

// isDeleted reports whether the scheduler's informer no longer has a pod.
func (k *keeper) isDeleted(p *corev1.Pod) bool {
	if k.pods == nil { // not started
		return false
	}
	now, err := k.pods.Pods(p.Namespace).Get(p.Name)
	return apierrors.IsNotFound(err) || err == nil && now.UID != p.UID
}
