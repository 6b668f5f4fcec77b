package control

import (
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// window is the minimum time over which CPU usage is measured. Ticks that are
	// started by events can be too close together to compute a rate.
	window = 900 * time.Millisecond
	// keptWrites is the number of last writes that the Ledger keeps.
	keptWrites = 20
)

// A Ledger records the ticks of a running agent, and answers questions about them at any time.
type Ledger struct {
	version string
	started time.Time
	health  *health.Health // nil: the status shows no troubles

	mu    sync.Mutex
	ticks uint64
	last  tick.Tick // the last tick that could read the node
	blind string
	// older and newer are the two snapshots from which rates are computed. To save
	// memory, they lack the knobs.
	older, newer node.Snapshot
	// olderScheduler and newerScheduler are the states of the BE scheduler at
	// the times of older and newer. They are nil if no scheduler was loaded.
	olderScheduler, newerScheduler *node.SchedulerStatus

	knobs  map[node.Knob]*account
	recent []record.Write // newest last
	next   chan struct{}  // the next tick closes it
}

// An account is the record of the wants and writes of one knob.
type account struct {
	want  plan.Want
	since time.Time
	tick  uint64 // number of the last tick with a want
	wrote record.Write
	did   uint64 // number of the tick that wrote last; 0: none
}

// NewLedger returns an empty ledger. version is the version of the agent.
func NewLedger(version string) *Ledger {
	return &Ledger{version: version, started: time.Now(), knobs: map[node.Knob]*account{}, next: make(chan struct{})}
}

// Show makes the status contain the troubles in h. It must be called before the
// first tick.
func (l *Ledger) Show(h *health.Health) { l.health = h }

// Observe records a tick, or the error if the tick could not read the node.
func (l *Ledger) Observe(t tick.Tick, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticks++
	close(l.next)
	l.next = make(chan struct{})
	if t.Snapshot.At.IsZero() {
		if err != nil {
			l.blind = err.Error()
		}
		return
	}
	l.blind, l.last = "", t
	l.measure(t)
	for _, w := range t.Wants {
		l.want(w, t.Snapshot.At)
	}
	for _, o := range t.Done {
		l.done(record.WriteOf(t, o))
	}
	for k, a := range l.knobs {
		if a.tick != l.ticks {
			delete(l.knobs, k)
		}
	}
}

// measure makes newer the older snapshot, and t's snapshot the newer, once per window.
func (l *Ledger) measure(t tick.Tick) {
	s := t.Snapshot
	passed := s.At.Sub(l.newer.At)
	if passed >= 0 && passed < window {
		return
	}
	s.Knobs = node.Knobs{}
	l.older, l.newer = l.newer, s
	l.olderScheduler, l.newerScheduler = l.newerScheduler, t.Isolation.Scheduler
}

func (l *Ledger) want(w plan.Want, at time.Time) {
	a := l.knobs[w.Knob]
	switch {
	case a == nil:
		a = &account{since: at}
		l.knobs[w.Knob] = a
	case a.tick == l.ticks:
		return // only the first want for a knob is recorded
	case a.want.Intent != w.Intent || a.want.Value != w.Value:
		a.since = at
	}
	a.want, a.tick = w, l.ticks
}

func (l *Ledger) done(w record.Write) {
	if a := l.knobs[w.Knob]; a != nil {
		a.wrote, a.did = w, l.ticks
	}
	if n := len(l.recent); w.Outcome == record.Failed && n > 0 {
		// A write that fails in every tick must not push the other writes out of the list.
		i := slices.IndexFunc(l.recent, func(r record.Write) bool { return r.Knob == w.Knob && r.Error == w.Error })
		if i >= 0 {
			l.recent = slices.Delete(l.recent, i, i+1)
		}
	}
	if len(l.recent) == keptWrites {
		l.recent = slices.Delete(l.recent, 0, 1)
	}
	l.recent = append(l.recent, w)
}

// knob returns the state of one knob. The value is from the snapshot or, if the
// last tick wrote the knob after the snapshot, from that write. The caller
// holds l.mu.
func (l *Ledger) knob(k node.Knob) Knob {
	now, before := l.last.Snapshot.Knobs.Now[k], l.last.Snapshot.Knobs.Before[k]
	all := Knob{Knob: k, Now: text(now), Before: text(before)}
	a := l.knobs[k]
	if a == nil {
		return all
	}
	all.Intent, all.Policy, all.Reason, all.Since = a.want.Intent, a.want.Owner.String(), a.want.Reason, a.since
	if (a.want.Intent == plan.Set || a.want.Intent == plan.Pause) && a.want.Value != nil {
		all.Want = a.want.Value.String()
	}
	if a.did == 0 {
		return all
	}
	wrote := a.wrote
	all.Wrote = &wrote
	if a.did == l.ticks && wrote.Outcome == record.Applied {
		all.Now = &wrote.New
		switch {
		case wrote.Release:
			all.Before = nil
		case all.Before == nil:
			all.Before = &wrote.Old
		}
	}
	return all
}

// text returns a value as text, or nil if there is no value.
func text(v node.Value) *string {
	if v == nil {
		return nil
	}
	s := v.String()
	return &s
}

// countHeld returns the number of knobs that Tenon has changed and not
// released, including the writes of the last tick. The caller holds l.mu.
func (l *Ledger) countHeld() int {
	before := l.last.Snapshot.Knobs.Before
	n := len(before)
	for _, o := range l.last.Done {
		if o.Err != nil {
			continue
		}
		_, was := before[o.Step.Knob]
		switch {
		case o.Step.Release && was:
			n--
		case !o.Step.Release && !was:
			n++
		}
	}
	return n
}

func compareIDs(a, b Workload) int { return strings.Compare(string(a.ID), string(b.ID)) }
