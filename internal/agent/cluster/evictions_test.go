package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// A judge is an evictor whose answers a test sets.
type judge struct {
	mu     sync.Mutex
	err    error
	asked  int
	events []apiserver.Occurrence
}

func (j *judge) Evict(context.Context, apiserver.PodName) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked++
	return j.err
}

func (j *judge) Tell(_ context.Context, o apiserver.Occurrence) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, o)
	return nil
}

func (j *judge) told() (asked int, events []apiserver.Occurrence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked, append([]apiserver.Occurrence(nil), j.events...)
}

const jobGroup = node.CgroupPath("kubepods/besteffort/poda")

func endStep(v node.Run) plan.Step {
	return plan.Step{Knob: node.Knob{Cgroup: jobGroup, File: node.FileRun}, From: node.Running, To: v, Owner: plan.OwnerEvict, Reason: "memory: 7000 MiB of 8000 MiB are in use", BE: true}
}

// court makes an evictionQueue with one pod, which has the given grace period.
// signalled returns the number of steps that the queue left to the node. The
// node sends signals.
func court(t *testing.T, j *judge, grace time.Duration) (e *evictionQueue, signalled func() int) {
	t.Helper()
	e = newEnds(j, "node-1", slog.New(slog.DiscardHandler), func() {})
	e.follow(map[node.CgroupPath]evictablePod{jobGroup: {apiserver.PodName{Namespace: "b", Name: "job", UID: "u"}, grace}})
	var mu sync.Mutex
	n := 0
	e.prepare = func(node.Knob) error { return nil }
	e.signal = func(context.Context, plan.Step) error { mu.Lock(); defer mu.Unlock(); n++; return nil }
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); e.run(ctx) }()
	t.Cleanup(func() { stop(); <-over })
	return e, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s: " + what)
		}
	}
}

func TestAPodIsEvictedOnceAndHasItsGrace(t *testing.T) {
	j := &judge{}
	e, signalled := court(t, j, time.Hour)
	if taken, err := e.take(endStep(node.AskedToEnd)); !taken || err != nil {
		t.Fatalf("taken %v, %v", taken, err)
	}
	soon(t, "the event", func() bool { _, events := j.told(); return len(events) == 1 })
	if _, events := j.told(); events[0].Reason != "Evicted" || !strings.Contains(events[0].Message, "7000 MiB") {
		t.Errorf("%+v", events)
	}
	if taken, err := e.take(endStep(node.Ended)); !taken || err == nil {
		t.Errorf("a kill within the grace period: taken %v, %v", taken, err)
	}
	if asked, _ := j.told(); asked != 1 || signalled() != 0 {
		t.Errorf("asked %d times, signalled %d", asked, signalled())
	}
}

func TestWhatIsLeftAfterItsGraceIsKilled(t *testing.T) {
	e, _ := court(t, &judge{}, time.Nanosecond)
	_, _ = e.take(endStep(node.AskedToEnd))
	soon(t, "the node does it itself", func() bool { taken, _ := e.take(endStep(node.Ended)); return !taken })
}

func TestABudgetSparesAPod(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "job", errors.New("no"))
	for name, err := range map[string]error{"budget": fmt.Errorf("evict: %w", apiserver.ErrBudget), "permission": forbidden} {
		j := &judge{err: err}
		e, signalled := court(t, j, time.Nanosecond)
		_, _ = e.take(endStep(node.AskedToEnd))
		soon(t, "the refusal is known", func() bool { return e.exempt("u") != "" })
		if taken, err := e.take(endStep(node.Ended)); !taken || err == nil {
			t.Errorf("%s: taken %v, %v", name, taken, err)
		}
		soon(t, "the event", func() bool { _, events := j.told(); return len(events) == 1 })
		if asked, events := j.told(); asked != 1 || events[0].Reason != "EvictionRefused" || signalled() != 0 {
			t.Errorf("%s: asked %d times, %+v, signalled %d", name, asked, events, signalled())
		}
		e.mu.Lock()
		e.of["u"].until = time.Now().Add(-time.Second)
		e.mu.Unlock()
		if why := e.exempt("u"); why != "" {
			t.Errorf("%s: the pod stays exempt forever: %s", name, why)
		}
	}
}

func TestWithoutAPIServerPodsEndBySignals(t *testing.T) {
	j := &judge{err: errors.New("dial tcp: connection refused")}
	e, signalled := court(t, j, time.Hour)
	_, _ = e.take(endStep(node.AskedToEnd))
	soon(t, "the node asks by itself", func() bool { return signalled() == 1 })
	if taken, _ := e.take(endStep(node.Ended)); taken {
		t.Error("the pod is not killed after its grace period")
	}
	if asked, _ := j.told(); asked != attempts {
		t.Errorf("asked %d times", asked)
	}
}

// TestAPodIsEvictedAfterAnOutage ends a pod by signals while the API server is
// away. The kubelet starts the pod again. When the pod must end a second time,
// the API server is back, so it must decide.
func TestAPodIsEvictedAfterAnOutage(t *testing.T) {
	j := &judge{err: errors.New("dial tcp: connection refused")}
	e, signalled := court(t, j, time.Hour)
	_, _ = e.take(endStep(node.AskedToEnd))
	soon(t, "the node asks by itself", func() bool { return signalled() == 1 })
	j.mu.Lock()
	j.err = nil
	j.mu.Unlock()
	if taken, _ := e.take(endStep(node.Ended)); taken {
		t.Error("the kill of the request that went by signals waits for the API server")
	}
	if taken, err := e.take(endStep(node.AskedToEnd)); !taken || err != nil {
		t.Fatalf("the second request: taken %v, %v", taken, err)
	}
	soon(t, "the event", func() bool { _, events := j.told(); return len(events) == 1 })
	if asked, _ := j.told(); asked != attempts+1 || signalled() != 1 {
		t.Errorf("asked %d times, signalled %d", asked, signalled())
	}
}

// TestEvictionsDoNotWaitForAnAbsentAPIServer evicts a pod while the API server
// is away. The node must send signals at once, because a shortage of memory is
// urgent.
func TestEvictionsDoNotWaitForAnAbsentAPIServer(t *testing.T) {
	j := &judge{}
	e, signalled := court(t, j, time.Hour)
	e.away = func() bool { return true }
	_, _ = e.take(endStep(node.AskedToEnd))
	soon(t, "the node asks by itself", func() bool { return signalled() == 1 })
	if asked, _ := j.told(); asked != 0 {
		t.Errorf("asked %d times", asked)
	}
	now := time.Now()
	refused, busy := errors.New("dial tcp: connection refused"), fmt.Errorf("watch: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New("no")))
	for name, x := range map[string]struct {
		heard   time.Time
		trouble error
		away    bool
	}{
		"heard":                      {now, nil, false},
		"silent since long ago":      {now.Add(-awayAfter - time.Second), refused, true},
		"silent since a moment":      {now.Add(-time.Second), refused, false},
		"never heard":                {time.Time{}, refused, false},
		"it answers, and refuses":    {now.Add(-time.Hour), busy, false},
		"nothing new for a long day": {now.Add(-24 * time.Hour), nil, false},
	} {
		if away := awayBy(x.heard, x.trouble, now); away != x.away {
			t.Errorf("%s: away %v", name, away)
		}
	}
}

func TestWhatIsNoPodEndsBySignals(t *testing.T) {
	e, _ := court(t, &judge{}, time.Hour)
	s := endStep(node.Ended)
	s.Knob.Cgroup = "system.slice/job.service"
	if taken, _ := e.take(s); taken {
		t.Error("a rule's workload is evicted by the API server")
	}
	for _, v := range []node.Run{node.Frozen, node.Running} {
		if taken, _ := e.take(endStep(v)); taken {
			t.Errorf("%v is not the API server's", v)
		}
	}
}

func TestAPodThatIsGoneIsForgotten(t *testing.T) {
	e, _ := court(t, &judge{}, time.Hour)
	_, _ = e.take(endStep(node.AskedToEnd))
	e.follow(nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.of) != 0 {
		t.Error("the queue still knows a pod that is gone")
	}
}

// TestNoAnswerOfTheAPIServerLeadsToSignals checks every kind of error that the
// server returns while it is up: 500 for a pod with two budgets, and 429, 503
// or 504 when it is busy. No such error may lead to a signal, because a signal
// would end a pod that its budget protects.
func TestNoAnswerOfTheAPIServerLeadsToSignals(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err    error
		spared time.Duration
	}{
		"two budgets":       {apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget")), refusedFor},
		"too many requests": {apierrors.NewTooManyRequests("later", 12), 12 * time.Second},
		"a start":           {apierrors.NewServiceUnavailable("it starts"), busyFor},
		"a budget changes":  {apierrors.NewTimeoutError("budget conflicts", 0), busyFor},
		"a conflict":        {apierrors.NewConflict(pods, "job", errors.New("webhook")), busyFor},
	} {
		j := &judge{err: fmt.Errorf("evict: %w", c.err)}
		e, signalled := court(t, j, time.Nanosecond)
		begun := time.Now()
		_, _ = e.take(endStep(node.AskedToEnd))
		soon(t, "the event", func() bool { _, events := j.told(); return len(events) == 1 })
		e.mu.Lock()
		o := *e.of["u"]
		e.mu.Unlock()
		if o.state != endRefused || o.until.Before(begun.Add(c.spared)) || o.until.After(time.Now().Add(c.spared)) {
			t.Errorf("%s: state %d, spared for %v, want %v", name, o.state, o.until.Sub(begun), c.spared)
		}
		if asked, _ := j.told(); asked != 1 || signalled() != 0 {
			t.Errorf("%s: asked %d times, signalled %d", name, asked, signalled())
		}
	}
}

func TestARefusalIsToldOnceForEachReason(t *testing.T) {
	j := &judge{err: fmt.Errorf("evict: %w", apiserver.ErrBudget)}
	e, _ := court(t, j, time.Hour)
	refused := func(n int) {
		e.mu.Lock()
		delete(e.of, "u") // as if the exemption had ended
		e.mu.Unlock()
		_, _ = e.take(endStep(node.AskedToEnd))
		soon(t, "the refusal", func() bool { asked, _ := j.told(); return asked == n && e.exempt("u") != "" })
	}
	for n := range 3 {
		refused(n + 1)
	}
	j.mu.Lock()
	j.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "job", errors.New("no"))
	j.mu.Unlock()
	refused(4)
	soon(t, "the event of the other reason", func() bool {
		_, events := j.told()
		return len(events) > 0 && strings.Contains(events[len(events)-1].Message, "forbidden")
	})
	if _, events := j.told(); len(events) != 2 {
		t.Errorf("%d events", len(events))
	}
}

// TestAnEvictedPodRunsSoThatItCanEnd evicts a frozen pod. Tenon freezes a pod
// whose memory grows before it ends the pod, and a frozen pod cannot end.
func TestAnEvictedPodRunsSoThatItCanEnd(t *testing.T) {
	e, _ := court(t, &judge{}, time.Hour)
	prepared := make(chan node.Knob, 1)
	e.prepare = func(k node.Knob) error { prepared <- k; return nil }
	_, _ = e.take(endStep(node.AskedToEnd))
	select {
	case k := <-prepared:
		if k != endStep(node.Ended).Knob {
			t.Errorf("%v is thawed", k)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the evicted pod stays frozen")
	}
	if taken, err := e.take(endStep(node.Frozen)); !taken || err == nil {
		t.Errorf("the evicted pod is frozen again: taken %v, %v", taken, err)
	}
	if taken, _ := e.take(endStep(node.Running)); taken {
		t.Error("a step that thaws the pod is taken")
	}
}
