// Package slo finds out whether LS workloads meet their objectives: bounds on how
// long their threads wait for a CPU, and on how long they need to answer requests.
package slo

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// Waits are judged over a window of LeastWindow to longestWindow. If a
	// service has few waits, its window is longer.
	LeastWindow   = time.Second
	longestWindow = 10 * time.Second
	// After LeastWindow, a window ends as soon as it has enoughWaits waits. A
	// judgement by the mean also needs enoughWaits waits.
	enoughWaits = 300
	// Tolerance is the number of long waits that a window may have beyond one
	// percent of its waits. A few long waits happen by chance.
	Tolerance = 2
	// calmBefore is the time without a miss after which an objective counts as
	// met.
	calmBefore = 5 * time.Second
	// The end of a histogram bucket may exceed the objective by 1/bucketSlack
	// of the objective. For an objective of 2 ms, the end may be 2.1 ms.
	bucketSlack = 16
	// tailOfMean is the assumed ratio of the 99th percentile to the mean. It is
	// used if only the mean is known. The ratio is ln 100 = 4.6 if waits are
	// exponentially distributed, as in a queue with random arrivals.
	tailOfMean = 5
	// A back-off of BE helps a service only if BE caused enough of its waiting
	// time: at least 1/blameDivisor.
	blameDivisor = 20
)

// A Tracker holds the state of each objective: the waits of its workload in a
// window of time.
type Tracker struct {
	Work     map[node.WorkloadID]State        `json:"work,omitempty"`
	Requests map[node.WorkloadID]RequestState `json:"requests,omitempty"`
	// Memory follows who takes memory. It is zero without an objective for requests.
	Memory Ledger `json:"memory,omitzero"`
	// Baselines are of the services without an objective.
	Baselines Baselines `json:"baselines,omitzero"`
}

// Of says whose state it is.
type Of struct {
	// Cgroup is that of the workload. A later pod of the same name has another one. What
	// was counted and judged in one cgroup says nothing about the work in another.
	Cgroup node.CgroupPath `json:"cgroup,omitempty"`
	// Service is the name under which is remembered what a service bears beside it: its
	// controller, so that its next pod is known, or its ID if it has none.
	Service string `json:"service,omitempty"`
}

func of(w *node.Workload) Of { return Of{w.Cgroup, cmp.Or(w.Owner, string(w.ID))} }

// A State is the SLO state of one workload.
type State struct {
	Of Of `json:"of,omitzero"`
	// Since is the start of the window. Delay and Counters are the values that
	// the counters had at that time.
	Since    time.Time          `json:"since,omitzero"`
	Delay    node.RunQueueDelay `json:"delay,omitzero"`
	Counters Reading            `json:"counters,omitzero"`
	// Miss is the last window that missed the objective. It is zero while the
	// objective is met.
	Miss Miss `json:"miss,omitzero"`
	// Doubted says that the last window of a workload with a quota would have been
	// the first to blame BE. When throttling begins, the waits are counted before
	// the throttled time. So only the next whole window can blame BE.
	Doubted bool `json:"doubted,omitempty"`
	// Judgement is the last verdict. Runners are the waits by runner at the start
	// of the window.
	Judgement Judgement `json:"judgement,omitzero"`
	Runners   parts     `json:"runners,omitempty"`
	// Usual are the waits of windows that kept the objective.
	Usual Usual `json:"usual,omitzero"`
	// Newer and Older are readings of the last seconds.
	Newer mark `json:"newer,omitzero"`
	Older mark `json:"older,omitzero"`
}

// Observe adds the waits of s. An SLO is violated if more than 1 of 100 waits
// in a window were longer than the objective. The SLO counts as met again after
// calmBefore without a violation. A workload has no state in Work if it has no
// objective for its waits, or no counters of waits, and none in Requests without
// an objective for its requests.
func (x Tracker) Observe(s node.Snapshot) Tracker {
	next := Tracker{Baselines: x.Baselines.observe(s)}
	var blame map[node.WorkloadID]parts
	var took Taken
	for i := range s.Workloads {
		w := &s.Workloads[i]
		want := wantOf(w)
		waits := want > 0 && w.Usage.Delay.Sum.Known()
		requests := hasRequests(w)
		if !waits && !requests {
			continue
		}
		if blame == nil {
			blame = blameOf(s, func(w *node.Workload) bool { return wantOf(w) > 0 || hasRequests(w) })
		}
		runners := blame[w.ID]
		r := runners.reading()
		r.CPU, r.Throttled = w.Usage.CPU, w.Usage.Throttled
		r.Periods, r.ThrottledPeriods = w.Usage.Periods, w.Usage.ThrottledPeriods
		r.NodeCPU, r.Steal = s.Usage.CPU, s.Usage.Steal
		if waits {
			if next.Work == nil {
				next.Work = make(map[node.WorkloadID]State, max(len(x.Work), 1))
			}
			was := x.Work[w.ID]
			if was.Of.Cgroup != w.Cgroup {
				was = State{}
			}
			f := was.observe(s.At, w, want, r, runners).marked(was, s.At, r, runners)
			f.Of = of(w)
			next.Work[w.ID] = f
		}
		if requests {
			if next.Requests == nil {
				next.Requests = make(map[node.WorkloadID]RequestState, max(len(x.Requests), 1))
				next.Memory = x.Memory.observe(s)
				took = next.Memory.taken(s.MemoryTotal)
			}
			if w.Usage.Delay.Counts != nil {
				r.Delay = w.Usage.Delay.Sum
			}
			r.Memory, r.IO = w.Usage.Pressure.Memory.Some, w.Usage.Pressure.IO.Some
			r.NodeMemory, r.NodeIO = s.Usage.Pressure.Memory.Some, s.Usage.Pressure.IO.Some
			was := x.Requests[w.ID]
			if was.Of.Cgroup != w.Cgroup {
				was = RequestState{}
			}
			f := was.observe(s.At, w, r, runners, took)
			f.Of = of(w)
			next.Requests[w.ID] = f
		}
	}
	return next
}

// wantOf returns the objective for the waits of a workload; 0: it has none.
func wantOf(w *node.Workload) time.Duration {
	if want := w.Objective.RunQueueDelay.Or(0); want > 0 && w.Class.Sensitive() {
		return want
	}
	return 0
}

func hasRequests(w *node.Workload) bool { return w.Class.Sensitive() && w.Objective.Requests.Stated() }

// Service returns the name under which is remembered what a service bears beside it.
func (x Tracker) Service(id node.WorkloadID) string {
	return cmp.Or(x.Work[id].Of.Service, x.Requests[id].Of.Service, string(id))
}

// Services returns the workloads whose objectives are tracked, by the name of Service.
func (x Tracker) Services() map[string][]node.WorkloadID {
	all := map[string][]node.WorkloadID{}
	for id := range x.Work {
		all[x.Service(id)] = append(all[x.Service(id)], id)
	}
	for id := range x.Requests {
		if _, also := x.Work[id]; !also {
			all[x.Service(id)] = append(all[x.Service(id)], id)
		}
	}
	return all
}

// Empty reports whether no objective is tracked.
func (x Tracker) Empty() bool { return len(x.Work) == 0 && len(x.Requests) == 0 }

// Unexplained lists the violations that a workload's own quota does not explain.
// Only for these, BE may lose anything. For a violation by requests, the measured
// waits must blame BE, too.
func (x Tracker) Unexplained() []Miss {
	return slices.DeleteFunc(x.Violations(), func(m Miss) bool {
		return m.Quota == Explains || m.Percentile != "" && m.Helpless
	})
}

// Contended lists the misses of Unexplained, and those of requests with the cause
// Contention. For these, BE may lose its shares of caches and memory bandwidth only.
func (x Tracker) Contended() []Miss {
	return slices.DeleteFunc(x.Violations(), func(m Miss) bool {
		return m.Quota == Explains || m.Percentile != "" && m.Helpless && x.Judged(m).Cause != Contention
	})
}

// Violations lists the misses of the workloads whose SLO is violated now, worst
// first, one for each workload: that of its waits, which are measured more often,
// unless BE is to blame only for that of its requests.
func (x Tracker) Violations() []Miss {
	var all []Miss
	for id, f := range x.Work {
		if r := x.Requests[id].Miss; f.Miss.Happened() && (!f.Miss.Helpless || !r.Happened() || r.Helpless) {
			all = append(all, f.Miss)
		}
	}
	for id, f := range x.Requests {
		if w := x.Work[id].Miss; f.Miss.Happened() && (!w.Happened() || w.Helpless && !f.Miss.Helpless) {
			all = append(all, f.Miss)
		}
	}
	slices.SortFunc(all, func(a, b Miss) int {
		return cmp.Or(cmp.Compare(b.Percent(), a.Percent()), strings.Compare(string(a.Workload), string(b.Workload)))
	})
	return all
}

// Judged returns the judgement about a violation.
func (x Tracker) Judged(m Miss) Judgement {
	if m.Percentile != "" {
		return x.Requests[m.Workload].Judgement
	}
	return x.Work[m.Workload].Judgement
}

// Misses reports whether a workload misses an objective. A miss of requests for
// which BE is not to blame does not count.
func (x Tracker) Misses(id node.WorkloadID) bool {
	r := x.Requests[id].Miss
	return x.Work[id].Miss.Happened() || r.Happened() && !r.Helpless
}

// blameOf returns for what each of the given workloads has waited.
func blameOf(s node.Snapshot, wanted func(*node.Workload) bool) map[node.WorkloadID]parts {
	if len(s.Waits) == 0 {
		return nil
	}
	all := map[node.WorkloadID]parts{}
	causes := make(map[node.WorkloadID]Cause, len(s.Workloads)+len(node.Classes)+1)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		causes[w.ID] = causeOfClass(w.Class)
		if wanted(w) {
			all[w.ID] = parts{}
		}
	}
	for _, c := range node.Classes {
		causes[node.RestOf(c)] = causeOfClass(c)
	}
	causes[node.RunnerKernel], causes[node.RunnerOthers] = System, System
	for _, w := range s.Waits {
		of := all[w.Waiter]
		if of == nil {
			continue
		}
		p := part{Time: w.Time, Cause: cmp.Or(causes[w.Runner], Unclear)}
		if w.Runner == w.Waiter {
			p.Cause = OwnThreads
		}
		p.Time += of[w.Runner].Time
		of[w.Runner] = p
	}
	return all
}

// causeOfClass returns the cause of waits for work of a class.
func causeOfClass(c node.Class) Cause {
	switch {
	case c == node.BE:
		return ForBE
	case c.Sensitive():
		return OtherService
	}
	return System
}

// reading returns the sums of the waits.
func (p parts) reading() (r Reading) {
	for _, w := range p {
		r.Waited += w.Time
		switch w.Cause {
		case ForBE:
			r.ByBE += w.Time
		case OwnThreads:
			r.BySelf += w.Time
		case OtherService:
			r.ByServices += w.Time
		case System:
			r.BySystem += w.Time
		}
	}
	return r
}

func (f State) observe(at time.Time, w *node.Workload, want time.Duration, now Reading, runners parts) State {
	if was := f.Judgement.Objective; was != 0 && was != want {
		f = State{} // the owner has changed the objective
	}
	if f.Miss.At.After(at) { // the clock was set back; the time at would mark a new miss
		f.Miss.At = at.Add(-1)
	}
	if f.Judgement.At.After(at) {
		f.Judgement.At = at.Add(-1)
	}
	d, ok := waitsBetween(f.Delay, w.Usage.Delay)
	grown, fits := now.since(f.Counters)
	length := at.Sub(f.Since)
	if f.Since.IsZero() || !ok || !fits || length < 0 {
		return f.begin(at, w, now, runners)
	}
	throttled := grown.throttledWaits()
	missed := f.Miss.Happened()
	blamed := missed && f.Miss.Quota != Explains
	if !grown.isHeldByQuota() && d.isMissed(want, throttled) && (!missed && !f.Doubted || length >= LeastWindow) {
		if grown.Periods.Or(0) > 0 && !blamed && !f.Doubted {
			f.Doubted = true
			return f.begin(at, w, now, runners)
		}
		f.Miss, f.Doubted = missOf(at, w.ID, want, d), false
		parts := runners.since(f.Runners)
		cause := causeOf(grown, grown.hardlyForBE(throttled), parts)
		if other := f.Usual.newCause(grown, length); cause == ForBE && other != "" {
			cause = other
		}
		f.Miss.Helpless = cause != ForBE && cause != UnknownRunner
		if throttled > 0 {
			f.Miss.Quota = Adds
		}
		f.Judgement = f.Judgement.missed(at, length, want, d, cause, grown, parts, f.lately(at, now, runners))
		return f.begin(at, w, now, runners)
	}
	if length < longestWindow && (length < LeastWindow || d.waits < enoughWaits) {
		return f
	}
	// A window with a miss for which only the quota is to blame shows nothing
	// about BE. It ends as late as a window without a miss, and neither prolongs
	// a miss for another reason nor ends it early.
	calm := !missed || at.Sub(f.Miss.At) >= calmBefore
	switch {
	case (calm || !blamed) && d.isMissed(want, 0):
		f.Miss, f.Doubted = missOf(at, w.ID, want, d), false
		f.Miss.Quota, f.Miss.Helpless = Explains, true
		f.Judgement = f.Judgement.missed(at, length, want, d, OwnLimit, grown, runners.since(f.Runners), f.lately(at, now, runners))
	case calm:
		f = State{Judgement: f.Judgement.keep(at, want, d, grown), Usual: f.Usual.with(grown, length)}
	}
	return f.begin(at, w, now, runners)
}

// begin starts a new window.
func (f State) begin(at time.Time, w *node.Workload, now Reading, runners parts) State {
	f.Since, f.Delay, f.Counters, f.Runners = at, w.Usage.Delay, now, runners
	return f
}

// A spread holds the waits of a window. They are counted by length, or only
// their number and sum are known.
type spread struct {
	waits int64
	sum   time.Duration
	// before and after are the counts by length at the start and at the end of
	// the window. A list of their differences would need memory in each tick.
	before, after []uint64
}

// countBucket returns the number of waits in a bucket.
func (d spread) countBucket(bucket int) int64 { return int64(d.after[bucket] - d.before[bucket]) }

// waitsBetween returns the waits between two readings. It returns false if the
// readings do not fit together, for example after a reset of a counter.
func waitsBetween(before, after node.RunQueueDelay) (spread, bool) {
	d := spread{sum: after.Sum.Or(0) - before.Sum.Or(0)}
	if d.sum < 0 || len(before.Counts) != len(after.Counts) {
		return spread{}, false
	}
	if after.Counts == nil {
		d.waits = after.Timeslices.Or(0) - before.Timeslices.Or(0)
		return d, d.waits >= 0
	}
	d.before, d.after = before.Counts, after.Counts
	for i, n := range after.Counts {
		if n < before.Counts[i] {
			return spread{}, false
		}
		d.waits += d.countBucket(i)
	}
	return d, true
}

// isMissed reports whether more than 1 of 100 waits were longer than the
// objective, if throttling explains waits of the given total time: the longest
// ones, so that as few waits as possible count as explained. The histogram has
// only the number of waits in a bucket. If some of them may have been longer, all
// count as longer.
func (d spread) isMissed(want, throttled time.Duration) bool {
	if d.after == nil {
		d.sum = max(d.sum-throttled, 0)
		return d.waits >= enoughWaits && d.tail() > want
	}
	var long int64
	waits := d.waits
	for i := len(d.after) - 1; i >= 0; i-- {
		if i < len(d.after)-1 && node.DelayBound(i) <= want+want/bucketSlack {
			break
		}
		middle := node.DelayBound(i) / 4 * 3
		explained := min(d.countBucket(i), int64(throttled/middle))
		throttled -= time.Duration(explained) * middle
		waits -= explained
		long += d.countBucket(i) - explained
	}
	return 100*long > waits+100*Tolerance
}

// tail returns a time that 99 of 100 waits did not exceed.
func (d spread) tail() time.Duration {
	if d.after == nil {
		return d.sum / time.Duration(max(d.waits, 1)) * tailOfMean
	}
	var longer int64
	for i := len(d.after) - 1; i >= 0; i-- {
		if longer += d.countBucket(i); 100*longer > d.waits {
			return node.DelayBound(i)
		}
	}
	return 0
}
