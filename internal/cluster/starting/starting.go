// Package starting makes the start of a container wait for a tick of the
// agent's loop. It keeps the containers that the container runtime is about to
// start, until the kubelet has reported their ids.
package starting

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
)

const (
	// MaxWait is the maximum time for which the start of a container waits for a
	// tick. In a storm of events, the loop rests after each tick: for 320 ms if
	// the last ticks wrote nothing, and longer after a long tick. A wait that
	// ended during such a rest would start the container without its limits.
	// MaxWait is below nri.DefaultStartDeadline, so that a busy loop does not
	// cause a warning for each container.
	MaxWait = 900 * time.Millisecond
	// answering is the time that remains until the deadline of a start when the
	// wait ends. The plugin then answers in time, and logs no warning, even if
	// the runtime waits less than usual or the pod became known late.
	answering = 50 * time.Millisecond
	// reportLimit is the time that Tenon waits until the kubelet itself reports
	// the id of a container.
	reportLimit = time.Minute
)

// Containers holds the containers that the runtime is about to start. The path
// of a container's cgroup depends on the id of the container, and the kubelet
// reports this id only some time after the start. Several goroutines may call
// the methods.
type Containers struct {
	wake func() // starts a tick soon

	mu sync.Mutex
	of map[string][]container // by UID of the pod
	// The first tick that begins from now on closes the channel next at its end.
	// The tick that runs now closes current. If no tick runs, current is nil.
	next, current chan struct{}
}

type container struct {
	name, id string
	since    time.Time
}

// New returns an empty list. wake starts a tick soon, and does not block.
func New(wake func()) *Containers {
	return &Containers{wake: wake, of: map[string][]container{}, next: make(chan struct{})}
}

// Await adds a container of the pod with the given UID. name is the name of the
// container in the pod's spec. id is its id in the form that the kubelet
// reports (containerd://0123abcd). Await returns when a tick that saw the
// container has ended. It also returns after MaxWait, when ctx ends, or shortly
// before the deadline of ctx.
func (s *Containers) Await(ctx context.Context, uid, name, id string) {
	wait := MaxWait
	if end, ends := ctx.Deadline(); ends {
		wait = min(wait, time.Until(end)-answering)
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

// Begin marks the beginning of a tick. The tick must not have read the pods
// yet.
func (s *Containers) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		s.current, s.next = s.next, make(chan struct{})
	}
}

// End marks the end of a tick. The tick must have made its writes.
func (s *Containers) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		close(s.current)
		s.current = nil
	}
}

// AddTo adds to the list of pods the ids of the containers that are about to start.
// It does not change a pod in place: the list gets a changed copy. It forgets a
// container when the kubelet has reported its id, or a minute after its start.
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
