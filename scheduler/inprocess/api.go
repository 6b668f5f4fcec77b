// Package inprocess runs kube-scheduler in this process, with or without
// Tenon's plugin. The scheduler uses an API server in memory.
package inprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// API is an API server for pods and nodes in memory. It does as little as
// possible, because a measurement should cover the scheduler, not the API
// server. It stores the pods, and sends one watch event for each change. Like a
// real API server, it adds the annotations of a binding to the pod, and refuses
// to bind a pod twice. A deleted pod that is bound and has a grace period exists
// until Remove; each other one is gone at once.
type API struct {
	*fake.Clientset // implements all other kinds of objects
	nodes           []corev1.Node

	mu        sync.Mutex
	fault     func(*corev1.Binding) (happens bool, err error)
	onChange  func(before, after *corev1.Pod)
	version   int
	pods      map[types.NamespacedName]*corev1.Pod
	log       []event // the last changes
	forgotten int     // the version of the newest change that log no longer has
	watchers  []*watcher
}

// An event is one change. version is the resource version after the change.
type event struct {
	watch.Event
	version int
}

// A watcher is a watch of the pods.
type watcher struct {
	events chan watch.Event
	ended  chan struct{}
	once   sync.Once
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.once.Do(func() { close(w.ended) }) }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher) send(e watch.Event) {
	select {
	case w.events <- e:
	case <-w.ended:
	}
}

// New makes an API server with nodes and pods.
func New(nodes []corev1.Node, pods []*corev1.Pod) *API {
	a := &API{Clientset: fake.NewClientset(), nodes: nodes, version: 1, pods: make(map[types.NamespacedName]*corev1.Pod, len(pods))}
	for _, p := range pods {
		a.pods[keyOf(p)] = p
	}
	return a
}

func keyOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// CoreV1 implements kubernetes.Interface.
func (a *API) CoreV1() coreclient.CoreV1Interface { return coreAPI{a.Clientset.CoreV1(), a} }

type coreAPI struct {
	coreclient.CoreV1Interface
	api *API
}

func (c coreAPI) Pods(namespace string) coreclient.PodInterface {
	return podAPI{c.CoreV1Interface.Pods(namespace), c.api, namespace}
}

func (c coreAPI) Nodes() coreclient.NodeInterface { return nodeAPI{c.CoreV1Interface.Nodes(), c.api} }

type nodeAPI struct {
	coreclient.NodeInterface
	api *API
}

func (n nodeAPI) List(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: n.api.nodes}, nil
}

func (nodeAPI) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

type podAPI struct {
	coreclient.PodInterface
	api       *API
	namespace string
}

func (p podAPI) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	for _, pod := range a.pods {
		list.Items = append(list.Items, *pod)
	}
	return list, nil
}

const (
	backlog = 200_000 // number of events that may wait in a watch; then the API server blocks
	history = 20_000  // number of past changes that a new watch can get
)

func (p podAPI) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("resourceVersion: want that of a list")
	}
	if from < a.forgotten {
		return nil, apierrors.NewResourceExpired("the version is too old")
	}
	w := &watcher{events: make(chan watch.Event, backlog), ended: make(chan struct{})}
	for _, e := range a.log {
		if e.version > from {
			w.send(e.Event)
		}
	}
	a.watchers = append(a.watchers, w)
	return w, nil
}

// tell records a change and sends it to the watchers. The caller holds a.mu.
func (a *API) tell(kind watch.EventType, before, after *corev1.Pod) {
	if a.onChange != nil {
		a.onChange(before, after)
	}
	e := watch.Event{Type: kind, Object: after}
	if after == nil {
		e.Object = before
	}
	if len(a.log) == history {
		a.forgotten = a.log[history/2-1].version
		a.log = slices.Delete(a.log, 0, history/2)
	}
	a.log = append(a.log, event{e, a.version})
	a.watchers = slices.DeleteFunc(a.watchers, func(w *watcher) bool {
		select {
		case <-w.ended:
			return true
		default:
			w.send(e)
			return false
		}
	})
}

// Bind implements coreclient.PodExpansion.
func (p podAPI) Bind(_ context.Context, b *corev1.Binding, _ metav1.CreateOptions) error {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods[types.NamespacedName{Namespace: p.namespace, Name: b.Name}]
	switch {
	case pod == nil || b.UID != "" && pod.UID != b.UID:
		return apierrors.NewNotFound(corev1.Resource("pods"), b.Name)
	case pod.Spec.NodeName != "":
		return apierrors.NewConflict(corev1.Resource("pods/binding"), b.Name, fmt.Errorf("pod %s is already assigned to node %q", b.Name, pod.Spec.NodeName))
	}
	happens, answer := true, error(nil)
	if a.fault != nil {
		happens, answer = a.fault(b)
	}
	if !happens {
		return answer
	}
	next := pod.DeepCopy()
	next.Spec.NodeName = b.Target.Name
	if len(b.Annotations) > 0 {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		maps.Copy(next.Annotations, b.Annotations)
	}
	a.put(next)
	return answer
}

// Get implements coreclient.PodInterface.
func (p podAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods[types.NamespacedName{Namespace: p.namespace, Name: name}]
	if pod == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return pod.DeepCopy(), nil
}

// Delete implements coreclient.PodInterface.
func (p podAPI) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods[types.NamespacedName{Namespace: p.namespace, Name: name}]
	if pod == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	grace := pod.Spec.TerminationGracePeriodSeconds
	switch {
	case grace == nil || *grace == 0 || pod.Spec.NodeName == "":
		a.remove(pod)
	case pod.DeletionTimestamp == nil:
		next, until := pod.DeepCopy(), metav1.NewTime(time.Now().Add(time.Duration(*grace)*time.Second))
		next.DeletionTimestamp, next.DeletionGracePeriodSeconds = &until, grace
		a.put(next)
	}
	return nil
}

// Patch implements coreclient.PodInterface.
func (p podAPI) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods[types.NamespacedName{Namespace: p.namespace, Name: name}]
	if pod == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	if kind != types.StrategicMergePatchType {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("patch of %s: want a strategic merge patch", name))
	}
	was, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	is, err := strategicpatch.StrategicMergePatch(was, data, corev1.Pod{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(is, next); err != nil {
		return nil, err
	}
	a.put(next)
	return next, nil
}

// put stores a pod and sends the change to the watchers. The caller holds a.mu.
func (a *API) put(p *corev1.Pod) {
	a.version++
	p.ResourceVersion = strconv.Itoa(a.version)
	was, there := a.pods[keyOf(p)]
	a.pods[keyOf(p)] = p
	if there {
		a.tell(watch.Modified, was, p)
	} else {
		a.tell(watch.Added, nil, p)
	}
}

// Create creates pods.
func (a *API) Create(pods []*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		a.put(p)
	}
}

// Remove deletes the given pods. It ignores pods that do not exist.
func (a *API) Remove(pods []*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		if was := a.pods[keyOf(p)]; was != nil {
			a.remove(was)
		}
	}
}

// remove removes a pod and sends the change to the watchers. The caller holds
// a.mu.
func (a *API) remove(p *corev1.Pod) {
	delete(a.pods, keyOf(p))
	a.version++
	last := p.DeepCopy()
	last.ResourceVersion = strconv.Itoa(a.version)
	a.tell(watch.Deleted, last, nil)
}

// Pods returns the present pods.
func (a *API) Pods() []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.pods))
}

// Fail sets a function that decides whether a bind takes effect, and what the
// API server answers. It is called for each bind.
func (a *API) Fail(fault func(*corev1.Binding) (happens bool, err error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = fault
}

// Watch sets a function that is called for each change of a pod, in order.
// after is nil if the pod was deleted.
func (a *API) Watch(changed func(before, after *corev1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onChange = changed
}
