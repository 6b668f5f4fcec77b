package opener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodefit"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/gate"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// unseenFor is the time after which the opener asks the API server about a pod that
	// it knows and the cache does not have.
	unseenFor = 5 * time.Second
	// doubtFor is the time for which a pod counts as open after a request to open its
	// gate had no answer.
	doubtFor = 2 * openFor
	// stuckFor is the first time for which a stuck pod waits, and stuckMost the longest.
	stuckFor, stuckMost = time.Minute, time.Hour
)

// A newer is a pod of which the opener knows more than the cache.
type newer struct {
	pod   *corev1.Pod
	since time.Time
	// doubt means that it is not known whether the API server has opened the gate of the
	// pod. Then pod counts for doubtFor.
	doubt bool
}

// A stuck pod has a gate that the API server did not let the opener remove. It gets no
// room until then, so that others get it.
type stuck struct {
	until time.Time
	wait  time.Duration // the last wait; the next one is twice as long
}

// A shape is what the opener computes from a version of a pod.
type shape struct {
	version string
	place   string
	asks    share.Amount
}

// SlimPod drops the fields of a pod that the opener does not read. It is a transform
// function of a cache.
func SlimPod(o any) (any, error) {
	p, is := o.(*corev1.Pod)
	if !is {
		return o, nil // a tombstone of a deleted object
	}
	m := &p.ObjectMeta
	slim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}}
	s := &p.Spec
	slim.Spec = corev1.PodSpec{
		NodeName: s.NodeName, NodeSelector: s.NodeSelector, Tolerations: s.Tolerations, SchedulingGates: s.SchedulingGates, Priority: s.Priority, Overhead: s.Overhead,
		InitContainers: slimContainers(s.InitContainers), Containers: slimContainers(s.Containers),
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		slim.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
	}
	slim.Status.Phase = p.Status.Phase
	return slim, nil
}

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, len(all))
	for i, c := range all {
		slim[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}}
	}
	return slim
}

// round decides once, and opens the gates.
func (o *Opener) round(ctx context.Context) (time.Duration, error) {
	pods, err := o.pods(ctx)
	if err != nil {
		return 0, err
	}
	var nodes corev1.NodeList
	if err := o.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list the nodes: %w", err)
	}
	var spaces corev1.NamespaceList
	if err := o.Cache.List(ctx, &spaces, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list the namespaces: %w", err)
	}
	c, waiting := o.caseOf(nodes.Items, spaces.Items, pods)
	a := gate.Decide(c)
	o.count(a.Waits, len(c.Assumed)+len(a.Open))
	var failed []error
	for _, i := range a.Open {
		failed = append(failed, o.open(ctx, waiting[i]))
		if ctx.Err() != nil {
			break
		}
	}
	o.tell(c, a, waiting)
	if len(a.Open) >= most {
		return 0, errors.Join(failed...)
	}
	return idle, errors.Join(failed...)
}

// open opens the gate of one pod.
func (o *Opener) open(ctx context.Context, p *corev1.Pod) error {
	opened, err := Open(ctx, o.Client, p, o.Owner)
	switch {
	case err != nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		wait := min(max(stuckFor, 2*o.stuck[p.UID].wait), stuckMost)
		o.stuck[p.UID] = stuck{until: o.Now().Add(wait), wait: wait}
	case err != nil:
		assumed := *p
		assumed.Spec.SchedulingGates = kube.RemoveBatchGate(p.Spec.SchedulingGates)
		o.newer[p.UID] = newer{pod: &assumed, since: o.Now(), doubt: true}
	case opened != nil:
		slim, err := SlimPod(opened)
		if err != nil {
			return err
		}
		o.newer[p.UID] = newer{pod: slim.(*corev1.Pod), since: o.Now()}
		o.Opened.Inc()
		o.Log.Debug("opened the gate", "namespace", p.Namespace, "pod", p.Name)
	}
	return err
}

// pods returns the batch pods as far as the opener knows them.
func (o *Opener) pods(ctx context.Context) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := o.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the batch pods: %w", err)
	}
	all := make([]*corev1.Pod, 0, len(list.Items))
	seen := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		p := &list.Items[i]
		seen[p.UID] = true
		if n, known := o.newer[p.UID]; known {
			if o.isBehind(p, n) {
				p = n.pod
			} else {
				delete(o.newer, p.UID)
			}
		}
		all = append(all, p)
	}
	for uid, n := range o.newer {
		if seen[uid] {
			continue
		}
		if o.Now().Sub(n.since) > unseenFor {
			var now corev1.Pod
			err := o.Live.Get(ctx, client.ObjectKeyFromObject(n.pod), &now)
			switch {
			case apierrors.IsNotFound(err) || err == nil && now.UID != uid:
				delete(o.newer, uid)
				continue
			case err != nil:
				return nil, fmt.Errorf("read pod %s: %w", kube.NameOf(n.pod), err)
			}
			n.since = o.Now()
			o.newer[uid] = n
		}
		all = append(all, n.pod)
	}
	return all, nil
}

// isBehind reports whether a pod of the cache is older than what the opener knows.
func (o *Opener) isBehind(p *corev1.Pod, n newer) bool {
	if n.doubt {
		return kube.HasBatchGate(p) && o.Now().Sub(n.since) < doubtFor
	}
	return version(p) < version(n.pod)
}

// version returns the resource version of a pod as a number. The API server compares
// them so (KEP-5504).
func version(p *corev1.Pod) uint64 {
	v, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	if err != nil {
		return 0 // then the cache counts
	}
	return v
}

// caseOf makes the case of a decision. waiting are the pods of its Waiting.
func (o *Opener) caseOf(nodes []corev1.Node, spaces []corev1.Namespace, pods []*corev1.Pod) (c gate.Case, waiting []*corev1.Pod) {
	at := map[string]int{}
	var of []*corev1.Node
	for i := range nodes {
		n := &nodes[i]
		cpu, hasCPU := n.Status.Allocatable[kube.BatchCPU]
		memory, hasMemory := n.Status.Allocatable[kube.BatchMemory]
		if !hasCPU && !hasMemory {
			continue
		}
		offers := share.Amount{CPU: unit.MilliCPU(quantity.Whole(cpu, unit.Down)), Memory: unit.Bytes(quantity.Whole(memory, unit.Down))}
		at[n.Name] = len(c.Nodes)
		of = append(of, n)
		c.Nodes = append(c.Nodes, gate.Node{Name: n.Name, Free: offers})
		c.Room = c.Room.Plus(offers)
	}
	bound := map[string]share.Amount{}
	places, known := map[string]int{}, make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		known[p.UID] = true
		if kube.HasEnded(p) {
			continue
		}
		s := o.shapeOf(p)
		if s.asks == (share.Amount{}) {
			continue
		}
		if p.Spec.NodeName != "" {
			delete(o.assumed, p.UID)
			bound[p.Namespace] = bound[p.Namespace].Plus(s.asks)
			if i, has := at[p.Spec.NodeName]; has {
				c.Nodes[i].Free = c.Nodes[i].Free.Minus(s.asks)
			}
			continue
		}
		others := len(kube.RemoveBatchGate(p.Spec.SchedulingGates)) > 0
		waits := kube.HasBatchGate(p)
		if others || waits && (p.DeletionTimestamp != nil || o.Now().Before(o.stuck[p.UID].until)) {
			continue // another program lets it go first, it goes away, or its gate cannot be removed
		}
		place, has := places[s.place]
		if !has {
			place = len(c.Places)
			places[s.place] = place
			c.Places = append(c.Places, placeOf(p, of))
		}
		g := gate.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Asks: s.asks, Place: place, Created: p.CreationTimestamp.Time}
		if p.Spec.Priority != nil {
			g.Priority = *p.Spec.Priority
		}
		if waits {
			c.Waiting, waiting = append(c.Waiting, g), append(waiting, p)
		} else {
			since, seen := o.assumed[p.UID]
			if !seen {
				since = o.Now()
				o.assumed[p.UID] = since
			}
			g.Late = o.Now().Sub(since) >= lateFor
			c.Assumed = append(c.Assumed, g)
		}
	}
	for uid := range o.shapes {
		if !known[uid] {
			delete(o.shapes, uid)
			delete(o.said, uid)
			delete(o.assumed, uid)
			delete(o.stuck, uid)
		}
	}
	listed := make(map[string]bool, len(spaces))
	for i := range spaces {
		listed[spaces[i].Name] = true
		terms, said, faults := kube.BatchTermsOf(spaces[i].Annotations)
		if has := bound[spaces[i].Name]; said || has != (share.Amount{}) {
			c.Namespaces = append(c.Namespaces, gate.Namespace{Name: spaces[i].Name, Terms: terms, Unread: len(faults) > 0, Bound: has})
		}
	}
	for _, p := range c.Waiting {
		if !listed[p.Namespace] { // it is so new that the cache lacks it, and it may have a cap
			listed[p.Namespace] = true
			c.Namespaces = append(c.Namespaces, gate.Namespace{Name: p.Namespace, Unread: true})
		}
	}
	c.Most = most
	return c, waiting
}

// shapeOf returns the shape of a pod, which is computed once for each version.
func (o *Opener) shapeOf(p *corev1.Pod) shape {
	if s, known := o.shapes[p.UID]; known && s.version == p.ResourceVersion {
		return s
	}
	s := shape{version: p.ResourceVersion, asks: kube.RequestedBatch(p)}
	if p.Spec.NodeName == "" {
		text, _ := json.Marshal([]any{p.Spec.NodeSelector, p.Spec.Affinity, p.Spec.Tolerations}) //nolint:errcheck // these types can always be encoded
		s.place = string(text)
	}
	o.shapes[p.UID] = s
	return s
}

// placeOf returns the indices of the nodes that admit a pod.
func placeOf(p *corev1.Pod, nodes []*corev1.Node) []int {
	var all []int
	for i, n := range nodes {
		if _, excludes := nodefit.Excludes(p, n, false); !excludes {
			all = append(all, i)
		}
	}
	return all
}
