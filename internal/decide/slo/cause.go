// This file says who is to blame for the waits of a window. The shares come from
// the counters of waits by runner. See spent.go for causes without such waits.

package slo

import (
	"cmp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// Waits are the waits of one workload in a stretch of time, by what ran meanwhile.
type Waits struct {
	// Window is the length of this time. Waited is the waiting time of all threads;
	// 0: it is not known for what they waited. Runners are those that caused most of
	// it, with the time of each.
	Window  time.Duration `json:"window_ns,omitempty"`
	Waited  time.Duration `json:"waited_ns,omitempty"`
	Runners []Runner      `json:"runners,omitempty"`
	// The parts of Waited during which BE work ran, the workload itself, other
	// services, and the system.
	ByBE       time.Duration `json:"by_be_ns,omitempty"`
	BySelf     time.Duration `json:"by_self_ns,omitempty"`
	ByServices time.Duration `json:"by_services_ns,omitempty"`
	BySystem   time.Duration `json:"by_system_ns,omitempty"`
}

// waitsOf returns the waits of a window. grown is the growth of the counters in it,
// and runners are the parts of the waits, longest first.
func waitsOf(length time.Duration, grown Reading, runners []Runner) Waits {
	return Waits{
		Window: length, Waited: grown.Waited, Runners: slices.Clone(runners[:min(len(runners), maxRunners)]),
		ByBE: grown.ByBE, BySelf: grown.BySelf, ByServices: grown.ByServices, BySystem: grown.BySystem,
	}
}

// A Share is the part of the waiting time that one kind of work caused.
type Share struct {
	Cause   Cause `json:"cause"`
	Percent int64 `json:"percent"`
}

// Shares returns the parts of the waiting time, the largest first. Less than a
// percent is left out.
func (w Waits) Shares() []Share {
	var all []Share
	add := func(c Cause, t time.Duration) {
		if percent := int64(t * 100 / max(w.Waited, 1)); percent > 0 {
			all = append(all, Share{c, percent})
		}
	}
	add(ForBE, w.ByBE)
	add(OwnThreads, w.BySelf)
	add(OtherService, w.ByServices)
	add(System, w.BySystem)
	add(Unclear, w.Waited-w.ByBE-w.BySelf-w.ByServices-w.BySystem)
	slices.SortStableFunc(all, func(a, b Share) int { return cmp.Compare(b.Percent, a.Percent) })
	return all
}

// Culprit returns the work that is most to blame for a miss, and its share of the
// waiting time in percent, or of the memory that BE work took. It returns "" if the
// cause is not work of another workload.
func (j Judgement) Culprit() (node.WorkloadID, int64) {
	switch {
	case j.Verdict != Missed || j.Cause == OwnThreads || j.Cause == OwnLimit:
		return "", 0
	case j.Cause == BEMemory:
		return j.Requests.Spent.Took.By, j.Requests.Spent.Took.Percent
	}
	for _, r := range j.Runners { // longest first
		if r.Cause == j.Cause && r.Cause != Unclear {
			return r.ID, int64(r.Time * 100 / max(j.Waited, 1))
		}
	}
	return "", 0
}

// Lately returns the waits of the last second or two of the window, or of the whole
// window if it is not longer than that. A window may begin long before the work
// that made the service wait, and have few waits for it.
func (j Judgement) Lately() Waits {
	if j.Last.Window > 0 {
		return j.Last
	}
	return j.Waits
}

// A mark is a reading of a workload's waits.
type mark struct {
	At       time.Time `json:"at,omitzero"`
	Counters Reading   `json:"counters,omitzero"`
	Runners  parts     `json:"runners,omitempty"`
}

// leastMark is the least time of Lately. It is a little less than the usual time
// between two ticks.
const leastMark = LeastWindow * 9 / 10

// lately returns the waits since the last of the two marks that is at least
// leastMark old. It returns zero Waits if that is not later than the start of the
// window.
func (f State) lately(at time.Time, now Reading, runners parts) Waits {
	for _, m := range []mark{f.Newer, f.Older} {
		if length := at.Sub(m.At); !m.At.After(f.Since) || length < leastMark {
			continue
		} else if grown, fits := now.since(m.Counters); fits {
			return waitsOf(length, grown, runners.since(m.Runners))
		}
	}
	return Waits{}
}

// marked keeps two readings, so that one of them is always about a second old. was
// is the state before the tick.
func (f State) marked(was State, at time.Time, now Reading, runners parts) State {
	f.Newer, f.Older = was.Newer, was.Older
	if length := at.Sub(f.Newer.At); length >= leastMark || length < 0 {
		f.Newer, f.Older = mark{at, now, runners}, f.Newer
	}
	return f
}
