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
	"tenon.sh/tenon/internal/model/unit"
)

// Isolation is the isolation of best-effort work on the CPU, in short.
type Isolation struct {
	Rung   node.Rung `json:"rung,omitempty"` // the isolation mechanism; empty: none
	Since  time.Time `json:"since,omitzero"`
	Why    string    `json:"why,omitempty"`
	Pinned node.Rung `json:"pinned,omitempty"` // empty: the strongest that the node supports
	ByHand bool      `json:"by_hand,omitempty"`
	// Falls is the number of mechanism failures in the last hour.
	Falls int `json:"falls"`
	// Strays is the number of stray threads found since tenond started.
	Strays uint64 `json:"strays"`
	// Expelled is how much CPU is kept idle because latency-sensitive work runs
	// on the sibling and best-effort work waits, Held how much for a while
	// after that.
	Expelled node.Maybe[unit.MilliCPU] `json:"expelled_mcpu,omitzero"`
	Held     node.Maybe[unit.MilliCPU] `json:"held_mcpu,omitzero"`
}

// A QOS is all about this isolation. Its JSON keys are stable.
type QOS struct {
	// At is the time of the last snapshot; absent before the first tick.
	At     time.Time            `json:"at,omitzero"`
	Ladder node.LadderStatus    `json:"ladder"`
	Means  node.IsolationStatus `json:"means"`
	// Knobs are those of the isolation mechanisms, with their wants.
	Knobs []Knob `json:"knobs"`
	// Failing are their last failed writes.
	Failing []record.Write `json:"failing,omitempty"`
}

// isolating are the knobs of the isolation mechanisms and the slice, without
// the weight, which other policies use, too.
var isolating = node.FilesOf(node.CategoryMark, node.CategoryScheduler, node.CategoryThreads)

// QOS returns the isolation of best-effort work on the CPU.
func (l *Ledger) QOS() QOS {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.last
	q := QOS{At: t.Snapshot.At, Ladder: t.Ladder, Means: t.Isolation, Knobs: []Knob{}}
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

// isolation is QOS in short. l.mu is held.
func (l *Ledger) isolation() Isolation {
	t := l.last
	i := Isolation{
		Rung: t.Ladder.Rung, Since: t.Ladder.Since, Why: t.Ladder.Why, Pinned: t.Ladder.Pinned, ByHand: t.Ladder.ByHand,
		Falls: len(t.Ladder.Falls), Strays: t.Isolation.Strays,
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

// Best is the strongest isolation mechanism that the node supports, also after
// failures. The error says what the node lacks for any above the base.
func (q QOS) Best() (node.Rung, error) {
	base, err := q.Base()
	if err != nil {
		return "", err
	}
	var lacks []string
	for _, r := range q.Ladder.Rungs {
		switch {
		case r.Rung == base:
			return "", fmt.Errorf("this node can carry no rung above %s: %s", base, strings.Join(lacks, "; "))
		case r.Can == node.Yes:
			return r.Rung, nil
		}
		lacks = append(lacks, fmt.Sprintf("%s: %s", r.Rung, r.Why))
	}
	return base, nil
}

// Base is the isolation mechanism that is left when all above it are unloaded.
func (q QOS) Base() (node.Rung, error) {
	for _, base := range []node.Rung{node.RungIdle, node.RungWeight} {
		if q.can(base) == nil {
			return base, nil
		}
	}
	return "", q.can(node.RungWeight)
}

// can returns why the node does not support an isolation mechanism; nil: it
// does.
func (q QOS) can(rung node.Rung) error {
	if !slices.Contains(node.Rungs, rung) {
		return fmt.Errorf("no rung is called %q: want one of %v", rung, node.Rungs)
	}
	for _, r := range q.Ladder.Rungs {
		if r.Rung == rung && r.Can == node.Yes {
			return nil
		} else if r.Rung == rung {
			return fmt.Errorf("this node cannot carry %s: %s", rung, r.Why)
		}
	}
	if q.At.IsZero() {
		return errors.New("tenond has started and has not turned once: ask again in a moment")
	}
	return errors.New("CPU QoS is off: enable cpuQOS of beClass under resource-qos-config in tenond's configuration first")
}

// Pinnable returns why an isolation mechanism cannot be pinned now; nil: it
// can.
func (l *Ledger) Pinnable(rung node.Rung) error { return l.QOS().can(rung) }

// An Operator performs requests to a running agent.
type Operator interface {
	// Pin pins an isolation mechanism until the next call; an empty one returns
	// the choice to the configuration. It returns after a tick that applied it,
	// or with ctx.
	Pin(ctx context.Context, rung node.Rung) error
}

// mostWait is how long an answer may wait for a request to take effect.
const mostWait = 5 * time.Second

// handleQOS serves the requests about QOS.
func handleQOS(mux *http.ServeMux, l *Ledger, o Operator) {
	mux.HandleFunc("GET /v1/qos", func(w http.ResponseWriter, _ *http.Request) { answer(w, l.QOS()) })
	mux.HandleFunc("POST /v1/pin", func(w http.ResponseWriter, r *http.Request) {
		rung := node.Rung(r.FormValue("rung"))
		if rung != "" {
			if err := l.Pinnable(rung); err != nil {
				refuse(w, err)
				return
			}
		}
		ctx, stop := context.WithTimeout(r.Context(), mostWait)
		defer stop()
		if err := o.Pin(ctx, rung); err != nil {
			refuse(w, err)
			return
		}
		answer(w, l.QOS())
	})
}

// QOS returns the isolation of best-effort work on the CPU.
func (c *Client) QOS(ctx context.Context) (QOS, error) {
	return ask[QOS](ctx, c, http.MethodGet, "qos", nil)
}

// Pin pins an isolation mechanism, or with an empty one that of the
// configuration, and waits up to 5 s for the effect. The error then says why it
// is not in use.
func (c *Client) Pin(ctx context.Context, rung node.Rung) (QOS, error) {
	deadline := time.Now().Add(c.wait)
	q, err := c.QOS(ctx)
	if err != nil {
		return q, err
	}
	known := len(q.fallsOf(rung))
	q, err = ask[QOS](ctx, c, http.MethodPost, "pin", url.Values{"rung": {string(rung)}})
	for err == nil {
		settled, fault := q.settled(rung, known)
		if settled || time.Now().After(deadline) {
			return q, fault
		}
		time.Sleep(50 * time.Millisecond)
		q, err = c.QOS(ctx)
	}
	return q, err
}

// fallsOf returns the failures of a mechanism in the last hour.
func (q QOS) fallsOf(rung node.Rung) []node.Fall {
	return slices.DeleteFunc(slices.Clone(q.Ladder.Falls), func(f node.Fall) bool { return f.Rung != rung })
}

// settled reports whether the outcome of a pin is known, and why it is not in
// effect. before is the number of failures of the mechanism before the pin.
func (q QOS) settled(rung node.Rung, before int) (known bool, fault error) {
	if rung == "" {
		return !q.Ladder.ByHand, nil
	}
	if falls := q.fallsOf(rung); len(falls) > before {
		return true, fmt.Errorf("%s was tried and fell: %s; in use: %s", rung, falls[len(falls)-1].Why, shownRung(q.Ladder.Rung))
	}
	waits := slices.IndexFunc(q.Knobs, func(k Knob) bool { return k.Intent == plan.Abstain })
	switch s := q.Means.Scheduler; {
	case len(q.Failing) > 0 && q.Failing[0].Knob.File == node.FileScheduler && (s == nil || !s.Running):
		return false, fmt.Errorf("%s is pinned, but not in use yet: %s", rung, q.Failing[0].Error)
	case len(q.Failing) > 0:
		w := q.Failing[0]
		return false, fmt.Errorf("%s is pinned, but %v cannot be written: %s", rung, w.Knob, w.Error)
	case q.Ladder.Rung != rung:
		return false, fmt.Errorf("%s is pinned, but %s is in use: %s", rung, shownRung(q.Ladder.Rung), q.Ladder.Why)
	case waits >= 0:
		return false, fmt.Errorf("%s is pinned, but not in use yet: %s", rung, q.Knobs[waits].Reason)
	case rung == node.RungSchedExt && (s == nil || !s.Running):
		return false, fmt.Errorf("%s is pinned, but the scheduler does not run yet", rung)
	}
	return true, nil
}
