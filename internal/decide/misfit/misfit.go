// Package misfit finds workloads whose CPU limit does not fit them: the quota
// throttles them in most of its periods. The package only reports them.
//
// A quota is CPU time for each period, and a workload may spend it on many
// CPUs. Many threads on many CPUs use up the time of a period at once, and then
// all of them stand still until the next period. Threads that wait for each
// other, as at a barrier, then make very little progress. With the same time on
// few CPUs they would not have to stop.
package misfit

import (
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config says when a workload counts as a misfit. The zero Config has the
// defaults.
type Config struct {
	// After is the time for which a workload must be throttled in most periods. If
	// it is 0, DefaultAfter is used.
	After time.Duration `json:"after_ns,omitempty"`
}

// DefaultAfter is the default of Config.After. Counters may be up to ten
// seconds old, for example those of BE work on cgroup v1. With this default,
// Tenon finds a misfit within a minute even with such counters.
const DefaultAfter = 30 * time.Second

const (
	// throttledMost and throttledFew are shares of throttled periods, in
	// thousandths. A workload becomes a misfit if its share stays above
	// throttledMost. It remains one until its share falls below throttledFew.
	// Because of the gap, the answer does not change in each tick.
	throttledMost unit.MilliCPU = 500
	throttledFew  unit.MilliCPU = 250
	// The time constant of the means is After / tau.
	tau = 3
	// A workload that has had no period for silent × After counts as not
	// throttled. This is longer than counters may be old.
	silent = 2
	// halfThread is half a thread. In a misfit of kind Threads, the runnable
	// threads exceed the CPUs of the limit by more than that.
	halfThread unit.MilliCPU = 500
)

// Kind is the kind of a misfit.
type Kind string

// The values of Kind.
const (
	// Threads means that more threads are runnable than the limit has CPUs, and
	// that they may run on more CPUs than the limit has.
	Threads Kind = "threads"
	// Limit means that the workload wants to use more CPU than its limit, but
	// is not known to be of kind Threads.
	Limit Kind = "limit"
)

// Kinds lists the kinds.
var Kinds = []Kind{Threads, Limit}

// A Misfit is a workload whose CPU limit does not fit it.
type Misfit struct {
	Kind  Kind       `json:"kind"`
	Class node.Class `json:"class"`
	// Since is the time since which most periods have been throttled.
	Since time.Time `json:"since"`
	// Throttled is the share of recent periods in which the quota throttled the
	// workload.
	Throttled unit.Percent `json:"throttled_percent"`
	// Limit is the CPU that the quota allows. CPUs is the number of CPUs on
	// which the workload may run.
	Limit unit.MilliCPU `json:"limit_mcpu"`
	CPUs  int           `json:"cpus"`
	// Threads is the number of threads of the workload. Runnable is the mean
	// number of runnable threads, in thousandths. A number that is not counted
	// is absent.
	Threads  node.Maybe[int]           `json:"threads,omitzero"`
	Runnable node.Maybe[unit.MilliCPU] `json:"runnable_m,omitzero"`
	// Text describes the misfit. Write says what the owner should set in place
	// of the limit.
	Text  string `json:"text"`
	Write string `json:"write"`
}

// State is the state between ticks. It has one watch for each workload with a
// CPU limit and a count of periods. The zero State has none.
type State map[node.WorkloadID]watch

// A watch is the recent past of one workload.
type watch struct {
	At        time.Time `json:"at"` // time of the last growth of Periods
	Periods   int64     `json:"periods"`
	Throttled int64     `json:"throttled"`
	// Share is the mean share of throttled periods, in thousandths. Known says
	// whether Share has a value yet.
	Share unit.MilliCPU `json:"share_permille"`
	Known bool          `json:"known,omitempty"`
	// Since is the time since which most periods have been throttled. It is
	// zero if most are not.
	Since time.Time `json:"since,omitzero"`
	// Runnable is the mean number of runnable threads, in thousandths.
	Runnable node.Maybe[unit.MilliCPU] `json:"runnable_m,omitzero"`
	Counted  time.Time                 `json:"counted,omitzero"`
	// Misfit is the present misfit of the workload. It is zero if the limit fits.
	Misfit Misfit `json:"misfit,omitzero"`
}

// Misfits returns the misfits, or nil if there are none.
func (st State) Misfits() map[node.WorkloadID]*Misfit {
	var found map[node.WorkloadID]*Misfit
	for id, w := range st {
		if w.Misfit.Kind == "" {
			continue
		}
		if found == nil {
			found = map[node.WorkloadID]*Misfit{}
		}
		found[id] = &w.Misfit
	}
	return found
}

// Observe returns the state after the counters of s.
func (st State) Observe(c Config, s node.Snapshot) State {
	if c.After <= 0 {
		c.After = DefaultAfter
	}
	var next State
	for i := range s.Workloads {
		w := &s.Workloads[i]
		periods, counted := w.Usage.Periods.Value()
		had, watched := st[w.ID]
		if counted && periods == 0 || !counted && !watched {
			continue // no period of a quota was ever counted for this workload
		}
		limit, limited := limitOf(w, s.Knobs)
		if !limited {
			continue
		}
		now := had
		if counted {
			now = had.observe(c, &w.Usage, s.At, watched)
		}
		if now.hasEnded(c, s.At) {
			now.Since, now.Misfit = time.Time{}, Misfit{}
		} else if now.At.Sub(now.Since) >= c.After { // so long that a burst before a sleep does not count
			now.Misfit = now.describe(w, limit, s)
		}
		if next == nil {
			next = State{}
		}
		next[w.ID] = now
	}
	return next
}

// observe returns the watch with the new counters of its workload.
func (h watch) observe(c Config, u *node.Usage, at time.Time, watched bool) watch {
	periods, throttled := u.Periods.Or(0), u.ThrottledPeriods.Or(0)
	if !watched || periods < h.Periods || throttled < h.Throttled || at.Before(h.At) { // or another cgroup has this name now
		return watch{At: at, Periods: periods, Throttled: throttled}
	}
	next := h
	if ran := periods - h.Periods; ran > 0 {
		share := unit.MilliCPU(min(1000*(throttled-h.Throttled)/ran, 1000))
		if h.Known {
			share = trend.Decay(h.Share, share, at.Sub(h.At), c.After/tau)
		}
		next.Share, next.Known = share, true
		if share > throttledMost && h.Since.IsZero() {
			next.Since = h.At
		}
		next.At, next.Periods, next.Throttled = at, periods, throttled
	}
	if n, known := u.Runnable.Value(); known {
		sample := unit.CPUs(n)
		if mean, had := h.Runnable.Value(); had {
			sample = trend.Decay(mean, sample, at.Sub(h.Counted), c.After/tau)
		}
		next.Runnable, next.Counted = node.Some(sample), at
	}
	return next
}

// hasEnded reports whether most periods are not throttled any more.
func (h watch) hasEnded(c Config, at time.Time) bool {
	if h.Since.IsZero() || at.Sub(h.At) > silent*c.After {
		return true
	}
	if h.Misfit.Kind == "" {
		return h.Share <= throttledMost
	}
	return h.Share < throttledFew
}

// describe returns the misfit of a workload.
func (h watch) describe(w *node.Workload, limit unit.MilliCPU, s node.Snapshot) Misfit {
	m := Misfit{
		Kind: Limit, Class: w.Class, Since: h.Since, Throttled: unit.Percent(h.Share / 10),
		Limit: limit, CPUs: cpusOf(w, s).Len(), Threads: w.Usage.Threads, Runnable: h.Runnable,
	}
	if n, known := h.Runnable.Value(); known && n > unit.CPUs(m.seats())+halfThread && m.CPUs > m.seats() {
		m.Kind = Threads
	}
	m.Text, m.Write = m.sentence(), m.advice()
	return m
}

// seats returns how many CPUs are enough to use up the limit: the limit,
// rounded up.
func (m *Misfit) seats() int { return int((m.Limit + 999) / unit.CPUs(1)) }

// limitOf returns the limit of a workload's quota. It returns false if there is
// no quota. It also returns false if Tenon itself allows less than the owner:
// such a quota follows the load of the node and says nothing about the owner's
// limit.
func limitOf(w *node.Workload, k node.Knobs) (unit.MilliCPU, bool) {
	limit, limited := quotaOf(k, w.Cgroup, w.CPULimit)
	if limited {
		return limit, true
	}
	now, _ := k.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}].(node.CPUMax)
	if _, own := ownersOf(k, w.Cgroup, w.CPULimit); own || facts.IsQuota(now) {
		return 0, false
	}
	// If the workload as a whole has no quota, its containers may have quotas
	// of their own.
	var sum unit.MilliCPU
	for _, c := range w.Containers {
		part, has := quotaOf(k, c.Cgroup, c.CPULimit)
		if has {
			sum += part
		}
	}
	return sum, sum > 0
}

// quotaOf returns the limit of one cgroup as its owner set it. It returns false
// if there is no quota, or if the present quota is narrower than that limit.
// The quota may be wider, because CPU burst lends quota for a while.
func quotaOf(k node.Knobs, p node.CgroupPath, asked node.Maybe[unit.MilliCPU]) (unit.MilliCPU, bool) {
	now, _ := k.Now[node.Knob{Cgroup: p, File: node.FileCPUMax}].(node.CPUMax)
	if !facts.IsQuota(now) {
		return 0, false
	}
	owner, known := ownersOf(k, p, asked)
	return owner, known && facts.MilliOf(now) >= owner
}

// ownersOf returns the limit of a cgroup as its owner set it. It ignores the
// changes that Tenon made.
func ownersOf(k node.Knobs, p node.CgroupPath, asked node.Maybe[unit.MilliCPU]) (unit.MilliCPU, bool) {
	if m, is := asked.Value(); is {
		return m, true
	}
	before, _ := facts.Original(k, node.Knob{Cgroup: p, File: node.FileCPUMax}).(node.CPUMax)
	return facts.MilliOf(before), facts.IsQuota(before)
}

// cpusOf returns the CPUs on which a workload may run.
func cpusOf(w *node.Workload, s node.Snapshot) unit.CPUSet {
	all := s.Topology.All()
	for p := w.Cgroup; p != ""; p = p.Parent() {
		if v, _ := s.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUs}].(node.CPUs); !v.Set.Empty() {
			return v.Set.Intersect(all)
		}
	}
	return all
}
