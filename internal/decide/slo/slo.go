// Package slo tracks whether LS workloads meet their objective: how long their
// threads wait for a CPU.
package slo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// LeastWindow is the shortest time over which waits are judged, and
	// longestWindow the longest: a service that waits seldom is judged over
	// more time.
	LeastWindow   = time.Second
	longestWindow = 10 * time.Second
	// enoughWaits end a window after leastWindow. They are also what it takes
	// to judge by a mean.
	enoughWaits = 300
	// chance is how many waits may be too long beside one in a hundred: so
	// many come together without a cause.
	chance = 2
	// calmBefore is for how long an objective must have been met before it
	// counts as met again.
	calmBefore = 5 * time.Second
	// bucketSlack is how far, as a part of it, an objective may lie below the
	// end of a bucket and stand for it: 2 ms for 2.1 ms.
	bucketSlack = 16
	// tailOfMean is by how much 99 of 100 waits are bounded where only their
	// mean is known: ln 100 = 4.6 if waits are exponential, as those of a queue
	// with random arrivals are.
	tailOfMean = 5
	// helpless is the part of a service's waits, as one in so many, below which
	// BE has caused so little of them that a back-off would not help.
	helpless = 20
)

// A Tracker is what is remembered of the objectives: for each workload with one, the
// waits of a window of time.
type Tracker struct {
	Work map[node.WorkloadID]State `json:"work,omitempty"`
}

// A State is the SLO state of one workload.
type State struct {
	// Since is when the window began. Delay, Waited and ByBE are the counter
	// values at that time.
	Since  time.Time          `json:"since,omitzero"`
	Delay  node.RunQueueDelay `json:"delay,omitzero"`
	Waited time.Duration      `json:"waited_ns,omitempty"` // for whomever
	ByBE   time.Duration      `json:"by_be_ns,omitempty"`  // of it, for best-effort work
	// Missed: the objective counts as missed. At is when it was missed last,
	// by so many percent of itself, and Reason says how.
	Missed  bool      `json:"missed,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Percent int64     `json:"percent,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	// Helpless: best-effort work hardly was what it waited for.
	Helpless bool `json:"helpless,omitempty"`
}

// A Miss is an LS workload whose SLO is violated now.
type Miss struct {
	Workload node.WorkloadID
	Reason   string
	// Helpless: other work than best-effort was what it waited for.
	Helpless bool
}

// Observe adds the waits of s. An SLO is violated when, in a window of time, more
// than 1 of 100 waits was longer than the objective, and it is met again only after
// some calm. A workload without an objective, or without counters of waits, has no
// state.
func (x Tracker) Observe(s node.Snapshot) Tracker {
	next := Tracker{}
	var blame map[node.WorkloadID]blamed
	for _, w := range s.Workloads {
		want, asked := w.Objective.RunQueueDelay.Value()
		if !asked || want <= 0 || !w.Class.Sensitive() || !w.Usage.Delay.Sum.Known() {
			continue
		}
		if next.Work == nil {
			next.Work, blame = map[node.WorkloadID]State{}, blameOf(s)
		}
		next.Work[w.ID] = x.Work[w.ID].observe(s.At, w, want, blame[w.ID])
	}
	return next
}

// Missed lists the workloads whose SLO is violated now, worst first.
func (x Tracker) Missed() []Miss {
	var ids []node.WorkloadID
	for id, f := range x.Work {
		if f.Missed {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b node.WorkloadID) int {
		return cmp.Or(cmp.Compare(x.Work[b].Percent, x.Work[a].Percent), strings.Compare(string(a), string(b)))
	})
	var all []Miss
	for _, id := range ids {
		f := x.Work[id]
		all = append(all, Miss{Workload: id, Reason: f.Reason, Helpless: f.Helpless})
	}
	return all
}

// blamed is for how long a workload waited, and how much of it for BE.
type blamed struct{ all, be time.Duration }

func blameOf(s node.Snapshot) map[node.WorkloadID]blamed {
	if len(s.Waits) == 0 {
		return nil
	}
	be := make(map[node.WorkloadID]bool, len(s.Workloads)+1)
	be[node.RestOf(node.BE)] = true
	for _, w := range s.Workloads {
		be[w.ID] = w.Class == node.BE
	}
	be[node.RestOf(node.BE)] = true
	all := map[node.WorkloadID]blamed{}
	for _, w := range s.Waits {
		b := all[w.Waiter]
		b.all += w.Time
		if be[w.Runner] {
			b.be += w.Time
		}
		all[w.Waiter] = b
	}
	return all
}

func (f State) observe(at time.Time, w node.Workload, want time.Duration, b blamed) State {
	now := w.Usage.Delay
	if f.At.After(at) { // the clock of another boot; not at, which would be a new miss
		f.At = at.Add(-1)
	}
	d, ok := since(f.Delay, now)
	length := at.Sub(f.Since)
	if f.Since.IsZero() || !ok || length < 0 || b.all < f.Waited || b.be < f.ByBE {
		return f.begin(at, now, b)
	}
	if d.missed(want) && (!f.Missed || length >= LeastWindow) {
		f.Missed, f.At = true, at
		f.Percent = int64(d.tail() * 100 / want)
		f.Reason = fmt.Sprintf("%s waits %s, wants %v", w.ID, d.say(), want)
		waited, byBE := b.all-f.Waited, b.be-f.ByBE
		if f.Helpless = waited > 0 && byBE < waited/helpless; f.Helpless {
			f.Reason += ", hardly for BE"
		}
		return f.begin(at, now, b)
	}
	if length >= longestWindow || length >= LeastWindow && d.waits >= enoughWaits {
		if f.Missed && at.Sub(f.At) >= calmBefore {
			f = State{}
		}
		return f.begin(at, now, b)
	}
	return f
}

// begin starts a window.
func (f State) begin(at time.Time, now node.RunQueueDelay, b blamed) State {
	f.Since, f.Delay, f.Waited, f.ByBE = at, now, b.all, b.be
	return f
}

// A spread is the waits of a window: how many there were of each length, or only
// their number and sum.
type spread struct {
	waits  int64
	counts []int64
	sum    time.Duration
}

// since returns the waits between two readings; false if they do not fit together,
// as after a counter was reset.
func since(before, after node.RunQueueDelay) (spread, bool) {
	d := spread{sum: after.Sum.Or(0) - before.Sum.Or(0)}
	if d.sum < 0 || len(before.Counts) != len(after.Counts) {
		return spread{}, false
	}
	if after.Counts == nil {
		d.waits = after.Timeslices.Or(0) - before.Timeslices.Or(0)
		return d, d.waits >= 0
	}
	d.counts = make([]int64, len(after.Counts))
	for i, n := range after.Counts {
		if n < before.Counts[i] {
			return spread{}, false
		}
		d.counts[i] = int64(n - before.Counts[i])
		d.waits += d.counts[i]
	}
	return d, true
}

// missed reports whether more than 1 of 100 waits was longer than wanted. A bucket in
// which some waits may be longer counts as if all were: the histogram cannot tell,
// and the doubt goes to the service.
func (d spread) missed(want time.Duration) bool {
	if d.counts == nil {
		return d.waits >= enoughWaits && d.tail() > want
	}
	var long int64
	for i, n := range d.counts {
		if node.DelayBound(i) > want+want/bucketSlack || i == len(d.counts)-1 {
			long += n
		}
	}
	return 100*long > d.waits+100*chance
}

// tail is a length that 99 of 100 waits did not exceed; they may be much shorter.
func (d spread) tail() time.Duration {
	if d.counts == nil {
		return d.sum / time.Duration(max(d.waits, 1)) * tailOfMean
	}
	var longer int64
	for i := len(d.counts) - 1; i >= 0; i-- {
		if longer += d.counts[i]; 100*longer > d.waits {
			return node.DelayBound(i)
		}
	}
	return 0
}

// say is the tail in words.
func (d spread) say() string {
	if d.counts == nil {
		return fmt.Sprintf("%v on average, so some %v (p99)", short(d.sum/time.Duration(max(d.waits, 1))), short(d.tail()))
	}
	return fmt.Sprintf("up to %v (p99)", short(d.tail()))
}

// short rounds a time for reasons.
func short(t time.Duration) time.Duration {
	switch {
	case t >= 100*time.Millisecond:
		return t.Round(time.Millisecond)
	case t >= time.Millisecond:
		return t.Round(100 * time.Microsecond)
	}
	return t.Round(time.Microsecond)
}
