package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// leastRest is the least time between two requests to the kubelet, however
	// many cgroups come and go.
	leastRest = 500 * time.Millisecond
	// hurriedRest is the same where a container waits for the answer: the container
	// runtime gets no more than a fraction of a second for it.
	hurriedRest = 50 * time.Millisecond
	// askAtLatest bounds the wait before a kubelet that did not answer is asked
	// again.
	askAtLatest = 10 * time.Second
	// onceMore is the time from an answer that Look asked for to the next
	// request, because the cgroup of a container exists before its status.
	onceMore = 2 * time.Second
	// standIn is the silence of the kubelet after which the API server is
	// asked. A restart of the kubelet takes less.
	standIn = 30 * time.Second
	// factsEvery is the time between two reads of its configuration, because a
	// restart may change it. After a failure it is factsAgain, because until
	// then pods may be looked for in the wrong place.
	factsEvery = 5 * time.Minute
	factsAgain = 10 * time.Second
)

// A Kubelet returns the pods of its node. Client is the real one.
type Kubelet interface {
	Pods(context.Context) (pods []corev1.Pod, same bool, err error)
	Facts(context.Context) (Facts, error)
}

// A StandIn returns the pods of the node when the kubelet does not: the API
// server. It runs only while it is needed.
type StandIn interface {
	Run(context.Context)
	Objects() (pods []*corev1.Pod, known bool)
	Trouble() (heard time.Time, err error)
}

// Known is the last answer about the pods of a node.
type Known struct {
	// Pods are the pods of that answer. They must not be changed.
	Pods []corev1.Pod
	// At is the time of the last answer, and From its source: "kubelet" or "API
	// server". The zero At: there was no answer yet.
	At   time.Time
	From string
	// Facts are the kubelet's settings; the zero Facts until it has answered.
	Facts Facts
	// Trouble says why the pods are not asked for as they should be; empty: they
	// are. Pods are then as old as At.
	Trouble string
}

// A Source keeps the answer about the pods up to date.
type Source struct {
	kubelet Kubelet
	other   func(changed func()) StandIn // nil: there is no stand-in
	every   time.Duration
	log     *slog.Logger
	changed func()
	ask     chan struct{}
	hurry   chan struct{}

	mu    sync.Mutex // guards known
	known Known

	// Run's own.
	silent time.Time // since when the kubelet has not answered; zero: it does
	facts  time.Time // when they were read
	waited time.Duration
	second StandIn // nil: not needed
	stop   context.CancelFunc
	over   sync.WaitGroup
}

// NewSource asks a kubelet every so often, and at once when Look says so.
// Changed is called, from another goroutine, when the pods or the facts are
// others. Other makes what stands in for the kubelet; nil: nothing does.
func NewSource(k Kubelet, other func(changed func()) StandIn, every time.Duration, log *slog.Logger, changed func()) *Source {
	return &Source{kubelet: k, other: other, every: every, log: log, changed: changed, ask: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

// Look has the pods asked for soon. It never waits.
func (s *Source) Look() { wake(s.ask) }

// Hurry makes the source ask for the pods at once, because a caller waits for
// them. It returns at once.
func (s *Source) Hurry() { wake(s.hurry) }

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Known returns the last answer.
func (s *Source) Known() Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// Run asks until ctx ends.
func (s *Source) Run(ctx context.Context) {
	defer s.over.Wait()
	defer s.release()
	asked := false
	for {
		wait := s.turn(ctx)
		if asked {
			wait = min(wait, onceMore)
		}
		asked = false
		rest, answered := time.NewTimer(min(leastRest, wait)), time.Now()
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		case <-s.hurry:
			rest.Stop()
			asked = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(hurriedRest - time.Since(answered)):
			}
			continue
		}
		next := time.NewTimer(wait - min(leastRest, wait))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-s.ask:
			next.Stop()
			asked = true
		case <-s.hurry:
			next.Stop()
			asked = true
		case <-next.C:
		}
	}
}

// turn asks once, and returns how long to wait before the next time.
func (s *Source) turn(ctx context.Context) time.Duration {
	now := time.Now()
	pods, same, err := s.kubelet.Pods(ctx)
	if ctx.Err() != nil {
		return s.every
	}
	if err == nil {
		s.waited, s.silent = 0, time.Time{}
		if s.second != nil {
			s.log.Info("the kubelet tells its pods again")
		}
		s.release()
		s.learn(ctx, now)
		s.take(Known{Pods: pods, At: now, From: "kubelet"}, same)
		return s.every
	}
	if s.silent.IsZero() {
		s.silent = now
	}
	if s.other != nil && s.second == nil && (errors.Is(err, ErrRefused) || now.Sub(s.silent) >= standIn || s.unknown()) {
		s.log.Warn("the kubelet does not tell its pods; the API server is asked in its place", "error", err)
		s.replace(ctx)
	}
	s.stand(err)
	s.waited = min(max(2*s.waited, time.Second), askAtLatest)
	return s.waited
}

func (s *Source) unknown() bool { return s.Known().At.IsZero() }

// replace begins to ask the API server.
func (s *Source) replace(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	second := s.other(s.Look)
	s.second = second
	s.over.Go(func() { second.Run(ctx) })
}

// release ends that.
func (s *Source) release() {
	if s.second != nil {
		s.stop()
		s.second, s.stop = nil, nil
	}
}

// stand takes the answer of the API server while the kubelet fails.
func (s *Source) stand(failed error) {
	if s.second == nil {
		s.troubled(failed.Error() + s.asOf())
		return
	}
	pods, known := s.second.Objects()
	heard, err := s.second.Trouble()
	switch {
	case !known && err != nil:
		s.troubled(fmt.Sprintf("%v; and of the API server: %v%s", failed, err, s.asOf()))
		return
	case !known:
		return // it has just been asked
	}
	all := make([]corev1.Pod, len(pods))
	for i, p := range pods {
		all[i] = *p
	}
	next := Known{Pods: all, At: heard, From: "API server"}
	if err == nil {
		next.At = time.Now() // what it says it says at once
	} else {
		next.Trouble = fmt.Sprintf("%v; and of the API server: %v", failed, err)
	}
	s.take(next, false)
}

// asOf says how old what holds is.
func (s *Source) asOf() string {
	at := s.Known().At
	if at.IsZero() {
		return ""
	}
	return "; what was known at " + at.Format(time.TimeOnly) + " holds"
}

func (s *Source) troubled(text string) {
	s.mu.Lock()
	before := s.known.Trouble
	s.known.Trouble = text
	s.mu.Unlock()
	if before == "" {
		s.log.Warn("the pods of this node are not told; what is known of them holds", "error", text)
		s.changed()
	}
}

// take makes an answer the last one.
func (s *Source) take(next Known, same bool) {
	s.mu.Lock()
	before := s.known
	next.Facts = before.Facts
	s.known = next
	s.mu.Unlock()
	if before.Trouble != "" && next.Trouble == "" {
		s.log.Info("the pods of this node are told again", "from", next.From)
	}
	if !same || before.From != next.From || (before.Trouble == "") != (next.Trouble == "") {
		s.changed()
	}
}

// learn reads the kubelet's configuration now and then. If the kubelet does not
// offer it, the last one read stays.
func (s *Source) learn(ctx context.Context, now time.Time) {
	if !s.facts.IsZero() && now.Sub(s.facts) < factsEvery {
		return
	}
	facts, err := s.kubelet.Facts(ctx)
	if ctx.Err() != nil {
		return
	}
	s.facts = now
	if err != nil {
		if !errors.Is(err, ErrRefused) {
			s.facts = now.Add(factsAgain - factsEvery)
		}
		s.log.Warn("the kubelet does not tell its configuration: the cgroups of pods are looked for in the usual places", "error", err)
		return
	}
	s.mu.Lock()
	changed := s.known.Facts != facts
	s.known.Facts = facts
	s.mu.Unlock()
	if changed {
		s.changed()
	}
}
