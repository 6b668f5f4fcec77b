package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// api is an API server in memory for pods and nodes. It does as little as
// possible, so that what is measured is the scheduler: it keeps the pods, sends
// one watch event for each change, and binds as the API server does, with the
// annotations of the binding. It refuses to bind a pod twice.
type api struct {
	*fake.Clientset // all other kinds; it has none of them
	nodes           []corev1.Node

	mu       sync.Mutex
	version  int
	pods     map[types.NamespacedName]*corev1.Pod
	watchers []*watch.FakeWatcher
}

func newAPI(nodes []corev1.Node, pods []*corev1.Pod) *api {
	a := &api{Clientset: fake.NewClientset(), nodes: nodes, version: 1, pods: make(map[types.NamespacedName]*corev1.Pod, len(pods))}
	for _, p := range pods {
		a.pods[keyOf(p)] = p
	}
	return a
}

func keyOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// CoreV1 implements kubernetes.Interface.
func (a *api) CoreV1() coreclient.CoreV1Interface { return coreAPI{a.Clientset.CoreV1(), a} }

type coreAPI struct {
	coreclient.CoreV1Interface
	api *api
}

func (c coreAPI) Pods(namespace string) coreclient.PodInterface {
	return podAPI{c.CoreV1Interface.Pods(namespace), c.api, namespace}
}

func (c coreAPI) Nodes() coreclient.NodeInterface { return nodeAPI{c.CoreV1Interface.Nodes(), c.api} }

type nodeAPI struct {
	coreclient.NodeInterface
	api *api
}

func (n nodeAPI) List(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: n.api.nodes}, nil
}

func (nodeAPI) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

type podAPI struct {
	coreclient.PodInterface
	api       *api
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

// backlog is the number of watch events that wait before the API server does.
const backlog = 200_000

func (p podAPI) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	a := p.api
	a.mu.Lock()
	defer a.mu.Unlock()
	w := watch.NewFakeWithChanSize(backlog, false)
	a.watchers = append(a.watchers, w)
	return w, nil
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
	next := pod.DeepCopy()
	next.Spec.NodeName = b.Target.Name
	if len(b.Annotations) > 0 {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		maps.Copy(next.Annotations, b.Annotations)
	}
	a.put(next)
	return nil
}

// put stores a pod and tells the watchers. The caller holds a.mu.
func (a *api) put(p *corev1.Pod) {
	a.version++
	p.ResourceVersion = strconv.Itoa(a.version)
	_, there := a.pods[keyOf(p)]
	a.pods[keyOf(p)] = p
	for _, w := range a.watchers {
		if there {
			w.Modify(p)
		} else {
			w.Add(p)
		}
	}
}

func (a *api) create(pods []*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range pods {
		a.put(p)
	}
}

// remove deletes pods, and returns them as they were.
func (a *api) remove(pods []*corev1.Pod) []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var last []*corev1.Pod
	for _, p := range pods {
		was := a.pods[keyOf(p)]
		delete(a.pods, keyOf(p))
		last = append(last, was)
		for _, w := range a.watchers {
			w.Delete(was)
		}
	}
	return last
}

// amounts is a list of resources.
func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
