package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/scheduler/inprocess"
)

// These are the names of the compared schedulers.
const (
	stock      = "stock"
	stockAgain = "stock again"
	withEmpty  = "empty plugin"
	withScore  = "empty score"
	withPlugin = "plugin"
)

var names = []string{stock, stockAgain, withEmpty, withScore, withPlugin}

// An arm is one scheduler with an API server of its own.
type arm struct {
	name  string
	nodes int
	api   *inprocess.API

	mu            sync.Mutex
	bound, gone   int           // number of pods that the scheduler's informer has seen bound, and deleted
	changed       chan struct{} // receives a value when one of the counters has changed
	without, word atomic.Int64  // bound pods that demand CPUs, without and with a choice of CPUs
	made          int
}

// enterMemory starts all schedulers.
func enterMemory(ctx context.Context, o options, nodes int) (measure, func(), error) {
	arms := map[string]*arm{}
	for _, name := range names {
		a, err := newArm(ctx, name, cluster(nodes, 2*nodes).withRefusing(o.refusing))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		arms[name] = a
	}
	return func(ctx context.Context, o options, scheduler string, share, round int) (block, error) {
		return arms[scheduler].block(ctx, o, share, round)
	}, func() {}, nil
}

// newArm starts a scheduler and waits until it knows the cluster.
func newArm(ctx context.Context, name string, c contents) (*arm, error) {
	a := &arm{name: name, nodes: len(c.nodes), api: inprocess.New(c.nodes, c.pods), changed: make(chan struct{}, 1)}
	factory, err := a.start(ctx, c)
	if err != nil {
		return nil, err
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { a.saw(before.(*corev1.Pod), after.(*corev1.Pod)) },
		DeleteFunc: func(any) { a.count(&a.gone) },
	})
	return a, err
}

func (a *arm) start(ctx context.Context, c contents) (informers.SharedInformerFactory, error) {
	switch a.name {
	case withEmpty:
		return inprocess.StartWith(ctx, a.api, emptyPlugin{filters: true})
	case withScore:
		return inprocess.StartWith(ctx, a.api, emptyPlugin{})
	case withPlugin:
		reports, err := inprocess.Serve(ctx, c.reports)
		if err != nil {
			return nil, err
		}
		return inprocess.Start(ctx, a.api, reports)
	}
	return inprocess.Start(ctx, a.api, nil)
}

func (a *arm) saw(before, after *corev1.Pod) {
	if before.Spec.NodeName != "" || after.Spec.NodeName == "" {
		return
	}
	if after.Annotations[kube.AnnotationCPUSetScheduler] != "" {
		if after.Annotations[kube.AnnotationCPUs] != "" {
			a.word.Add(1)
		} else {
			a.without.Add(1)
		}
	}
	a.count(&a.bound)
}

func (a *arm) count(n *int) {
	a.mu.Lock()
	*n++
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// await waits until a counter has reached n.
func (a *arm) await(ctx context.Context, what string, counter *int, n int) error {
	late := time.After(5 * time.Minute)
	for {
		a.mu.Lock()
		is := *counter
		a.mu.Unlock()
		if is >= n {
			return nil
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("%d of %d pods were %s after 5 minutes", is, n, what)
		}
	}
}

// block measures how fast pods are scheduled. It then deletes the pods, and
// waits until the process is idle. No block measures the deletion.
func (a *arm) block(ctx context.Context, o options, share, round int) (block, error) {
	pods := make([]*corev1.Pod, o.pods)
	asking := 0
	for i := range pods {
		asks := (i+1)*share/100 > i*share/100
		if asks {
			asking++
		}
		a.made++
		pods[i] = podOf(fmt.Sprintf("load-%d", a.made), asks)
	}
	a.bound, a.gone = 0, 0
	a.word.Store(0)
	a.without.Store(0)
	runtime.GC()
	if !o.collect {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, err := o.startProfile(fmt.Sprintf("%d-%d-%s-%d", a.nodes, share, strings.ReplaceAll(a.name, " ", "-"), round))
	if err != nil {
		return block{}, err
	}
	defer stop()
	begun, used := time.Now(), cpuTime()
	a.api.Create(pods)
	if err := a.await(ctx, "bound", &a.bound, len(pods)); err != nil {
		return block{}, err
	}
	wall, cpu := time.Since(begun), cpuTime()-used
	stop()
	runtime.ReadMemStats(&after)
	if a.name == withPlugin && int(a.word.Load()) != asking {
		return block{}, fmt.Errorf("%d of %d pods have their CPUs", a.word.Load(), asking)
	}
	a.api.Remove(pods)
	if err := a.await(ctx, "deleted", &a.gone, len(pods)); err != nil {
		return block{}, err
	}
	if err := awaitIdle(ctx); err != nil {
		return block{}, err
	}
	n := time.Duration(len(pods))
	return block{cpu: cpu / n, wall: wall / n, bytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n)}, nil
}

// awaitIdle waits until the process uses less than a twentieth of a CPU. It
// waits at most ten seconds.
func awaitIdle(ctx context.Context) error {
	const step = 20 * time.Millisecond
	for range int(10 * time.Second / step) {
		used := cpuTime()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
		if cpuTime()-used < step/20 {
			break
		}
	}
	return nil
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0 // getrusage has no error for RUSAGE_SELF
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
