package daemon

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
	// refusedFor is for how long a pod is spared whose eviction was refused, and
	// busyFor where the API server could not say: it did not get that far.
	refusedFor = 30 * time.Second
	busyFor    = 5 * time.Second
	// attempts is how often an eviction is asked for before the API server
	// counts as away, attemptEvery apart: memory does not wait for long.
	attempts     = 2
	attemptEvery = 500 * time.Millisecond
	// awayAfter is for how long the API server must not have been heard before it
	// counts as away without being asked.
	awayAfter = 30 * time.Second
	// mostEnds is how many evictions may wait to be asked for.
	mostEnds = 64
)

// An evictor ends pods by the API server: apiserver.Client.
type evictor interface {
	Evict(context.Context, apiserver.PodName) error
	Tell(context.Context, apiserver.Occurrence) error
}

// ends ends pods that are to end: by the Eviction API, which respects disruption
// budgets and graces, and while the API server is away as on a node without one.
// It asks beside the loop, which never waits for an answer.
type ends struct {
	api     evictor
	node    string
	log     *slog.Logger
	changed func()
	signal  func(context.Context, plan.Step) error // ends what the API server cannot
	prepare func(node.Knob) error                  // lets a pod run, so that it can end
	away    func() bool                            // nobody has heard the API server for long
	queue   chan eviction

	mu   sync.Mutex // guards the rest
	pods map[node.CgroupPath]endable
	of   map[types.UID]*end
	told map[refusal]bool // in an event
}

// A refusal is why the API server did not evict a pod.
type refusal struct {
	uid    types.UID
	reason metav1.StatusReason
}

// An endable pod is one that the API server can evict.
type endable struct {
	apiserver.PodName
	grace time.Duration // that it has then, with what the kubelet needs to see to it
}

// An end is how far a pod is on its way to its end.
type end struct {
	state endState
	until time.Time // accepted: then its grace is over; refused: until then it is spared
	why   string    // refused
}

type endState int

const (
	endAsking   endState = iota // nobody has answered yet
	endAccepted                 // the pod gets its grace from the kubelet
	endRefused                  // by its budget, or by the API server's rules
	endAway                     // the API server does not answer
)

// An eviction is one that is to be asked for.
type eviction struct {
	pod  endable
	step plan.Step
}

func newEnds(api evictor, name string, log *slog.Logger, changed func()) *ends {
	return &ends{
		api: api, node: name, log: log, changed: changed, away: func() bool { return false }, queue: make(chan eviction, mostEnds),
		of: map[types.UID]*end{}, told: map[refusal]bool{},
	}
}

// follow takes the pods that there are now.
func (e *ends) follow(pods map[node.CgroupPath]endable) {
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

// spared says why a pod may not be evicted now; empty: it may.
func (e *ends) spared(uid types.UID) string {
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

// take reports whether a step is to end a pod and was taken care of; the node
// itself is to do it otherwise.
func (e *ends) take(s plan.Step) (taken bool, err error) {
	v, runs := s.To.(node.Run)
	if !runs || !v.Ends() && v != node.Frozen {
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
		return true, fmt.Errorf("freeze pod %s/%s: it was evicted, and has to run in order to end", pod.Namespace, pod.Name)
	}
	switch {
	case o == nil:
		select {
		case e.queue <- eviction{pod, s}:
			e.of[pod.UID] = &end{}
		default:
			return true, fmt.Errorf("evict pod %s/%s: %d evictions wait for the API server", pod.Namespace, pod.Name, mostEnds)
		}
		return true, nil
	case o.state == endRefused:
		return true, fmt.Errorf("evict pod %s/%s: %s", pod.Namespace, pod.Name, o.why)
	case o.state == endAsking:
		return true, nil
	case o.state == endAccepted && time.Now().Before(o.until):
		return true, fmt.Errorf("end pod %s/%s: it was evicted, and its grace is not over before %s", pod.Namespace, pod.Name, o.until.Format(time.TimeOnly))
	}
	// What is left after its grace, the kubelet has not ended.
	return false, nil
}

// run asks for the evictions until ctx ends.
func (e *ends) run(ctx context.Context) {
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

// end asks for one eviction.
func (e *ends) end(ctx context.Context, x eviction) {
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
		// What the kubelet asks to end is frozen as yet, if it was what grew.
		if err := e.prepare(x.step.Knob); err != nil && !errors.Is(err, cgroup.ErrGone) {
			e.log.Error("an evicted pod may not end by itself: it does not run", "pod", name, "error", err)
		}
		e.tell(ctx, x.pod.PodName, "Evicted", x.step.Reason)
	case answered(err):
		why := "its eviction was refused: " + err.Error()
		if errors.Is(err, apiserver.ErrBudget) {
			why = "its PodDisruptionBudget allows no eviction now"
		}
		spared := sparedFor(err)
		e.set(x.pod.UID, end{state: endRefused, until: time.Now().Add(spared), why: why})
		e.log.Warn("a pod is not evicted", "pod", name, "why", why, "reason", x.step.Reason)
		if e.first(refusal{x.pod.UID, apierrors.ReasonForError(err)}) {
			e.tell(ctx, x.pod.PodName, "EvictionRefused", why+"; asked for because: "+x.step.Reason)
		}
		e.changed()
		// It may be asked again when that is over.
		time.AfterFunc(spared+time.Second, e.changed)
	default:
		e.set(x.pod.UID, end{state: endAway})
		e.log.Error("the API server does not answer: the pod is ended by signals", "pod", name, "error", err, "reason", x.step.Reason)
		if err := e.signal(ctx, x.step); err != nil {
			e.log.Error("end a pod by signals", "pod", name, "error", err)
		}
	}
}

// errAway means that the API server was not asked.
var errAway = fmt.Errorf("it has not been heard for %v", awayAfter)

// awayBy reports whether a watch has not heard the API server for long. One that
// answers, whatever it says, is there.
func awayBy(heard time.Time, trouble error, now time.Time) bool {
	return trouble != nil && !answered(trouble) && !heard.IsZero() && now.Sub(heard) > awayAfter
}

// answered reports whether an error is an answer of the API server, whatever it
// says: then it is there, and the pod's budget holds. It says 500 of a pod with
// two budgets, and 429, 503 or 504 when it is busy.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, apiserver.ErrBudget) || errors.As(err, &status)
}

// sparedFor is for how long a pod is left alone after such an answer.
func sparedFor(err error) time.Duration {
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

// first reports whether a refusal is the first of its pod for that reason: a
// budget may refuse for days, and each event is an object of its own.
func (e *ends) first(r refusal) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.told[r]
	e.told[r] = true
	return !before
}

func (e *ends) set(uid types.UID, next end) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[uid] != nil { // else it is gone
		*e.of[uid] = next
	}
}

func (e *ends) tell(ctx context.Context, pod apiserver.PodName, reason, message string) {
	err := e.api.Tell(ctx, apiserver.Occurrence{Pod: pod, Node: e.node, Warning: true, Reason: reason, Message: message, At: time.Now()})
	if err != nil && ctx.Err() == nil {
		e.log.Warn("an event is missing", "error", err)
	}
}
