// This file learns how long services without an objective wait for a CPU while hardly any
// of it is for BE work, and suggests an objective. No policy reads it: an objective is in
// force only if an owner states it.

package slo

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// BaselineWindow is the length of a window, or a little less than that.
	BaselineWindow = longestWindow
	// EnoughQuiet is the number of quiet windows on which a suggestion rests at least. After
	// mostQuiet windows, which last an hour or more, all of them count half: a service that
	// has another load is known anew.
	EnoughQuiet, mostQuiet = 30, 360
	// suggestedTails is the suggested objective in tails: it is rounded up from this.
	suggestedTails = 3
	// The suggestions are the times that an objective may have.
	leastSuggested, mostSuggested = 10 * time.Microsecond, time.Second
)

// Baselines hold what is known of the services without an objective.
type Baselines struct {
	// Since is the start of the window, the same for all services.
	Since time.Time                    `json:"since,omitzero"`
	Work  map[node.WorkloadID]Baseline `json:"work,omitempty"`
}

// A Baseline is how long a service waits for a CPU.
type Baseline struct {
	// Cgroup is that of the service (see Of).
	Cgroup node.CgroupPath `json:"cgroup,omitempty"`
	// Delay and Counters are the readings at the start of the window.
	Delay    node.RunQueueDelay `json:"delay,omitzero"`
	Counters Reading            `json:"counters,omitzero"`
	// Windows is the number of windows with enough waits. Quiet of them were quiet: BE work
	// caused hardly any of the waits, and the service's own limit none. Counts are the waits
	// of these by length, as in node.RunQueueDelay.
	Windows int64    `json:"windows,omitempty"`
	Quiet   int64    `json:"quiet,omitempty"`
	Counts  []uint64 `json:"counts,omitempty"`
}

// A Suggestion is an objective for the waits of a service that has none.
type Suggestion struct {
	// RunQueueDelay is three times Tail or more. It is 0 if there is no suggestion: there were
	// less than EnoughQuiet quiet windows, or the service waits too long for any objective.
	RunQueueDelay time.Duration `json:"run_queue_delay_ns,omitempty"`
	// Tail is a time that 99 of 100 waits in the quiet windows did not exceed.
	Tail time.Duration `json:"tail_ns,omitempty"`
	// Windows is the number of windows with enough waits for a verdict, and Quiet the number
	// of those in which BE work caused hardly any of them.
	Windows int64 `json:"windows,omitempty"`
	Quiet   int64 `json:"quiet,omitempty"`
}

// Of returns the suggestion for a service. It returns false if the service has an objective,
// or if its waits are not counted.
func (b Baselines) Of(id node.WorkloadID) (Suggestion, bool) {
	one, has := b.Work[id]
	if !has {
		return Suggestion{}, false
	}
	s := Suggestion{Windows: one.Windows, Quiet: one.Quiet}
	if one.Quiet < EnoughQuiet {
		return s, true
	}
	d := spread{before: make([]uint64, len(one.Counts)), after: one.Counts}
	for _, n := range one.Counts {
		d.waits += int64(n)
	}
	s.Tail = d.tail()
	s.RunQueueDelay = roundUp(s.Tail)
	return s, true
}

// roundUp returns the shortest round time that is suggestedTails tails or longer. It returns
// 0 if that is longer than any objective.
func roundUp(tail time.Duration) time.Duration {
	for unit := leastSuggested; unit <= mostSuggested; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if t := n * unit; t <= mostSuggested && t/suggestedTails >= tail {
				return t
			}
		}
	}
	return 0
}

// observe adds the waits of s, if the window is over.
func (b Baselines) observe(s node.Snapshot) Baselines {
	if age := s.At.Sub(b.Since); age >= 0 && age < BaselineWindow*19/20 {
		return b
	}
	counted := func(w *node.Workload) bool {
		return w.Class.Sensitive() && w.Objective == (node.Objective{}) && w.Usage.Delay.Counts != nil
	}
	blame := blameOf(s, counted)
	next := Baselines{Since: s.At}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if !counted(w) {
			continue
		}
		was := b.Work[w.ID]
		if was.Cgroup != w.Cgroup {
			was = Baseline{}
		}
		now := blame[w.ID].reading()
		now.Throttled = w.Usage.Throttled
		if next.Work == nil {
			next.Work = make(map[node.WorkloadID]Baseline, max(len(b.Work), 1))
		}
		next.Work[w.ID] = was.observe(w, now)
	}
	return next
}

func (b Baseline) observe(w *node.Workload, now Reading) Baseline {
	d, ok := waitsBetween(b.Delay, w.Usage.Delay)
	grown, fits := now.since(b.Counters)
	b.Cgroup, b.Delay, b.Counters = w.Cgroup, w.Usage.Delay, now
	if !ok || !fits || d.waits < enoughWaits {
		return b
	}
	b.Windows++
	if grown.isQuiet() {
		b.Quiet++
		counts := make([]uint64, len(d.after))
		copy(counts, b.Counts)
		for i := range counts {
			counts[i] += uint64(d.countBucket(i))
		}
		b.Counts = counts
	}
	if b.Windows >= 2*mostQuiet || b.Quiet >= mostQuiet {
		b.Windows, b.Quiet, b.Counts = b.Windows/2, b.Quiet/2, slices.Clone(b.Counts)
		for i := range b.Counts {
			b.Counts[i] /= 2
		}
	}
	return b
}
