package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// refusedFor is the time for which a pod stays exempt from eviction after the
	// API server refused to evict it. After a temporary error, such as 429, this
	// time is busyFor.
	refusedFor = 30 * time.Second
	busyFor    = 5 * time.Second
	// attempts is the maximum number of requests for an eviction, and attemptEvery
	// the time between them. Without an answer, Tenon then treats the API server
	// as away. Both are small, because a shortage of memory is urgent.
	attempts     = 2
	attemptEvery = 500 * time.Millisecond
	// awayAfter is the time without an answer after which Tenon treats the API
	// server as away, and sends it no evictions.
	awayAfter = 30 * time.Second
	// maxEnds is the maximum number of evictions that wait in the queue.
	maxEnds = 64
)

// An evictor evicts pods through the API server. apiserver.Client implements it.
type evictor interface {
	Evict(context.Context, apiserver.PodName) error
	Tell(context.Context, apiserver.Occurrence) error
}

// An evictionQueue sends evictions to the Eviction API, which respects
// disruption budgets and grace periods. While the API server is away, the agent
// sends signals to the processes instead, as it does without a cluster. The
// queue has its own goroutine, so the loop never waits for an answer.
type evictionQueue struct {
	api     evictor
	node    string
	log     *slog.Logger
	changed func()
	signal  func(context.Context, plan.Step) error // ends the processes of a pod by signals
	prepare func(node.Knob) error                  // makes a pod able to end, for example thaws it
	away    func() bool                            // reports whether the API server has been silent for awayAfter
	queue   chan eviction

	mu   sync.Mutex // guards the fields below
	pods map[node.CgroupPath]evictablePod
	of   map[types.UID]*end
	told map[refusal]bool // refusals that were reported in an event
}

// A refusal is the API server's reason not to evict a pod.
type refusal struct {
	uid    types.UID
	reason metav1.StatusReason
}

// An evictablePod is a pod that the API server can evict.
type evictablePod struct {
	apiserver.PodName
	grace time.Duration // the grace period of the pod plus graceMargin
}

// An end is the state of one pod's eviction.
type end struct {
	state endState
	until time.Time // accepted: end of the grace period; refused: end of the exemption
	why   string    // the reason of a refusal
}

type endState int

const (
	endAsking   endState = iota // no answer yet
	endAccepted                 // the kubelet ends the pod within its grace period
	endRefused                  // a disruption budget or a rule of the API server refused
	endAway                     // the API server did not answer this request
)

// An eviction is one entry of the queue.
type eviction struct {
	pod  evictablePod
	step plan.Step
}

func newEnds(api evictor, name string, log *slog.Logger, changed func()) *evictionQueue {
	return &evictionQueue{
		api: api, node: name, log: log, changed: changed, away: func() bool { return false }, queue: make(chan eviction, maxEnds),
		of: map[types.UID]*end{}, told: map[refusal]bool{},
	}
}

// follow replaces the list of the node's pods, and forgets pods that are gone.
func (e *evictionQueue) follow(pods map[node.CgroupPath]evictablePod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods = pods
	there := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		there[p.UID] = true
	}
	for uid := range e.of {
		if !there[uid] {
			delete(e.of, uid)
		}
	}
	maps.DeleteFunc(e.told, func(r refusal, _ bool) bool { return !there[r.uid] })
}

// exempt returns the reason why a pod must not be evicted now, or "".
func (e *evictionQueue) exempt(uid types.UID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.of[uid]
	if o == nil || o.state != endRefused {
		return ""
	}
	if time.Now().After(o.until) {
		delete(e.of, uid)
		return ""
	}
	return o.why
}

// take accepts a step that freezes or ends a pod. If it returns false, the
// caller must perform the step itself.
func (e *evictionQueue) take(s plan.Step) (taken bool, err error) {
	v, runs := s.To.(node.Run)
	if !runs || !v.EndsProcesses() && v != node.Frozen {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	pod, is := e.pods[s.Knob.Cgroup]
	if !is {
		return false, nil
	}
	o := e.of[pod.UID]
	if v == node.Frozen {
		if o == nil || o.state != endAccepted {
			return false, nil
		}
		return true, fmt.Errorf("freeze pod %s/%s: it was evicted and cannot end while it is frozen", pod.Namespace, pod.Name)
	}
	if o != nil && o.state == endAway && v == node.AskedToEnd {
		// This is a new request, perhaps days after the API server was away: the pod
		// has started again in the same cgroup. Only the kill after a request that
		// went by signals goes by signals, too.
		delete(e.of, pod.UID)
		o = nil
	}
	switch {
	case o == nil:
		select {
		case e.queue <- eviction{pod, s}:
			e.of[pod.UID] = &end{}
		default:
			return true, fmt.Errorf("evict pod %s/%s: %d evictions wait for the API server", pod.Namespace, pod.Name, maxEnds)
		}
		return true, nil
	case o.state == endRefused:
		return true, fmt.Errorf("evict pod %s/%s: %s", pod.Namespace, pod.Name, o.why)
	case o.state == endAsking:
		return true, nil
	case o.state == endAccepted && time.Now().Before(o.until):
		return true, fmt.Errorf("end pod %s/%s: it was evicted, and its grace period ends at %s", pod.Namespace, pod.Name, o.until.Format(time.TimeOnly))
	}
	// The grace period is over, or the API server was away, and some processes are
	// left. The caller kills them.
	return false, nil
}

// run sends the evictions until ctx ends.
func (e *evictionQueue) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-e.queue:
			asking.Go(func() { e.end(ctx, x) })
		}
	}
}

// end sends one eviction, and stores the answer.
func (e *evictionQueue) end(ctx context.Context, x eviction) {
	var err error
	for n := range attempts {
		if err = errAway; e.away() {
			break
		}
		if n > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(attemptEvery):
			}
		}
		if err = e.api.Evict(ctx, x.pod.PodName); err == nil || answered(err) {
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	name := x.pod.Namespace + "/" + x.pod.Name
	switch {
	case err == nil:
		e.set(x.pod.UID, end{state: endAccepted, until: time.Now().Add(x.pod.grace)})
		e.log.Warn("pod evicted", "pod", name, "reason", x.step.Reason)
		// The pod may be frozen because its memory grew, but a frozen process does
		// not handle SIGTERM.
		if err := e.prepare(x.step.Knob); err != nil && !errors.Is(err, cgroup.ErrGone) {
			e.log.Error("an evicted pod may not end by itself, because it cannot be thawed", "pod", name, "error", err)
		}
		e.tell(ctx, x.pod.PodName, "Evicted", x.step.Reason)
	case answered(err):
		why := "its eviction was refused: " + err.Error()
		if errors.Is(err, apiserver.ErrBudget) {
			why = "its PodDisruptionBudget allows no eviction now"
		}
		spared := exemptFor(err)
		e.set(x.pod.UID, end{state: endRefused, until: time.Now().Add(spared), why: why})
		e.log.Warn("a pod is not evicted", "pod", name, "why", why, "reason", x.step.Reason)
		if e.isFirst(refusal{x.pod.UID, apierrors.ReasonForError(err)}) {
			e.tell(ctx, x.pod.PodName, "EvictionRefused", why+"; reason of the eviction: "+x.step.Reason)
		}
		e.changed()
		// After this time, Tenon may try to evict the pod again.
		time.AfterFunc(spared+time.Second, e.changed)
	default:
		e.set(x.pod.UID, end{state: endAway})
		e.log.Error("the API server does not answer: the pod is ended by signals", "pod", name, "error", err, "reason", x.step.Reason)
		if err := e.signal(ctx, x.step); err != nil {
			e.log.Error("end a pod by signals", "pod", name, "error", err)
		}
	}
}

// errAway means that Tenon sent no eviction, because the API server is away.
var errAway = fmt.Errorf("the API server has been silent for %v", awayAfter)

// awayBy reports whether the API server has not answered for longer than awayAfter. An
// error from the server is an answer, too. heard is the time of the last answer.
func awayBy(heard time.Time, trouble error, now time.Time) bool {
	return trouble != nil && !answered(trouble) && !heard.IsZero() && now.Sub(heard) > awayAfter
}

// answered reports whether err is an answer of the API server. Then the server
// is up, and its refusal protects the disruption budget of the pod. 500 (a pod
// with two budgets) and 429, 503 and 504 (the server is busy) are also answers.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, apiserver.ErrBudget) || errors.As(err, &status)
}

// exemptFor returns how long a pod stays exempt from eviction after the refusal err.
func exemptFor(err error) time.Duration {
	busy := apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsConflict(err)
	if errors.Is(err, apiserver.ErrBudget) || !busy {
		return refusedFor
	}
	if seconds, says := apierrors.SuggestsClientDelay(err); says {
		return min(max(time.Duration(seconds)*time.Second, busyFor), refusedFor)
	}
	return busyFor
}

// isFirst reports whether this is the pod's first refusal with this reason.
// Tenon writes an event only for the first one: a budget may refuse for days,
// and each event is an object in the API server.
func (e *evictionQueue) isFirst(r refusal) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.told[r]
	e.told[r] = true
	return !before
}

func (e *evictionQueue) set(uid types.UID, next end) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[uid] != nil { // otherwise the pod is gone
		*e.of[uid] = next
	}
}

func (e *evictionQueue) tell(ctx context.Context, pod apiserver.PodName, reason, message string) {
	err := e.api.Tell(ctx, apiserver.Occurrence{Pod: pod, Node: e.node, Warning: true, Reason: reason, Message: message, At: time.Now()})
	if err != nil && ctx.Err() == nil {
		e.log.Warn("an event is missing", "error", err)
	}
}
