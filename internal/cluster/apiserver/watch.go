package apiserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// An object is an object of the Kubernetes API.
type object interface {
	runtime.Object
	metav1.Object
}

// A Watch keeps a copy of some objects of the API server. If the server does
// not answer, the copy keeps its last state. A Watch is safe for concurrent
// use.
type Watch[T object] struct {
	what    string
	source  *cache.ListWatch
	example T
	keep    func(T) // drops the fields of an object that are not needed
	same    func(a, b T) bool
	changed func()

	mu      sync.Mutex
	objects map[string]T
	known   bool
	heard   time.Time // the time of the last answer
	trouble error     // the error since that answer; nil if there is none
}

// Pods watches the pods that are bound to a node. After each change, another
// goroutine calls changed.
func (c *Client) Pods(node string, keep func(*corev1.Pod), changed func()) *Watch[*corev1.Pod] {
	w := newWatch(c, "pods", "", fields.OneTermEqualSelector("spec.nodeName", node), &corev1.Pod{}, changed)
	w.keep = keep
	return w
}

// Node watches the labels, annotations and identity of one node, and its
// capacity and allocatable CPU.
func (c *Client) Node(name string, changed func()) *Watch[*corev1.Node] {
	w := newWatch(c, "nodes", "", fields.OneTermEqualSelector("metadata.name", name), &corev1.Node{}, changed)
	w.keep = func(n *corev1.Node) {
		n.ManagedFields, n.Spec = nil, corev1.NodeSpec{}
		n.Status = corev1.NodeStatus{Capacity: cpuOnly(n.Status.Capacity), Allocatable: cpuOnly(n.Status.Allocatable)}
	}
	// The kubelet often writes the status of its node. Such a write does not count
	// as a change.
	w.same = func(a, b *corev1.Node) bool {
		return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
			a.Status.Capacity.Cpu().Equal(*b.Status.Capacity.Cpu()) && a.Status.Allocatable.Cpu().Equal(*b.Status.Allocatable.Cpu())
	}
	return w
}

func cpuOnly(all corev1.ResourceList) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: all[corev1.ResourceCPU]}
}

// ConfigMap watches one ConfigMap, which need not exist.
func (c *Client) ConfigMap(namespace, name string, changed func()) *Watch[*corev1.ConfigMap] {
	w := newWatch(c, "configmaps", namespace, fields.OneTermEqualSelector("metadata.name", name), &corev1.ConfigMap{}, changed)
	w.keep = func(m *corev1.ConfigMap) { m.ManagedFields = nil }
	w.same = func(a, b *corev1.ConfigMap) bool { return a.UID == b.UID && maps.Equal(a.Data, b.Data) }
	return w
}

func newWatch[T object](c *Client, resource, namespace string, which fields.Selector, example T, changed func()) *Watch[T] {
	return &Watch[T]{
		what: resource, example: example, changed: changed,
		source: cache.NewListWatchFromClient(c.rest, resource, namespace, which),
		keep:   func(T) {},
		same:   func(a, b T) bool { return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion() },
	}
}

// Run watches until ctx ends.
func (w *Watch[T]) Run(ctx context.Context) {
	quiet := logr.Discard() // the Watch reports errors itself
	r := cache.NewReflectorWithOptions(errorRecorder[T]{w.source, w}, w.example, store[T]{w}, cache.ReflectorOptions{Name: w.what, Logger: &quiet})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

// An errorRecorder records the error of a failed list or watch.
type errorRecorder[T object] struct {
	*cache.ListWatch
	w *Watch[T]
}

func (n errorRecorder[T]) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	all, err := n.ListWatch.ListWithContext(ctx, o)
	n.note(ctx, err)
	return all, err
}

func (n errorRecorder[T]) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	events, err := n.ListWatch.WatchWithContext(ctx, o)
	n.note(ctx, err)
	return events, err
}

func (n errorRecorder[T]) note(ctx context.Context, err error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	switch {
	case err == nil:
		n.w.heardNow()
	// The server has deleted old versions. This is no error, because the reflector
	// lists the objects again.
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || ctx.Err() != nil:
	default:
		n.w.trouble = err
	}
}

// Objects returns the last known objects, sorted by namespace and name. known
// is false until the server has listed the objects. The caller must not change
// them.
func (w *Watch[T]) Objects() (all []T, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all = slices.Collect(maps.Values(w.objects))
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return all, w.known
}

// Trouble returns the time of the server's last answer (heard), and the error
// since that time, if there is one.
func (w *Watch[T]) Trouble() (heard time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard, w.trouble
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// A store receives the objects of the reflector.
type store[T object] struct{ w *Watch[T] }

func (s store[T]) Add(o any) error    { return s.put(o) }
func (s store[T]) Update(o any) error { return s.put(o) }
func (s store[T]) Resync() error      { return nil }

// Bookmark records an answer of the server that contains no change.
func (s store[T]) Bookmark(string) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.heardNow()
	return nil
}

// heardNow records an answer of the server; the caller holds w.mu.
func (w *Watch[T]) heardNow() { w.heard, w.trouble = time.Now(), nil }

func (s store[T]) put(o any) error {
	next, is := o.(T)
	if !is {
		return errors.New("the API server sent an object of another kind than requested")
	}
	s.w.keep(next)
	s.w.mu.Lock()
	s.w.heardNow()
	before, had := s.w.objects[keyOf(next)]
	if s.w.objects == nil {
		s.w.objects = map[string]T{}
	}
	s.w.objects[keyOf(next)] = next
	news := s.w.known && (!had || !s.w.same(before, next))
	s.w.mu.Unlock()
	if news {
		s.w.changed()
	}
	return nil
}

func (s store[T]) Delete(o any) error {
	gone, is := o.(metav1.Object)
	if !is {
		return nil
	}
	s.w.mu.Lock()
	s.w.heardNow()
	_, had := s.w.objects[keyOf(gone)]
	delete(s.w.objects, keyOf(gone))
	s.w.mu.Unlock()
	if had {
		s.w.changed()
	}
	return nil
}

// Replace stores all objects of a list.
func (s store[T]) Replace(all []any, _ string) error {
	next := make(map[string]T, len(all))
	for _, o := range all {
		if v, is := o.(T); is {
			s.w.keep(v)
			next[keyOf(v)] = v
		}
	}
	s.w.mu.Lock()
	s.w.heardNow()
	news := !s.w.known || !maps.EqualFunc(s.w.objects, next, s.w.same)
	s.w.objects, s.w.known = next, true
	s.w.mu.Unlock()
	if news {
		s.w.changed()
	}
	return nil
}
