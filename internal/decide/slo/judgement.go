package slo

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Verdict says whether a workload meets its objective.
type Verdict string

// The verdicts. Undecided has a cause, too: BelowLeast, Unmeasured, TooFew,
// NoSource, Straddled or Overlapping.
const (
	Kept      Verdict = "kept"
	Missed    Verdict = "missed"
	Undecided Verdict = "undecided"
)

// A Cause says why an objective is missed, or why there is no verdict.
type Cause string

const (
	// ForBE: best-effort work ran while the workload waited, for at least
	// 1/blameDivisor of the time, and for no less than any other kind of work. Only
	// for this cause, and for UnknownRunner, best-effort work loses CPU.
	ForBE Cause = "best-effort"
	// OwnLimit: the workload would meet its objective without its own CPU limit.
	OwnLimit Cause = "own-limit"
	// OwnThreads: the workload waited mostly for its own threads.
	OwnThreads Cause = "own-threads"
	// OtherService: it waited mostly for other latency-sensitive work.
	OtherService Cause = "other-service"
	// System: it waited mostly for the kernel, for daemons of the node, or for
	// work that no rule matches.
	System Cause = "system"
	// Host: the hypervisor ran something else for more of the time than any work of
	// this node that the workload waited for.
	Host Cause = "host"
	// Unclear: no thread ran, or the waiting thread was moved to another CPU.
	Unclear Cause = "unclear"
	// UnknownRunner: only the mean wait is measured here, not which work ran
	// meanwhile. Best-effort work gives way.
	UnknownRunner Cause = "unknown-runner"
	// BelowLeast: the objective for waits is shorter than the administrator allows.
	BelowLeast Cause = "below-least"
	// Unmeasured: the waits cannot be measured on this node.
	Unmeasured Cause = "unmeasured"
	// TooFew: there were too few waits or requests for a verdict, or the first window
	// has not ended.
	TooFew Cause = "too-few"
	// The causes up to NotWaiting are those of slow requests of a workload whose threads
	// hardly waited for a CPU.
	//
	// BEMemory: its threads stalled on memory, and BE work took memory lately. Less CPU for
	// BE would not give it back.
	BEMemory Cause = "best-effort-memory"
	// Memory: its threads stalled on memory for another reason, such as its own limit.
	Memory Cause = "memory"
	// Contention: the same requests needed more CPU time while other work ran more: caches,
	// the bandwidth of memory or the siblings of its CPUs were shared.
	Contention Cause = "contention"
	// Storage: its threads stalled on a disk.
	Storage Cause = "storage"
	// Downstream: its threads slept. They waited for another service, or for locks of the
	// workload itself.
	Downstream Cause = "downstream"
	// NotWaiting: none of these is certain, or the waits are not measured.
	NotWaiting Cause = "not-waiting"
	// NoSource: the durations of requests could not be read.
	NoSource Cause = "no-source"
	// Straddled: too many requests are in the bucket of the histogram in which the
	// target lies. Some of them may have been longer.
	Straddled Cause = "straddled"
	// Overlapping: too often the source could not tell how long a request took, mostly
	// because requests overlap on a connection.
	Overlapping Cause = "overlapping"
)

// Causes lists all causes.
var Causes = []Cause{
	ForBE, OwnLimit, OwnThreads, OtherService, System, Host, Unclear, UnknownRunner, BEMemory, Memory, Contention, Storage, Downstream, NotWaiting,
	BelowLeast, Unmeasured, TooFew, NoSource, Straddled, Overlapping,
}

// A Judgement is the verdict about the objective of one workload. If it has one for
// its waits and one for its requests, the verdict is the worse one; an objective
// without a verdict does not count beside one that has a verdict.
type Judgement struct {
	Verdict Verdict `json:"verdict,omitempty"`
	Cause   Cause   `json:"cause,omitempty"` // empty if the objective is kept
	// Since is the time of the snapshot with which the verdict began.
	Since time.Time `json:"since,omitzero"`
	// Objective is the time within which 99 of 100 waits should end. 0: there is no
	// objective for waits.
	Objective time.Duration `json:"objective_ns,omitempty"`
	// Requests is the verdict about the objective for requests. It is zero if there
	// is none.
	Requests RequestJudgement `json:"requests,omitzero"`
	// Tail is a time that 99 of 100 waits in the last judged window did not
	// exceed. Estimated says that only their mean was measured.
	Tail      time.Duration `json:"tail_ns,omitempty"`
	Estimated bool          `json:"estimated,omitempty"`
	// Quiet is the best window of about an hour in which BE caused hardly any waits.
	Quiet Quiet `json:"quiet,omitzero"`
	// Cause and the fields below describe the window that ended At: the last one with
	// a miss, or an earlier one with the cause ForBE (see blameStays).
	At time.Time `json:"at,omitzero"`
	// Begun is the start of this window. A window of requests ends before At, when its
	// source told of it, and Waits are those of the time around it.
	Begun time.Time `json:"begun,omitzero"`
	Waits
	// Last are the waits at the end of the window; see Lately.
	Last Waits `json:"last,omitzero"`
	// Periods are the periods of the workload's own CPU limit in the window. In
	// ThrottledPeriods of them the limit stopped it.
	Periods          int64 `json:"periods,omitempty"`
	ThrottledPeriods int64 `json:"throttled_periods,omitempty"`
}

// A Runner is work that had a CPU for which a workload waited. Cause is the
// cause of a miss for which it would be to blame.
type Runner struct {
	ID    node.WorkloadID `json:"id"`
	Cause Cause           `json:"cause"`
	Time  time.Duration   `json:"time_ns"`
}

// Quiet is the tail of a window without waits for BE, of waits or of requests, and the time
// at which the window ended. It is zero if there was none. Missed says of requests that their
// target was missed in it.
type Quiet struct {
	Tail   time.Duration `json:"tail_ns,omitempty"`
	At     time.Time     `json:"at,omitzero"`
	Missed bool          `json:"missed,omitempty"`
}

// with returns the better one of q and a window that ended at a time. grown is the
// growth of the counters in the window. A window with few waits, or in which the
// workload's own limit throttled it, does not count.
func (q Quiet) with(at time.Time, d spread, grown Reading) Quiet {
	if d.after == nil || d.waits < enoughWaits || !grown.isQuiet() {
		return q
	}
	return q.best(at, d.tail())
}

// best returns the better one of q and a window with this tail.
func (q Quiet) best(at time.Time, tail time.Duration) Quiet {
	age := at.Sub(q.At)
	if tail > q.Tail && !q.At.IsZero() && age >= 0 && age < quietStays {
		return q
	}
	return Quiet{Tail: tail, At: at}
}

// TooShort reports whether the objective for waits is shorter than what this node
// keeps without BE.
func (j Judgement) TooShort() bool {
	return j.Objective > 0 && j.Quiet.Tail > j.Objective+j.Objective/bucketSlack
}

// ByTolerance reports whether the objective for waits is kept only because a window may
// have Tolerance long waits more than one percent: Tail is longer than the objective.
func (j Judgement) ByTolerance() bool {
	return j.Verdict == Kept && j.Objective > 0 && j.Tail > j.Objective+j.Objective/bucketSlack
}

// TooShort reports whether the target that decided is missed on this node without BE as
// well.
func (r RequestJudgement) TooShort() bool { return r.Quiet.Missed }

const (
	// quietStays is the time for which the best window without waits for BE counts. A
	// service that got more load since has a longer one.
	quietStays = time.Hour
	// maxRunners is the number of runners in a judgement.
	maxRunners = 5
	// blameStays is the time for which a miss keeps the cause ForBE, although later
	// windows have another. BE gives way within a second, so its share of the waits
	// falls at once. But reports, which come every 10 s, must say why it gave way.
	blameStays = 15 * time.Second
)

// Judgements returns the verdict about each objective. It returns nil if there
// is no objective.
func (x Tracker) Judgements(s node.Snapshot) map[node.WorkloadID]Judgement {
	var all map[node.WorkloadID]Judgement
	for i := range s.Workloads {
		w := &s.Workloads[i]
		want, requests := wantOf(w), hasRequests(w)
		strict, tooStrict := w.Objective.TooStrict.Value()
		if want == 0 && !requests && !tooStrict {
			continue
		}
		if all == nil {
			all = map[node.WorkloadID]Judgement{}
		}
		j := x.Requests[w.ID].Judgement
		switch {
		case want > 0:
			j = x.ofWaits(w.ID, want).with(j)
		case tooStrict:
			j = Judgement{Verdict: Undecided, Cause: BelowLeast, Objective: strict}.with(j)
		}
		all[w.ID] = j
	}
	return all
}

// ofWaits returns the verdict about the objective for the waits of a workload.
func (x Tracker) ofWaits(id node.WorkloadID, want time.Duration) Judgement {
	f, tracked := x.Work[id]
	switch {
	case !tracked:
		return Judgement{Verdict: Undecided, Cause: Unmeasured, Objective: want}
	case f.Judgement.Verdict == "":
		return Judgement{Verdict: Undecided, Cause: TooFew, Objective: want, Since: f.Since}
	}
	return f.Judgement
}

// with adds the verdict about requests to that about waits. If both are missed, the
// cause is the one for which BE gives way, as in Tracker.Violations.
func (j Judgement) with(r Judgement) Judgement {
	if r.Cause == ForBE && j.Cause != ForBE && j.Cause != UnknownRunner {
		j.Verdict = "" // the miss of the requests goes before it
	}
	if j.Verdict == Undecided && r.Verdict == Kept || j.Verdict != Missed && r.Verdict == Missed {
		r.Objective, r.Tail, r.Estimated, r.Quiet = j.Objective, j.Tail, j.Estimated, j.Quiet
		return r
	}
	j.Requests = r.Requests
	return j
}

// keep records a window without a miss. grown is the growth of the counters in the
// window.
func (j Judgement) keep(at time.Time, want time.Duration, d spread, grown Reading) Judgement {
	next := Judgement{Verdict: Kept, Since: at, Objective: want, Tail: d.tail(), Estimated: d.after == nil}
	if next.Estimated && d.waits < enoughWaits {
		next = Judgement{Verdict: Undecided, Cause: TooFew, Since: at, Objective: want}
	}
	if j.Verdict == next.Verdict {
		next.Since = j.Since
	}
	next.Quiet = j.Quiet.with(at, d, grown)
	return next
}

// missed records a window with a miss, of the given length. grown is the growth of the counters in the
// window, and runners are the parts of the waits. last are the waits at its end.
func (j Judgement) missed(at time.Time, length, want time.Duration, d spread, cause Cause, grown Reading, runners []Runner, last Waits) Judgement {
	next := Judgement{
		Verdict: Missed, Cause: cause, Since: at, Objective: want, Tail: d.tail(), Estimated: d.after == nil,
		At: at, Begun: at.Add(-length), Waits: waitsOf(length, grown, runners), Last: last, Periods: grown.Periods.Or(0), ThrottledPeriods: grown.ThrottledPeriods.Or(0),
	}
	if j.Verdict == Missed {
		next.Since = j.Since
	}
	next.Quiet = j.Quiet.with(at, d, grown)
	if j.Verdict == Missed && j.Cause == ForBE && cause != ForBE && at.Sub(j.At) < blameStays {
		j.Tail, j.Estimated, j.Quiet = next.Tail, next.Estimated, next.Quiet
		return j
	}
	return next
}

// causeOf returns the cause of a miss. hardly says that BE caused hardly any of
// the waits, and runners are the parts of the waits, longest first.
func causeOf(grown Reading, hardly bool, runners []Runner) Cause {
	switch {
	case grown.Waited <= 0:
		return UnknownRunner
	case !hardly:
		return ForBE
	}
	sums := map[Cause]time.Duration{Host: grown.byHost()}
	for _, r := range runners {
		sums[r.Cause] += r.Time
	}
	most := Unclear
	for _, c := range []Cause{OwnThreads, OtherService, System, Host} {
		if sums[c] > sums[most] {
			most = c
		}
	}
	return most
}

// A part is a part of the waits of one workload: those that one runner caused.
type part struct {
	Time  time.Duration `json:"time_ns"`
	Cause Cause         `json:"cause"`
}

// parts holds the waits of one workload by runner, since counting began.
type parts map[node.WorkloadID]part

// since returns by how much the waits for each runner have grown since an
// earlier reading, the longest first.
//
// Only some runners have a name of their own. The others share the name
// node.RestOf. A runner that has got a name since was a part of the rest before,
// and one that has lost its name is a part of the rest now. The sum over the
// runners of one class is exact nevertheless. So what the runners with a name in
// both readings leave of the growth of this sum is divided among the new names,
// and then the rest.
func (p parts) since(before parts) []Runner {
	left := map[Cause]time.Duration{}
	for _, b := range before {
		left[b.Cause] -= b.Time
	}
	var all, fresh []Runner
	for id, now := range p {
		left[now.Cause] += now.Time
		b, had := before[id]
		switch {
		case isRest(id):
		case had && b.Cause == now.Cause:
			all = append(all, Runner{id, now.Cause, max(now.Time-b.Time, 0)})
		default:
			fresh = append(fresh, Runner{id, now.Cause, now.Time})
		}
	}
	for _, r := range all {
		left[r.Cause] -= r.Time
	}
	longest := func(a, b Runner) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), strings.Compare(string(a.ID), string(b.ID)))
	}
	slices.SortFunc(fresh, longest)
	for _, r := range fresh {
		r.Time = max(min(r.Time, left[r.Cause]), 0)
		left[r.Cause] -= r.Time
		all = append(all, r)
	}
	for id, now := range p {
		if isRest(id) {
			all = append(all, Runner{id, now.Cause, max(left[now.Cause], 0)})
			left[now.Cause] = 0
		}
	}
	all = slices.DeleteFunc(all, func(r Runner) bool { return r.Time <= 0 })
	slices.SortFunc(all, longest)
	return all
}

func isRest(id node.WorkloadID) bool {
	return slices.ContainsFunc(node.Classes, func(c node.Class) bool { return id == node.RestOf(c) })
}
