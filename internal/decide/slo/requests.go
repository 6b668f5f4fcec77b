// This file judges objectives for the durations of requests. A source outside of
// the kernel counts them: often the workload itself, so the counts may be late,
// wrong or absent. What they say costs BE something only if the waits that the
// node has measured confirm it.

package slo

import (
	"cmp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// Requests are judged over windows of requestWindow or more, because a source
	// is read every few seconds. A window without enoughRequests grows to
	// longestRequestWindow, and so does one whose slow requests are more than the
	// objective allows and may yet be chance (see Tolerance).
	requestWindow        = 15 * time.Second
	longestRequestWindow = time.Minute
	enoughRequests       = 100
	// A reading counts for staleAfter. Until then one or two failed readings do
	// not matter.
	staleAfter = 20 * time.Second
	// A Prometheus server often reads a workload every 15 s, a little more or less, and
	// tells it later. So its windows are queryWindow or more, and a reading counts for
	// staleQueryAfter, by the time at which the server made it.
	queryWindow     = 14 * time.Second
	staleQueryAfter = time.Minute
	// BE may be to blame for a miss only if the workload waited for BE for at least
	// 1/delayDivisor of the target, for each request over the target.
	delayDivisor = 4
	// A source decides only if it could tell how long requests took, but for
	// 1/unsureDivisor of them.
	unsureDivisor = 100
	// Marks of the waits are kept for as long as a reading counts.
	maxMarks = 7
)

// A RequestState is the state of an objective for requests of one workload.
type RequestState struct {
	Of Of `json:"of,omitzero"`
	// Want is the objective that is judged.
	Want node.RequestObjective `json:"want,omitzero"`
	// Begun is the time of the first snapshot with this objective. From is the
	// reading with which the window began. It is zero if there is no window.
	Begun time.Time     `json:"begun,omitzero"`
	From  node.Requests `json:"from,omitzero"`
	// Read is the time of the last reading. A snapshot may have none, although there
	// was one: the reader begins again with the agent and with the address of the pod.
	Read time.Time `json:"read,omitzero"`
	// After is the time of the snapshot with the last window for which BE work was to
	// blame. What was done then is not older, so a window that shows what it does begins
	// with a reading that is not older either.
	After time.Time `json:"after,omitzero"`
	// Start has the waits at the start of the window, and Marks those of the time in which
	// readings may still come in, the oldest first. A source tells later what it has
	// counted: a Prometheus server by up to a minute.
	Start mark   `json:"start,omitzero"`
	Marks []mark `json:"marks,omitempty"`
	// Quiet has, for each percentile with a target, the best window of about an hour in
	// which BE caused hardly any waits.
	Quiet [len(node.Percentiles)]Quiet `json:"quiet,omitzero"`
	// Costs is what requests need while the objective is kept, by their number in a second
	// in powers of two.
	Costs map[int]Cost `json:"costs,omitempty"`
	// Miss is the last window, if it missed the objective.
	Miss      Miss      `json:"miss,omitzero"`
	Judgement Judgement `json:"judgement,omitzero"`
}

// RequestJudgement is the verdict about an objective for requests.
type RequestJudgement struct {
	Verdict Verdict            `json:"verdict,omitempty"`
	Cause   Cause              `json:"cause,omitempty"`
	Trouble node.SourceTrouble `json:"trouble,omitempty"` // the reason of NoSource
	Since   time.Time          `json:"since,omitzero"`
	// Want is the objective, and Target the index of the percentile that decided the
	// verdict in it. The numbers below describe the last judged window.
	Want   node.RequestObjective `json:"want,omitzero"`
	Target int                   `json:"target,omitempty"`
	// Total is the number of requests whose length is known. At least OverLeast and at
	// most OverMost requests were longer than the target; both are equal if a bucket
	// ends there and the length of each request is known.
	// Of Unknown requests besides, the source could not tell how long they took.
	Total     int64 `json:"total,omitempty"`
	Unknown   int64 `json:"unknown,omitempty"`
	OverLeast int64 `json:"over_least,omitempty"`
	OverMost  int64 `json:"over_most,omitempty"`
	// Tail is a time within which the part of the requests named by the percentile
	// was answered. It is absent if the longest bucket has no end.
	Tail node.Maybe[time.Duration] `json:"tail,omitzero"`
	// Quiet is the best window of about an hour in which BE caused hardly any waits.
	Quiet Quiet `json:"quiet,omitzero"`
	// Bounds and Counts are the histogram of the window, as in node.Requests.
	Bounds []time.Duration `json:"bounds_ns,omitempty"`
	Counts []int64         `json:"counts,omitempty"`
	// Spent says how the time was spent, if the objective was missed and the threads hardly
	// waited for a CPU.
	Spent Spent `json:"spent,omitzero"`
}

// UnknownPercent returns for how many of 100 requests of the last window the source could
// not tell how long they took, rounded up.
func (j RequestJudgement) UnknownPercent() int64 {
	seen := max(j.Total+j.Unknown, 1)
	return (100*j.Unknown + seen - 1) / seen
}

// observe adds a reading of the workload's requests. now and runners are its waits, and
// took is the BE work that took memory lately.
func (f RequestState) observe(at time.Time, w *node.Workload, now Reading, runners parts, took Taken) RequestState {
	want, got := w.Objective.Requests, w.Usage.Requests
	if f.Want != want || f.Begun.After(at) { // the owner has changed it, or the state is from before a reboot
		f = RequestState{Want: want, Begun: at}
	}
	if f.Judgement.Verdict == "" {
		f.Judgement = f.judged(at, Undecided, TooFew)
	}
	if f.After.After(at) { // the clock was set back
		f.After = at
	}
	if !got.At.IsZero() {
		f.Read = got.At
	}
	window, life := spansOf(want.Source)
	present := mark{at, now, runners}
	f = f.marked(present, life)
	begin := func() RequestState {
		f.From, f.Start = got, f.lastMark(got.At, present)
		return f
	}
	silent := at.Sub(f.lastReading()) > life
	refused := got.At.IsZero() && got.Trouble != "" && (f.Read.IsZero() || got.Trouble.Forbids())
	switch {
	case silent || refused:
		return f.undecided(at, NoSource, cmp.Or(got.Trouble, node.TroubleStale))
	case got.At.IsZero(), got.At.Equal(f.From.At): // no new reading
		return f
	case f.From.At.IsZero():
		if f.Judgement.Cause == NoSource { // it answers again
			f = f.undecided(at, TooFew, "")
		}
		if got.At.Before(f.After) {
			return f
		}
		return begin()
	}
	d, fits := requestsBetween(f.From, got)
	length, seen := got.At.Sub(f.From.At), d.total+d.unsure
	end := f.firstMark(got.At, f.Start.At.Add(length), present)
	grown, also := end.Counters.since(f.Start.Counters)
	if !fits {
		f = f.undecided(at, NoSource, node.TroubleReset)
		return begin()
	}
	if !also {
		return begin()
	}
	switch {
	case length < window || seen < enoughRequests && length < longestRequestWindow:
		return f
	case seen < enoughRequests:
		f = f.undecided(at, TooFew, "")
		return begin()
	case d.unsure > seen/unsureDivisor:
		f = f.undecided(at, Overlapping, "")
		f.Judgement.Requests.Total, f.Judgement.Requests.Unknown = d.total, d.unsure
		return begin()
	}
	judged := f.judge(at, w, d, length, end.At.Sub(f.Start.At), grown, end.Runners.since(f.Start.Runners), took)
	if judged.Judgement.Cause == TooFew && length < longestRequestWindow {
		return f
	}
	f = judged
	if f.Miss.Happened() && !f.Miss.Helpless && got.At.Before(at) {
		f.From, f.Start, f.After = node.Requests{}, mark{}, at
		return f
	}
	return begin()
}

// Window returns the start of the window in which the requests of a workload are judged now.
// It is zero if the next one has not begun. Window returns false if they are not judged, or
// if the last window had no verdict, as of a service that gets no more requests.
func (x Tracker) Window(id node.WorkloadID) (begun time.Time, judged bool) {
	r, tracked := x.Requests[id]
	return r.From.At, tracked && r.Judgement.Verdict != Undecided
}

// marked adds a mark of the waits, if the last one is old enough. Readings count for life,
// and so long must the marks reach back.
func (f RequestState) marked(present mark, life time.Duration) RequestState {
	if n := len(f.Marks); n > 0 {
		last := f.Marks[n-1]
		age := present.At.Sub(last.At)
		if _, fits := present.Counters.since(last.Counters); !fits || age < 0 { // counted anew, or the clock was set back
			f.Marks = nil
		} else if age < life/(maxMarks-1) {
			return f
		}
	}
	kept := f.Marks[max(len(f.Marks)+1-maxMarks, 0):]
	f.Marks = append(slices.Clone(kept), present)
	return f
}

// lastMark returns the last mark that is not later than a time, or else the oldest one.
func (f RequestState) lastMark(t time.Time, present mark) mark {
	if !present.At.After(t) {
		return present
	}
	found := f.Marks[0]
	for _, m := range f.Marks {
		if !m.At.After(t) {
			found = m
		}
	}
	return found
}

// firstMark returns the first mark that is earlier than none of two times, or else the
// present one.
func (f RequestState) firstMark(t, other time.Time, present mark) mark {
	for _, m := range f.Marks {
		if !m.At.Before(t) && !m.At.Before(other) {
			return m
		}
	}
	return present
}

// spansOf returns the shortest window of a source, and the time for which its readings
// count.
func spansOf(s node.RequestSource) (window, life time.Duration) {
	if s == node.SourceQuery {
		return queryWindow, staleQueryAfter
	}
	return requestWindow, staleAfter
}

// lastReading returns the time of the last reading, or of the first snapshot if
// there was none.
func (f RequestState) lastReading() time.Time {
	if f.Read.IsZero() {
		return f.Begun
	}
	return f.Read
}

// undecided ends a window without a verdict. A miss ends, too: nothing shows any
// more that it goes on.
func (f RequestState) undecided(at time.Time, cause Cause, trouble node.SourceTrouble) RequestState {
	j := f.judged(at, Undecided, cause)
	j.Requests.Trouble = trouble
	return RequestState{Want: f.Want, Begun: f.Begun, Read: f.Read, Marks: f.Marks, Quiet: f.Quiet, Costs: f.Costs, Judgement: j}
}

// judged returns a verdict without the numbers of its window.
func (f RequestState) judged(at time.Time, v Verdict, cause Cause) Judgement {
	j := Judgement{Verdict: v, Cause: cause, Since: at}
	if f.Judgement.Verdict == v {
		j.Since = f.Judgement.Since
	}
	j.Requests = RequestJudgement{Verdict: v, Cause: cause, Since: j.Since, Want: f.Want}
	return j
}

// judge judges a window of the given length. span is the time between the marks that
// enclose it, grown is the growth of the counters between them, and runners are the parts
// of the waits. took is the BE work that took memory lately.
func (f RequestState) judge(at time.Time, w *node.Workload, d durations, length, span time.Duration, grown Reading, runners []Runner, took Taken) RequestState {
	worst := RequestJudgement{}
	for i, p := range node.Percentiles {
		target := f.Want.Within[i]
		if target == 0 {
			continue
		}
		one := RequestJudgement{Verdict: Kept, Target: i, Total: d.total, Unknown: d.unsure, Tail: d.tail(p.Permille)}
		one.OverLeast, one.OverMost = d.over(target)
		if tail, known := one.Tail.Value(); known && grown.isQuiet() {
			f.Quiet[i] = f.Quiet[i].best(at, tail)
		}
		one.Quiet = f.Quiet[i]
		one.Quiet.Missed = slices.ContainsFunc(d.bounds, func(end time.Duration) bool { return end >= target && end < one.Quiet.Tail })
		most := (1000 - p.Permille) * (d.total + d.unsure) // the unknown ones were served as well
		switch {
		case 1000*one.OverLeast > most+1000*Tolerance:
			one.Verdict = Missed
		case 1000*one.OverMost > most+1000*Tolerance:
			one.Verdict, one.Cause = Undecided, Straddled
		case 1000*one.OverMost > most: // so few that they may be chance
			one.Verdict, one.Cause = Undecided, TooFew
		}
		if rank := slices.Index(verdicts, one.Verdict); worst.Verdict == "" || rank <= slices.Index(verdicts, worst.Verdict) {
			worst = one
		}
	}
	j := f.judged(at, worst.Verdict, worst.Cause)
	f.Miss = Miss{}
	target := f.Want.Within[worst.Target]
	l := load{total: d.total, over: worst.OverLeast, target: target, requests: length, window: span}
	if worst.Verdict == Kept {
		f.Costs = l.learn(f.Costs, grown)
	}
	if worst.Verdict == Missed {
		if j.Cause = l.cause(grown, runners); j.Cause == NotWaiting {
			worst.Spent, j.Cause = l.spend(grown, w, f.Costs[l.octave()], took)
		}
		j.Begun, j.At, j.Waits = f.From.At, at, waitsOf(span, grown, runners)
		j.Periods, j.ThrottledPeriods = grown.Periods.Or(0), grown.ThrottledPeriods.Or(0)
		f.Miss = Miss{Workload: w.ID, At: at, Objective: target, Percentile: node.Percentiles[worst.Target].Name, Helpless: j.Cause != ForBE}
		if j.Cause == OwnLimit {
			f.Miss.Quota = Explains
		}
		// The last bucket has no end: the tail is longer than the one before it.
		f.Miss.Tail, f.Miss.Longer = worst.Tail.Or(d.bounds[len(d.bounds)-1]), !worst.Tail.Known()
	}
	worst.Cause, worst.Since, worst.Want, worst.Bounds, worst.Counts = j.Cause, j.Since, f.Want, d.bounds, d.counts
	j.Requests = worst
	f.Judgement = j
	return f
}

// verdicts lists the verdicts, the worst first.
var verdicts = []Verdict{Missed, Undecided, Kept}

// cause returns the cause of a window with slow requests. r is the growth of the counters
// in the time around the window, of which the window has a part, and runners are the parts
// of the waits, longest first. Waits that are too short to explain the requests, or that are
// not measured, blame nothing.
func (q load) cause(r Reading, runners []Runner) Cause {
	part := min(float64(q.requests)/float64(max(q.window, 1)), 1)
	switch {
	case r.isHeldByQuota():
		return OwnLimit
	case r.Waited <= 0 || !q.explains(part*float64(r.Waited)):
		return NotWaiting
	}
	hardly := r.hardlyForBE(r.throttledWaits()) || !q.explains(part*float64(r.ByBE))
	return causeOf(r, hardly, runners)
}

// durations is the histogram of the requests of a window.
type durations struct {
	bounds []time.Duration
	counts []int64
	total  int64
	unsure int64 // requests besides, which may have taken any time
}

// requestsBetween returns the requests between two readings. It returns false if
// the readings do not fit together, for example after a restart of the workload.
func requestsBetween(before, after node.Requests) (durations, bool) {
	if after.At.Before(before.At) || after.Unsure < before.Unsure || !slices.Equal(before.Bounds, after.Bounds) || len(after.Bounds) == 0 ||
		len(before.Counts) != len(after.Counts) || len(after.Counts) != len(after.Bounds)+1 {
		return durations{}, false
	}
	d := durations{bounds: after.Bounds, counts: make([]int64, len(after.Counts)), unsure: int64(min(after.Unsure-before.Unsure, mostRequests))}
	for i, n := range after.Counts {
		if n < before.Counts[i] {
			return durations{}, false
		}
		d.counts[i] = int64(min(n-before.Counts[i], mostRequests))
		d.total += d.counts[i]
	}
	return d, true
}

// mostRequests is more than any workload answers in a window. It keeps sums of
// counts far from an overflow.
const mostRequests = 1 << 40

// over returns how many requests were longer than a target: at least and at most.
func (d durations) over(target time.Duration) (least, most int64) {
	for i, n := range d.counts {
		if i > 0 && d.bounds[i-1] >= target {
			least += n
		}
		if i == len(d.bounds) || d.bounds[i] > target {
			most += n
		}
	}
	return least, most + d.unsure
}

// tail returns the end of the bucket with a percentile.
func (d durations) tail(permille int64) node.Maybe[time.Duration] {
	var seen int64
	for i, bound := range d.bounds {
		if seen += d.counts[i]; 1000*seen >= permille*d.total {
			return node.Some(bound)
		}
	}
	return node.Maybe[time.Duration]{}
}
