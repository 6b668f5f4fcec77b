package nri

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// maxWaiting is the maximum number of the runtime's requests that wait for Values
// at the same time. The plugin answers further requests at once, with "no
// change".
const maxWaiting = 256

// A synchronization requests the values of at most parallelQueries containers
// at the same time, so that containers with unknown values delay few others. It
// may take the deadline of an answer syncDeadlines times. The runtime waits
// longer than that.
const parallelQueries, syncDeadlines = 64, 5

// A plugin answers the runtime on one connection. It never answers with an
// error, because that would fail the pod.
type plugin struct {
	Options
	stub         stub.Stub
	runtime      string
	configured   chan struct{} // closed when the plugin is configured
	once         sync.Once
	synchronized chan string // receives the name of the runtime
	finished     chan error  // receives the error that ends the session
	slots        chan struct{}
	release      bool // restore the kubelet's values of the containers, and end

	mu   sync.Mutex
	ours map[string]owned // the values that Tenon has set, by container
	open map[string]query // unanswered queries, by container

	catching chan struct{} // held by the goroutine that sends unsolicited updates
}

// owned are the values of Tenon in a container.
type owned struct {
	pod    string // its UID
	values Limits
}

// A query is a container whose values the plugin needs. times is the number of
// unanswered requests for these values.
type query struct {
	pod       Pod
	container *api.Container
	times     int
}

func newPlugin(o Options) *plugin {
	return &plugin{
		Options: o, configured: make(chan struct{}), synchronized: make(chan string, 1), finished: make(chan error, 1),
		slots: make(chan struct{}, maxWaiting), ours: map[string]owned{}, open: map[string]query{}, catching: make(chan struct{}, 1),
	}
}

// Configure is the first call of the runtime.
func (p *plugin) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	p.once.Do(func() {
		p.runtime = runtime + " " + version
		close(p.configured)
	})
	return 0, nil // all events for which the plugin has a method
}

// Synchronize is the runtime's first request after it has configured the
// plugin. It returns updates for the running containers whose values are known.
func (p *plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer func() {
		select {
		case p.synchronized <- p.runtime:
		default: // this is not the first call
		}
	}()
	of := make(map[string]*api.PodSandbox, len(pods))
	for _, s := range pods {
		of[s.GetId()] = s
	}
	var queries []query
	for _, c := range containers {
		if s := of[c.GetPodSandboxId()]; s != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			queries = append(queries, query{pod: podOf(s), container: c})
		}
	}
	soon, cancel := context.WithTimeout(ctx, syncDeadlines*p.Deadline)
	defer cancel()
	updates := p.collectUpdates(soon, "Synchronize", queries)
	if p.release {
		// Only after this answer does the runtime accept updates that it has
		// not requested.
		go func() { p.finished <- p.leave() }()
		return nil, nil
	}
	return updates, nil
}

// collectUpdates asks for the values of containers. It returns an update for
// each container that has other values now, in the order of the queries.
func (p *plugin) collectUpdates(ctx context.Context, what string, queries []query) (updates []*api.ContainerUpdate) {
	answers := make([]*Limits, len(queries))
	var asked sync.WaitGroup
	turns := make(chan struct{}, parallelQueries)
	for i, q := range queries {
		turns <- struct{}{}
		asked.Go(func() {
			defer func() { <-turns }()
			if l, ok := p.limits(ctx, what, q.pod, q.container); ok {
				answers[i] = &l
			}
		})
	}
	asked.Wait()
	for i, l := range answers {
		if l != nil {
			updates = appendUpdate(updates, queries[i].container, *l)
		}
	}
	return updates
}

// RunPodSandbox is called when the kubelet has created the cgroup of the pod
// and the pod has no containers yet.
func (p *plugin) RunPodSandbox(ctx context.Context, s *api.PodSandbox) error {
	pod := podOf(s)
	askWithin(ctx, p, p.Deadline, "RunPodSandbox", pod, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.Values.Sandbox(ctx, pod)
	})
	return nil
}

// CreateContainer is called before the runtime creates the cgroup of the
// container.
func (p *plugin) CreateContainer(ctx context.Context, s *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if l, ok := p.limits(ctx, "CreateContainer", podOf(s), c); ok {
		return adjustment(c, l), nil, nil
	}
	return nil, nil, nil
}

// StartContainer is called when the runtime has created the cgroup of the
// container and has not started its first process.
func (p *plugin) StartContainer(ctx context.Context, s *api.PodSandbox, c *api.Container) error {
	pod := podOf(s)
	runtime, _, _ := strings.Cut(p.runtime, " ")
	askWithin(ctx, p, p.startDeadline(), "StartContainer", pod, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.Values.Starting(ctx, pod, Created{Name: c.GetName(), ID: runtime + "://" + c.GetId()})
	})
	return nil
}

// RemoveContainer is called when a container has been removed.
func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ours, c.GetId())
	delete(p.open, c.GetId())
	return nil
}

// UpdateContainer is called when the kubelet changes a container: it resizes
// the container, or the CPU manager moves it. The answer keeps Tenon's values.
func (p *plugin) UpdateContainer(ctx context.Context, s *api.PodSandbox, c *api.Container, asked *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	l, ok := p.limits(ctx, "UpdateContainer", podOf(s), c)
	if !ok {
		return nil, nil
	}
	return appendUpdate(nil, &api.Container{Id: c.GetId(), Linux: &api.LinuxContainer{Resources: asked}}, changedValues(l, asked)), nil
}

// limits returns the values of a container. If they are not known in time, it
// records the container, and catchUp asks again.
func (p *plugin) limits(ctx context.Context, what string, pod Pod, c *api.Container) (Limits, bool) {
	l, answered := askWithin(ctx, p, p.Deadline, what, pod, func(ctx context.Context) (*Limits, error) {
		l, ok, err := p.Values.Container(ctx, pod, c.GetName())
		if err != nil || !ok {
			return nil, err
		}
		return &l, nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	times := p.open[c.GetId()].times
	delete(p.open, c.GetId())
	switch {
	case !answered:
		p.open[c.GetId()] = query{pod, c, times + 1}
		return Limits{}, false
	case l == nil:
		return Limits{}, false
	}
	fitting := p.fit(*l)
	p.ours[c.GetId()] = owned{pod.UID, fitting}
	return fitting, true
}

// On cgroup v1, fit removes the values that the plugin must not set there (see Options.V1).
func (p *plugin) fit(l Limits) Limits {
	if p.V1 {
		l.Quota, l.Period, l.Unified = nil, nil, nil
	}
	return l
}

// startDeadline returns how long the start of a container may wait.
func (p *plugin) startDeadline() time.Duration {
	drops := p.stub.RequestTimeout()
	if drops <= 0 { // an old runtime does not report this number
		drops = api.DefaultPluginRequestTimeout
	}
	return min(p.StartDeadline, drops*3/4)
}

// askWithin calls a function (ask) and waits for its answer, but only until the
// deadline.
func askWithin[T any](ctx context.Context, p *plugin, deadline time.Duration, what string, pod Pod, ask func(context.Context) (T, error)) (answer T, ok bool) {
	select {
	case p.slots <- struct{}{}:
	default:
		p.fail(what, pod, fmt.Errorf("%d requests wait already", maxWaiting))
		return answer, false
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	type reply struct {
		value T
		err   error
	}
	replies := make(chan reply, 1)
	go func() {
		defer func() { <-p.slots }()
		var r reply
		defer func() {
			if v := recover(); v != nil {
				r.err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
			replies <- r
		}()
		r.value, r.err = ask(ctx)
	}()
	select {
	case r := <-replies:
		if r.err != nil {
			p.fail(what, pod, r.err)
			return answer, false
		}
		return r.value, true
	case <-ctx.Done():
		p.fail(what, pod, fmt.Errorf("no answer within %v: %w", deadline, ctx.Err()))
		return answer, false
	}
}

func (p *plugin) fail(what string, pod Pod, err error) {
	p.Log.Warn("NRI: no change: the loop will write the values", "request", what, "pod", pod.String(), "error", err)
}

func podOf(s *api.PodSandbox) Pod {
	return Pod{
		Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUid(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		CgroupParent: s.GetLinux().GetCgroupParent(),
	}
}
