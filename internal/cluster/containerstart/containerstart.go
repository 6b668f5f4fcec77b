// Package containerstart delays the start of a container until a tick of the
// agent's loop has handled it. It keeps the ids of starting containers until
// the kubelet reports them.
package containerstart

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

const (
	// MaxWait is the maximum time for which a container waits for a tick. During
	// many events, the loop rests after each tick: for 320 ms if the last ticks
	// wrote nothing, and longer after a long tick. If MaxWait passed during such a
	// rest, the container would start without its limits. MaxWait is below
	// nri.DefaultStartDeadline, so that a busy loop does not cause a warning for
	// each container.
	MaxWait = 900 * time.Millisecond
	// answerMargin is the time between the end of a wait and the deadline of the
	// start. The plugin needs this time for its answer. So it need not warn, even
	// if the runtime waits less than usual or the pod became known late.
	answerMargin = 50 * time.Millisecond
	// reportLimit is the maximum time for which Tenon keeps the id of a container
	// that the kubelet has not reported itself.
	reportLimit = time.Minute
)

// Containers holds the containers that the runtime is about to start. A
// container's id is a part of its cgroup's path, but the kubelet reports the id
// only some time after the start. Several goroutines may call the methods.
type Containers struct {
	wake  func()    // starts a tick soon
	waits allowance // of all containers

	mu sync.Mutex
	of map[string][]container // by UID of the pod
	// next is closed at the end of the next tick, and current at the end of
	// the running tick. current is nil while no tick runs.
	next, current chan struct{}
}

type container struct {
	name, id string
	since    time.Time
}

// New returns an empty list. wake must start a tick soon, without blocking.
func New(wake func()) *Containers {
	return &Containers{wake: wake, of: map[string][]container{}, next: make(chan struct{})}
}

// Await adds a container of the pod with the given UID. name is the container's
// name in the pod's spec. id is its id in the form of the kubelet
// (containerd://0123abcd). Await returns at the end of a tick that began after
// the call. It returns at the latest after MaxWait, at the end of ctx, or
// shortly before the deadline of ctx.
func (s *Containers) Await(ctx context.Context, uid, name, id string) {
	wait := MaxWait
	if end, ends := ctx.Deadline(); ends {
		wait = min(wait, time.Until(end)-answerMargin)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s.mu.Lock()
	others := slices.DeleteFunc(s.of[uid], func(o container) bool { return o.name == name })
	s.of[uid] = append(others, container{name, id, time.Now()})
	ended := s.next
	s.mu.Unlock()
	s.wake()
	select {
	case <-ctx.Done():
	case <-ended:
	}
}

// Begin marks the beginning of a tick. The tick must call it before it reads
// the pods.
func (s *Containers) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.current, s.next = s.next, make(chan struct{})
	}
}

// End marks the end of a tick. The tick must call it after its writes.
func (s *Containers) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		close(s.current)
		s.current = nil
	}
}

// AddTo adds the ids of the starting containers to a list of pods. It replaces a
// changed pod by a copy. It forgets a container a minute after its start, or
// earlier if the kubelet has reported the id.
func (s *Containers) AddTo(pods []corev1.Pod, now time.Time) []corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, all := range s.of {
		s.keep(uid, slices.DeleteFunc(all, func(c container) bool { return now.Sub(c.since) > reportLimit }))
	}
	for i := range pods {
		uid := kube.UID(&pods[i])
		waiting, known := s.of[uid]
		if !known {
			continue
		}
		pod := pods[i].DeepCopy()
		s.keep(uid, slices.DeleteFunc(waiting, func(c container) bool { return !kube.AddContainer(pod, c.name, c.id) }))
		pods[i] = *pod
	}
	return pods
}

func (s *Containers) keep(uid string, all []container) {
	if s.of[uid] = all; len(all) == 0 {
		delete(s.of, uid)
	}
}
