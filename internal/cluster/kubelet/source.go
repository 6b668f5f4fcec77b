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
	// minRest is the minimum time between two requests to the kubelet, even
	// if cgroups change more often.
	minRest = 500 * time.Millisecond
	// hurriedRest replaces minRest if a container waits for the answer. It is
	// shorter, because the container runtime waits only a fraction of a second.
	hurriedRest = 50 * time.Millisecond
	// askAtLatest is the maximum time between two requests while the kubelet
	// does not answer.
	askAtLatest = 10 * time.Second
	// repeatAfter is the time between the answer to a request of Look and a second
	// request. A container gets its cgroup before its status, so the first answer
	// may lack the container.
	repeatAfter = 2 * time.Second
	// standInAfter is the time without an answer of the kubelet after which the
	// API server replaces it. A restart of the kubelet takes less time.
	standInAfter = 30 * time.Second
	// factsEvery is the time between two reads of the kubelet's configuration,
	// which may change when the kubelet restarts. After a failed read, the time is
	// factsAgain, because Tenon may look for pods in the wrong cgroups if its
	// facts are old.
	factsEvery = 5 * time.Minute
	factsAgain = 10 * time.Second
)

// A Kubelet returns the pods of its node. Client is the real implementation.
type Kubelet interface {
	Pods(context.Context) (pods []corev1.Pod, same bool, err error)
	Facts(context.Context) (Facts, error)
	Files() (Files, error)
}

// A StandIn returns the pods of the node while the kubelet does not answer. The
// real stand-in watches the API server, and runs only while it is needed.
type StandIn interface {
	Run(context.Context)
	Objects() (pods []*corev1.Pod, known bool)
	Trouble() (heard time.Time, err error)
}

// A Known is the present knowledge of a Source about the pods of a node.
type Known struct {
	// Pods are the pods of the last answer. The caller must not change them.
	Pods []corev1.Pod
	// At is the time of the last answer, and zero before the first answer. From is
	// the source of that answer: "kubelet" or "API server".
	At   time.Time
	From string
	// Facts are the known settings of the kubelet.
	Facts Facts
	// Trouble is the error of the last request, or empty. With an error, the list
	// Pods is from the time At.
	Trouble string
}

// A Source keeps the list of pods up to date.
type Source struct {
	kubelet Kubelet
	other   func(changed func()) StandIn // makes the stand-in; nil: there is no stand-in
	every   time.Duration
	log     *slog.Logger
	changed func()
	ask     chan struct{}
	hurry   chan struct{}

	mu    sync.Mutex // guards known
	known Known

	// Only Run uses the fields below.
	silent time.Time // time since which the kubelet has not answered; zero: it answers
	facts  time.Time // time of the last read of the facts
	unread string    // the last error of the files
	waited time.Duration
	second StandIn // the running stand-in; nil: it is not needed
	stop   context.CancelFunc
	over   sync.WaitGroup
}

// NewSource returns a source that reads the pods from a kubelet once per
// interval (every), and also when Look is called. When the pods or the facts
// are new, another goroutine calls changed. other makes the stand-in for the
// kubelet. If other is nil, there is no stand-in.
func NewSource(k Kubelet, other func(changed func()) StandIn, every time.Duration, log *slog.Logger, changed func()) *Source {
	return &Source{kubelet: k, other: other, every: every, log: log, changed: changed, ask: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
}

// Assume sets facts that are known before the first read, such as those of an
// earlier process. It must be called before Run.
func (s *Source) Assume(f Facts) { s.known.Facts = f }

// Look requests a new list of pods. It returns at once.
func (s *Source) Look() { wake(s.ask) }

// Hurry requests a new list of pods without delay, for a container that waits
// for the list. It returns at once.
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

// Run reads the pods until ctx ends.
func (s *Source) Run(ctx context.Context) {
	defer s.over.Wait()
	defer s.release()
	asked := false
	for {
		wait := s.turn(ctx)
		if asked {
			wait = min(wait, repeatAfter)
		}
		asked = false
		rest, answered := time.NewTimer(min(minRest, wait)), time.Now()
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
		next := time.NewTimer(wait - min(minRest, wait))
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

// turn makes one request, and returns the time to wait before the next one.
func (s *Source) turn(ctx context.Context) time.Duration {
	now := time.Now()
	pods, same, err := s.kubelet.Pods(ctx)
	if ctx.Err() != nil {
		return s.every
	}
	if err == nil {
		s.waited, s.silent = 0, time.Time{}
		if s.second != nil {
			s.log.Info("the kubelet lists its pods again")
		}
		s.release()
		s.learn(ctx, now)
		s.take(Known{Pods: pods, At: now, From: "kubelet"}, same)
		return s.every
	}
	if s.silent.IsZero() {
		s.silent = now
	}
	if s.other != nil && s.second == nil && (errors.Is(err, ErrRefused) || now.Sub(s.silent) >= standInAfter || s.unknown()) {
		s.log.Warn("the kubelet does not list its pods; reading them from the API server", "error", err)
		s.replace(ctx)
	}
	if errors.Is(err, ErrRefused) {
		s.learn(ctx, now)
	}
	if s.second != nil { // read the files before the pods, so that Tenon takes no CPUs from a kubelet that binds them
		s.store(nil, s.readFiles())
	}
	s.stand(err)
	s.waited = min(max(2*s.waited, time.Second), askAtLatest)
	return s.waited
}

func (s *Source) unknown() bool { return s.Known().At.IsZero() }

// replace starts the stand-in for the kubelet.
func (s *Source) replace(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	second := s.other(s.Look)
	s.second = second
	s.over.Go(func() { second.Run(ctx) })
}

// release stops the stand-in.
func (s *Source) release() {
	if s.second != nil {
		s.stop()
		s.second, s.stop = nil, nil
	}
}

// stand takes the pods from the stand-in, because the kubelet failed.
func (s *Source) stand(failed error) {
	if s.second == nil {
		s.troubled(failed.Error() + s.listAge())
		return
	}
	pods, known := s.second.Objects()
	heard, err := s.second.Trouble()
	switch {
	case !known && err != nil:
		s.troubled(fmt.Sprintf("%v; and from the API server: %v%s", failed, err, s.listAge()))
		return
	case !known:
		return // the stand-in has only just started
	}
	all := make([]corev1.Pod, len(pods))
	for i, p := range pods {
		all[i] = *p
	}
	next := Known{Pods: all, At: heard, From: "API server"}
	if err == nil {
		next.At = time.Now() // without an error, its list is current
	} else {
		next.Trouble = fmt.Sprintf("%v; and from the API server: %v", failed, err)
	}
	s.take(next, false)
}

// listAge describes the age of the present list of pods, for a message.
func (s *Source) listAge() string {
	at := s.Known().At
	if at.IsZero() {
		return ""
	}
	return "; using the pods known at " + at.Format(time.TimeOnly)
}

func (s *Source) troubled(text string) {
	s.mu.Lock()
	before := s.known.Trouble
	s.known.Trouble = text
	s.mu.Unlock()
	if before == "" {
		s.log.Warn("cannot list the pods of this node; using the last list", "error", text)
		s.changed()
	}
}

// take stores a new answer.
func (s *Source) take(next Known, same bool) {
	s.mu.Lock()
	before := s.known
	next.Facts = before.Facts
	s.known = next
	s.mu.Unlock()
	if before.Trouble != "" && next.Trouble == "" {
		s.log.Info("the pods of this node are listed again", "from", next.From)
	}
	if !same || before.From != next.From || (before.Trouble == "") != (next.Trouble == "") {
		s.changed()
	}
}

// learn reads the configuration of the kubelet again if the last read is old.
// If the read fails, the last configuration stays.
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
		s.log.Warn("the kubelet does not provide its configuration; looking for the cgroups of pods in the last known or the default places", "error", err)
		s.store(nil, s.readFiles())
		return
	}
	s.store(&facts, s.readFiles())
}

// readFiles reads the kubelet's files, which tell who binds CPUs.
func (s *Source) readFiles() Files {
	files, err := s.kubelet.Files()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.unread {
		s.log.Warn("the files of the kubelet do not say who binds CPUs", "error", err)
	}
	s.unread = text
	return files
}

// store stores new facts. A fact that could not be read keeps its value,
// because it has probably not changed.
func (s *Source) store(configuration *Facts, files Files) {
	s.mu.Lock()
	before := s.known.Facts
	next := before
	switch {
	case configuration != nil:
		next = *configuration
		next.CPUDriver = before.CPUDriver
	case files.Policy != "":
		next.CPUManagerPolicy = files.Policy
	}
	if files.DriverRead {
		next.CPUDriver = files.Driver
	}
	s.known.Facts = next
	s.mu.Unlock()
	if next != before {
		s.changed()
	}
}
