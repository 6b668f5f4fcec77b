package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
	"tenon.sh/tenon/internal/model/unit"
)

// Isolation summarises the isolation of best-effort work on the CPU.
type Isolation struct {
	Mechanism node.Mechanism `json:"mechanism,omitempty"` // the mechanism in use; empty: none
	Since     time.Time      `json:"since,omitzero"`
	Why       string         `json:"why,omitempty"`
	Pinned    node.Mechanism `json:"pinned,omitempty"` // the mechanism that is fixed by hand or configuration; empty: none
	ByHand    bool           `json:"by_hand,omitempty"`
	// Failures is the number of mechanism failures in the last hour.
	Failures int `json:"failures"`
	// Strays is the number of stray threads found since tenond started.
	Strays uint64 `json:"strays"`
	// Trials describes the running trial of mechanisms, or what trials wait for.
	Trials string `json:"trials,omitempty"`
	// Expelled is the CPU time that stays idle while latency-sensitive work runs
	// on the sibling, although best-effort work waits. Held is the CPU time that
	// stays idle during the hold time after that.
	Expelled node.Maybe[unit.MilliCPU] `json:"expelled_mcpu,omitzero"`
	Held     node.Maybe[unit.MilliCPU] `json:"held_mcpu,omitzero"`
}

// A QOS describes the isolation of best-effort work on the CPU in full. Its
// JSON keys are stable.
type QOS struct {
	// At is the time of the last snapshot. It is absent before the first tick.
	At        time.Time            `json:"at,omitzero"`
	Selection node.Selection       `json:"selection"`
	Trials    trial.Status         `json:"trials"`
	Means     node.IsolationStatus `json:"status"`
	// Knobs lists the knobs of the isolation mechanisms, with their wants.
	Knobs []Knob `json:"knobs"`
	// Failing lists the failed writes of these knobs in the last tick.
	Failing []record.Write `json:"failing,omitempty"`
}

// isolating lists the files of the isolation mechanisms' knobs, and of the time
// slice. It omits the weight, which other policies use, too.
var isolating = node.FilesOf(node.CategoryMark, node.CategoryScheduler, node.CategoryThreads)

// QOS returns the state of the isolation after the last tick.
func (l *Ledger) QOS() QOS {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.last
	q := QOS{At: t.Snapshot.At, Selection: t.Selection, Trials: t.Trials, Means: t.Isolation, Knobs: []Knob{}}
	var knobs []node.Knob
	for k, a := range l.knobs {
		if slices.Contains(isolating, k.File) && a.want.Intent != plan.Release {
			knobs = append(knobs, k)
		}
	}
	slices.SortFunc(knobs, node.Knob.Compare)
	for _, k := range knobs {
		q.Knobs = append(q.Knobs, l.knob(k))
	}
	for _, o := range t.Done {
		if o.Err != nil && (slices.Contains(isolating, o.Step.Knob.File) || o.Step.Knob.File == node.FileCPUWeight) {
			q.Failing = append(q.Failing, record.WriteOf(t, o))
		}
	}
	return q
}

// isolation returns the summary of the isolation. The caller holds l.mu.
func (l *Ledger) isolation() Isolation {
	t := l.last
	i := Isolation{
		Mechanism: t.Selection.Mechanism, Since: t.Selection.Since, Why: t.Selection.Why, Pinned: t.Selection.Pinned, ByHand: t.Selection.ByHand,
		Failures: len(t.Selection.Failures), Strays: t.Isolation.Strays, Trials: t.Trials.Why,
	}
	now, then := l.newerScheduler, l.olderScheduler
	if now == nil || then == nil || !now.Running || !now.Since.Equal(then.Since) {
		return i
	}
	if rate, ok := trend.Rate(then.ExpelIdle, now.ExpelIdle, now.At.Sub(then.At)); ok {
		i.Expelled = node.Some(rate)
	}
	if rate, ok := trend.Rate(then.HoldIdle, now.HoldIdle, now.At.Sub(then.At)); ok {
		i.Held = node.Some(rate)
	}
	return i
}

// Best returns the strongest isolation mechanism that the node supports, even
// if it has failed before. If the node supports no mechanism above Base, the
// error tells what the node lacks.
func (q QOS) Best() (node.Mechanism, error) {
	base, err := q.Base()
	if err != nil {
		return "", err
	}
	var lacks []string
	for _, r := range q.Selection.Mechanisms {
		switch {
		case r.Mechanism == base:
			return "", fmt.Errorf("this node supports no mechanism above %s: %s", base, strings.Join(lacks, "; "))
		case r.Can == node.Yes:
			return r.Mechanism, nil
		}
		lacks = append(lacks, fmt.Sprintf("%s: %s", r.Mechanism, r.Why))
	}
	return base, nil
}

// Base returns the isolation mechanism that remains after Tenon has unloaded all stronger ones.
func (q QOS) Base() (node.Mechanism, error) {
	var err error
	for _, m := range node.MechanismTable {
		if !m.Below {
			continue
		}
		if err = q.requireSupport(m.Mechanism); err == nil {
			return m.Mechanism, nil
		}
	}
	return "", err
}

// requireSupport returns an error if the node does not support an isolation
// mechanism. The error contains the reason.
func (q QOS) requireSupport(mechanism node.Mechanism) error {
	if !slices.Contains(node.Mechanisms, mechanism) {
		return fmt.Errorf("no mechanism is called %q: want one of %v", mechanism, node.Mechanisms)
	}
	for _, r := range q.Selection.Mechanisms {
		if r.Mechanism == mechanism && r.Can == node.Yes {
			return nil
		} else if r.Mechanism == mechanism {
			return fmt.Errorf("this node does not support %s: %s", mechanism, r.Why)
		}
	}
	if q.At.IsZero() {
		return errors.New("tenond has started and has made no tick yet: ask again in a moment")
	}
	return errors.New("CPU QoS is off: enable cpuQOS of beClass under resource-qos-config in tenond's configuration first")
}

// Pinnable returns an error if an operator cannot pin a mechanism now. The
// error contains the reason.
func (l *Ledger) Pinnable(mechanism node.Mechanism) error { return l.QOS().requireSupport(mechanism) }

// An Operator carries out the requests of an operator to a running agent.
type Operator interface {
	// Pin makes the agent use an isolation mechanism until the next call of Pin.
	// With an empty mechanism, the configuration decides again. Pin returns after
	// the tick that applied the request, or when ctx ends.
	Pin(ctx context.Context, mechanism node.Mechanism) error
	Handle(mux *http.ServeMux) // registers further requests
}

// maxWait is the time that a client waits for the effect of its request.
const maxWait = 5 * time.Second

// handleQOS registers the handlers of requests about the isolation.
func handleQOS(mux *http.ServeMux, l *Ledger, o Operator) {
	mux.HandleFunc("GET /v1/isolation", func(w http.ResponseWriter, _ *http.Request) { Answer(w, l.QOS(), nil) })
	mux.HandleFunc("POST /v1/isolation", func(w http.ResponseWriter, r *http.Request) {
		mechanism := node.Mechanism(r.FormValue("mechanism"))
		if mechanism != "" {
			if err := l.Pinnable(mechanism); err != nil {
				Answer(w, nil, err)
				return
			}
		}
		ctx, stop := context.WithTimeout(r.Context(), maxWait)
		defer stop()
		err := o.Pin(ctx, mechanism)
		Answer(w, l.QOS(), err)
	})
}

// QOS asks the agent for the state of the isolation.
func (c *Client) QOS(ctx context.Context) (QOS, error) {
	return Ask[QOS](ctx, c, http.MethodGet, "isolation", nil)
}

// Pin makes the agent use an isolation mechanism. With an empty mechanism, the
// configuration decides again. Pin waits up to 5 s for the effect. If the
// mechanism is not in use after that, the error gives the reason.
func (c *Client) Pin(ctx context.Context, mechanism node.Mechanism) (QOS, error) {
	deadline := time.Now().Add(c.wait)
	q, err := c.QOS(ctx)
	if err != nil {
		return q, err
	}
	known := len(q.failuresOf(mechanism))
	q, err = Ask[QOS](ctx, c, http.MethodPost, "isolation", url.Values{"mechanism": {string(mechanism)}})
	for err == nil {
		settled, fault := q.resultKnown(mechanism, known)
		if settled || time.Now().After(deadline) {
			return q, fault
		}
		time.Sleep(50 * time.Millisecond)
		q, err = c.QOS(ctx)
	}
	return q, err
}

// failuresOf returns the failures of a mechanism in the last hour.
func (q QOS) failuresOf(mechanism node.Mechanism) []node.Failure {
	return slices.DeleteFunc(slices.Clone(q.Selection.Failures), func(f node.Failure) bool { return f.Mechanism != mechanism })
}

// resultKnown reports whether the result of a pin request is known. fault is
// the reason why the mechanism is not in use. before is the number of failures
// before the request; with it, resultKnown recognizes a new failure.
func (q QOS) resultKnown(mechanism node.Mechanism, before int) (known bool, fault error) {
	if mechanism == "" {
		return !q.Selection.ByHand, nil
	}
	if failures := q.failuresOf(mechanism); len(failures) > before {
		return true, fmt.Errorf("%s was tried and failed: %s; in use: %s", mechanism, failures[len(failures)-1].Why, shownMechanism(q.Selection.Mechanism))
	}
	waits := slices.IndexFunc(q.Knobs, func(k Knob) bool { return k.Intent == plan.Abstain })
	switch s := q.Means.Scheduler; {
	case len(q.Failing) > 0 && q.Failing[0].Knob.File == node.FileScheduler && (s == nil || !s.Running):
		return false, fmt.Errorf("%s is pinned, but not in use yet: %s", mechanism, q.Failing[0].Error)
	case len(q.Failing) > 0:
		w := q.Failing[0]
		return false, fmt.Errorf("%s is pinned, but %v cannot be written: %s", mechanism, w.Knob, w.Error)
	case q.Selection.Mechanism != mechanism:
		return false, fmt.Errorf("%s is pinned, but %s is in use: %s", mechanism, shownMechanism(q.Selection.Mechanism), q.Selection.Why)
	case waits >= 0:
		return false, fmt.Errorf("%s is pinned, but not in use yet: %s", mechanism, q.Knobs[waits].Reason)
	case mechanism == node.MechanismSchedExt && (s == nil || !s.Running):
		return false, fmt.Errorf("%s is pinned, but the scheduler does not run yet", mechanism)
	}
	return true, nil
}
