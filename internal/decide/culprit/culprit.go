// Package culprit bounds single BE workloads: the one for which a service waits
// most loses CPU alone, and the next window of the service shows whether that
// helps. All other BE work keeps its CPU meanwhile.
package culprit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/trend"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// A workload is a suspect if it caused at least 1/suspectDivisor of the time for
	// which the service waited for BE work.
	suspectDivisor = 4
	// maxSuspects is the number of suspects that are tried one after the other. Then
	// all BE work gives way.
	maxSuspects = 3
	// A bound helps if the service then waits less for BE work by at least
	// reliefPercent of what the suspect's part should have fallen.
	reliefPercent = 40
	// A bound is lifted after looks windows in which it did not help, because one window
	// may have waits for other reasons.
	looks = 2
	// All BE work gives way after spreadWindows windows in a row in which BE work is to
	// blame and no single workload is, if there are several. A single one whose bound is not
	// possible has no others to spare.
	spreadWindows = 3
	// A bound does not grow for calmBefore after a window for which BE work is to blame.
	calmBefore = 5 * time.Second
	// Least is the smallest bound: less would not let a workload end. In Period it is
	// the kernel's least quota.
	Least unit.MilliCPU = 100
	// Period is the period of the quota of a bound. At the start of a period, a
	// bounded workload may use all of its quota at once, and a service waits for that
	// long. With the default period, the least bound would run for 10 ms; so it runs
	// for 1 ms.
	Period = 10 * time.Millisecond
	// growBack is the time in which a bound grows by 1/1000 of the node's CPU, while
	// the workload uses at least hungryPercent of it.
	growBack                    = 50 * time.Millisecond
	hungryPercent unit.MilliCPU = 80
	// A bound grows by leastGrowth thousandths or more at once, because early ticks
	// would write it many times a second.
	leastGrowth = 10
	// A workload that uses less than half of its bound for idleTime loses the bound.
	idleTime = 10 * time.Second
	// A bound does not grow beyond safePercent of the level at which the service
	// missed its objective, until a probe is due. Each probe that fails within nearPercent of
	// the same level doubles the time to the next one, and does not halve the bound.
	safePercent, nearPercent    = 93, 20
	firstProbe, longestInterval = 30 * time.Second, 32 * time.Minute
	// For a service that is judged by its requests, a bound grows once in a window, which
	// shows what the bound does. It grows by probeStep thousandths at a time beyond
	// safePercent of a level, and the first probe is due after firstRequestProbe.
	probeStep         = 10
	firstRequestProbe = 2 * time.Minute
	// A search begins anew after searchEnds without a window for which BE work is to
	// blame. A window of requests may last a minute.
	searchEnds = 2 * time.Minute
	// A level moves with the load of its service: if the service uses more CPU, the level of
	// the work beside it falls by as much, once that is loadStep percent of the level or more.
	// The load is a mean over about loadTau.
	loadStep unit.MilliCPU = 5
	loadTau                = 5 * time.Second
	// At most MaxLevels levels are remembered, and each for ForgetAfter. The same holds for
	// those of all BE work.
	MaxLevels   = 64
	ForgetAfter = time.Hour
)

// A State holds the bounds and what was learnt from them.
type State struct {
	Bounds map[node.WorkloadID]Bound `json:"bounds,omitempty"`
	// Searches are the services for whose misses a suspect is bounded.
	Searches map[node.WorkloadID]Search `json:"searches,omitempty"`
	// Levels are the bounds at which a pair failed, by Pair.
	Levels map[Pair]Level `json:"levels,omitempty"`
	// Loads are the mean CPU use of the services for which work is bounded. All pods of the
	// node with one controller are one service here (see slo.Of).
	Loads map[string]unit.MilliCPU `json:"loads_mcpu,omitempty"`
	// Vain are the pairs whose bound did not help, and Shared the services for which all BE
	// work gave way, each with the last time. The next search begins there.
	Vain   map[Pair]time.Time   `json:"vain,omitempty"`
	Shared map[string]time.Time `json:"shared,omitempty"`
}

// A Bound is the CPU that one BE workload may use.
type Bound struct {
	May    unit.MilliCPU   `json:"may_mcpu"`
	Victim node.WorkloadID `json:"victim"` // the service that waited
	Since  time.Time       `json:"since"`
	At     time.Time       `json:"at"` // time of the last change
	// Cut is the time of the last halving. Several services may wait for one workload:
	// it is halved only once in a window.
	Cut time.Time `json:"cut,omitzero"`
	// Share is the part of the victim's waits for BE work that this workload caused
	// when it was last bounded, in percent.
	Share int64 `json:"share_percent"`
	// IdleSince is the time since which the workload uses less than half of its bound.
	IdleSince time.Time `json:"idle_since,omitzero"`
}

// A Search is the state of one missed objective.
type Search struct {
	// Suspect is the workload whose bound is on trial. If the bound helps, the service
	// waits for BE work for at most Most, in thousandths of the time. Had is the bound
	// that the suspect had before it was on trial; 0: none.
	Suspect node.WorkloadID `json:"suspect,omitempty"`
	Most    int64           `json:"most_permille,omitempty"`
	Had     unit.MilliCPU   `json:"had_mcpu,omitempty"`
	// If the bound takes its part from the suspect, the service waits for the suspect for
	// at most Own, in thousandths of the time. If it waits for another suspect instead,
	// the bound stays while that one is on trial. With are the suspects that are bounded
	// so, with the bounds that they had before.
	Own  int64                             `json:"own_permille,omitempty"`
	With map[node.WorkloadID]unit.MilliCPU `json:"with_mcpu,omitempty"`
	// Looks is the number of windows in which the bound on trial did not help.
	Looks int `json:"looks,omitempty"`
	// Tried are the suspects whose bounds did not help.
	Tried []node.WorkloadID `json:"tried,omitempty"`
	// All says that no single workload is to blame, so all BE work gives way.
	All bool `json:"all,omitempty"`
	// Rest says that the bounds helped, and that less than 1/suspectDivisor of the
	// waits that are left are for other BE work: it does not give way for them.
	Rest bool `json:"rest,omitempty"`
	// Spread is the number of windows in a row, since the last bound, in which no single
	// workload was to blame. At is the end of the last window for which BE work was to blame.
	Spread int       `json:"spread,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// A Pair is a service and the BE work that it waited for, each by its controller if it has
// one. So the next pod of either is known.
type Pair string

func (x *follower) pairOf(victim node.WorkloadID, w *node.Workload) Pair {
	return Pair(x.SLO.Service(victim) + " " + cmp.Or(w.Owner, string(w.ID)))
}

// A Level is the bound at which a service missed its objective, while it used Load.
type Level struct {
	May   unit.MilliCPU `json:"may_mcpu"`
	Load  unit.MilliCPU `json:"load_mcpu,omitempty"`
	At    time.Time     `json:"at"`
	Probe time.Duration `json:"probe_ns"` // no bound grows beyond May until At + Probe
}

// Input holds what Follow reads.
type Input struct {
	SLO      slo.Tracker
	Use      facts.Use
	Capacity unit.MilliCPU
	Snapshot node.Snapshot
}

// Follow returns the state after a snapshot.
func (st State) Follow(in Input) State {
	if len(st.Bounds) == 0 && in.SLO.Empty() {
		return State{Levels: st.Levels, Vain: st.Vain, Shared: st.Shared} // no service has an objective; these are judged when they are used
	}
	at := in.Snapshot.At
	be := map[node.WorkloadID]*node.Workload{}
	for i := range in.Snapshot.Workloads {
		// Killed work needs CPU to give its memory back.
		if w := &in.Snapshot.Workloads[i]; w.Class == node.BE && w.Ending != node.Ended {
			be[w.ID] = w
		}
	}
	x := follower{Input: in, be: be, searches: st.Searches, blamed: map[node.WorkloadID]bool{}, next: State{
		Bounds: map[node.WorkloadID]Bound{}, Searches: map[node.WorkloadID]Search{}, Levels: maps.Clone(st.Levels), Vain: maps.Clone(st.Vain), Shared: maps.Clone(st.Shared),
	}}
	old := func(t time.Time) bool { return at.Sub(t) > ForgetAfter || t.After(at) }
	maps.DeleteFunc(x.next.Levels, func(_ Pair, l Level) bool { return old(l.At) })
	maps.DeleteFunc(x.next.Vain, func(_ Pair, t time.Time) bool { return old(t) })
	maps.DeleteFunc(x.next.Shared, func(_ string, t time.Time) bool { return old(t) })
	violations := in.SLO.Violations()
	for _, m := range violations {
		j := in.SLO.Judged(m)
		x.blamed[m.Workload] = m.At.Equal(at) && j.At.Equal(at) && j.Cause == slo.ForBE && !m.Helpless && !st.cutWithin(m, j)
	}
	if len(st.Bounds) > 0 || len(violations) > 0 {
		x.loads = loadsOf(in.SLO, in.Use)
		x.next.Loads = x.meanLoads(st)
	}
	lower := x.moveLevels(st.Bounds)
	for id, b := range st.Bounds {
		if w := be[id]; w != nil && b.helps(in.Snapshot) {
			if to, must := lower[id]; must {
				b.May, b.At = to, at
			}
			x.growBack(w, b)
		}
	}
	for _, m := range violations {
		q := st.Searches[m.Workload]
		if q.At.After(at) { // the clock was set back
			q.At = at
		}
		if x.blamed[m.Workload] {
			if at.Sub(q.At) > searchEnds {
				q = Search{}
			}
			q = x.judge(q, m.Workload, in.SLO.Judged(m).Lately())
		} else if m.At.Equal(at) && m.Helpless {
			q.Spread = 0 // a window with another cause: those before it were chance
		}
		x.next.Searches[m.Workload] = q
	}
	return x.next.tidy()
}

// cutWithin reports whether a bound of the work that a service waited for was halved for
// another service during a window of requests. Such a window shows neither what came
// before nor what the bound does.
func (st State) cutWithin(m slo.Miss, j slo.Judgement) bool {
	return m.Percentile != "" && slices.ContainsFunc(j.Runners, func(r slo.Runner) bool {
		b, bounded := st.Bounds[r.ID]
		return bounded && b.Cut.After(j.Begun) && !b.Cut.After(j.At)
	})
}

// Alone reports whether a missed objective of a service is answered by a bound of
// a single workload, so that other BE work keeps its CPU.
func (st State) Alone(victim node.WorkloadID) bool {
	q, searched := st.Searches[victim]
	return searched && (q.Suspect != "" || q.Rest) && !q.All
}

// InForce returns the bounds that are smaller than the CPU limits of their workloads.
// The others limit nothing, and wait for the next miss.
func (st State) InForce(s node.Snapshot) map[node.WorkloadID]Bound {
	if len(st.Bounds) == 0 {
		return nil
	}
	all := maps.Clone(st.Bounds)
	for i := range s.Workloads {
		w := &s.Workloads[i]
		b, bounded := all[w.ID]
		if !bounded {
			continue
		}
		own, _ := facts.Original(s.Knobs, node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}).(node.CPUMax)
		if m, limited := w.CPULimit.Value(); limited {
			own = node.Limit(m)
		}
		if _, tighter := b.Tighten(own); !tighter {
			delete(all, w.ID)
		}
	}
	return all
}

// loadsOf returns the CPU use of each service: the sum over its pods. It leaves out a
// service if the use of one of them is not known.
func loadsOf(x slo.Tracker, u facts.Use) map[string]unit.MilliCPU {
	all := map[string]unit.MilliCPU{}
	for service, pods := range x.Services() {
		var sum unit.MilliCPU
		known := true
		for _, id := range pods {
			used, counted := u.Workload[id]
			sum, known = sum+used, known && counted
		}
		if known {
			all[service] = sum
		}
	}
	return all
}

// meanLoads returns the mean CPU use of the services for which work is bounded.
func (x *follower) meanLoads(st State) map[string]unit.MilliCPU {
	var all map[string]unit.MilliCPU
	for _, b := range st.Bounds {
		service := x.SLO.Service(b.Victim)
		now, known := x.loads[service]
		if !known {
			continue
		}
		if was, had := st.Loads[service]; had {
			now = trend.Decay(was, now, x.Use.Elapsed, loadTau)
		}
		if all == nil {
			all = map[string]unit.MilliCPU{}
		}
		all[service] = now
	}
	return all
}

func (st State) tidy() State {
	if len(st.Bounds) == 0 {
		st.Bounds = nil
	}
	if len(st.Searches) == 0 {
		st.Searches = nil
	}
	st.Levels = facts.Newest(st.Levels, MaxLevels, func(l Level) time.Time { return l.At })
	itself := func(t time.Time) time.Time { return t }
	st.Vain, st.Shared = facts.Newest(st.Vain, MaxLevels, itself), facts.Newest(st.Shared, MaxLevels, itself)
	return st
}

type follower struct {
	Input
	be       map[node.WorkloadID]*node.Workload
	searches map[node.WorkloadID]Search // before this snapshot
	blamed   map[node.WorkloadID]bool   // the services with a window that ends now and blames BE work
	loads    map[string]unit.MilliCPU   // what the services use now
	next     State
}

// helps reports whether the service for which a workload is bounded still has an
// objective. Otherwise the workload gets its CPU back at once.
func (b Bound) helps(s node.Snapshot) bool {
	return facts.AnyOf(s.Workloads, func(w *node.Workload) bool { return w.ID == b.Victim && w.Objective.Judged() })
}

// moveLevels moves the levels of the bounds with the loads of their services. It returns the
// bounds that would fail now: a service that gets more load would miss its objective before
// they are lowered. All bounds for a service change together, in proportion to their levels.
func (x *follower) moveLevels(bounds map[node.WorkloadID]Bound) (lower map[node.WorkloadID]unit.MilliCPU) {
	sums := map[string]unit.MilliCPU{}
	for id, b := range bounds {
		if w := x.be[id]; w != nil {
			sums[x.SLO.Service(b.Victim)] += x.next.Levels[x.pairOf(b.Victim, w)].May
		}
	}
	fell := map[Pair]bool{}
	for id, b := range bounds {
		w := x.be[id]
		service := x.SLO.Service(b.Victim)
		load, known := x.next.Loads[service]
		if w == nil || !known {
			continue
		}
		p := x.pairOf(b.Victim, w)
		l, learnt := x.next.Levels[p]
		more, sum := load-l.Load, sums[service]
		if !learnt || 100*max(more, -more) < loadStep*sum || max(more, -more) < x.Capacity/100 {
			continue
		}
		if l.Load > 0 {
			l.May = max(l.May-more*l.May/sum, Least)
			fell[p] = more > 0
		}
		l.Load = load
		x.next.Levels[p] = l
	}
	for id, b := range bounds {
		w := x.be[id]
		if w == nil || !fell[x.pairOf(b.Victim, w)] {
			continue
		}
		if safe := max(x.next.Levels[x.pairOf(b.Victim, w)].May*safePercent/100, Least); b.May > safe {
			if lower == nil {
				lower = map[node.WorkloadID]unit.MilliCPU{}
			}
			lower[id] = safe
		}
	}
	return lower
}

// growBack keeps a bound, and lets it grow with time. A bound that limits nothing
// goes.
func (x *follower) growBack(w *node.Workload, b Bound) {
	at := x.Snapshot.At
	if b.At.After(at) { // the clock was set back
		b.At = at
	}
	if b.IdleSince.After(at) {
		b.IdleSince = at
	}
	used, known := x.Use.Workload[w.ID]
	if !known { // its counter could not be read
		b.At = at
		x.next.Bounds[w.ID] = b
		return
	}
	window, byRequests := x.window(b.Victim)
	if x.isBlamed(b.Victim) || 100*used < hungryPercent*b.May {
		b.At = at
	} else if n := min(at.Sub(b.At), facts.LongestGap) / growBack; n >= leastGrowth && !x.Snapshot.SLOViolated && window.After(b.At) {
		b.At = b.At.Add(n * growBack)
		if at.Sub(b.At) >= growBack {
			b.At = at
		}
		may := b.May + x.Capacity*unit.MilliCPU(n)/1000
		if l, known := x.next.Levels[x.pairOf(b.Victim, w)]; known {
			safe := max(l.May*safePercent/100, b.May)
			if at.Sub(l.At) < l.Probe {
				may = min(may, safe)
			} else if byRequests {
				may = min(may, max(safe, b.May+x.Capacity*probeStep/1000))
			}
		}
		b.May = may
	}
	switch {
	case 2*used >= b.May:
		b.IdleSince = time.Time{}
	case b.IdleSince.IsZero():
		b.IdleSince = at
	case at.Sub(b.IdleSince) >= idleTime:
		return
	}
	if b.May < x.Capacity {
		x.next.Bounds[w.ID] = b
	}
}

// window returns the start of the window in which the requests of a service are judged
// now. It returns the present time and false if they are not judged.
func (x *follower) window(victim node.WorkloadID) (start time.Time, byRequests bool) {
	if start, byRequests = x.SLO.Window(victim); !byRequests {
		start = x.Snapshot.At
	}
	return start, byRequests
}

// isBlamed reports whether BE work is to blame for a miss of the service: in the last
// window of its requests, or in a window of its waits in the last seconds. A bound that
// grew in the tick of a miss would hide what the next one does.
func (x *follower) isBlamed(victim node.WorkloadID) bool {
	lately := x.blamed[victim] || x.Snapshot.At.Sub(x.searches[victim].At) < calmBefore
	return x.SLO.Misses(victim) && (lately || !x.SLO.Work[victim].Miss.Happened())
}

// judge follows a window in which a service missed its objective and waited for BE
// work. It judges the bound of the last suspect, and bounds the next one.
//
// It reads the waits of the last second, in which the suspect used the CPU that it
// loses now. The window may begin before the work that caused the miss.
func (x *follower) judge(q Search, victim node.WorkloadID, j slo.Waits) Search {
	fresh := q.Suspect == "" && len(q.Tried) == 0 && !q.Rest
	q.At = x.Snapshot.At
	if fresh {
		if back := x.learnAll(victim, j); back != "" {
			q.Suspect, q.Most = back, math.MaxInt64
			return q
		}
	}
	rate := int64(j.ByBE * 1000 / max(j.Window, 1))
	switch {
	case q.Suspect == "":
	case rate <= q.Most:
		q.Tried = slices.DeleteFunc(slices.Clone(q.Tried), func(id node.WorkloadID) bool { _, with := q.With[id]; return with })
		q.With = nil
	default:
		if q.Looks++; q.Looks < looks {
			return q
		}
		q = x.endTrial(q, victim, j)
	}
	last := q
	q.Suspect, q.Most, q.Own, q.Had, q.Looks, q.Rest = "", 0, 0, 0, 0, false
	seeks := len(q.Tried) < maxSuspects
	if seeks {
		for _, r := range j.Runners {
			if !x.isSuspect(r, q, j) || x.isVain(r, victim, j) {
				continue
			}
			if _, known := x.Use.Workload[r.ID]; !known {
				break // the next window will show what it uses; the one after it is not to blame
			}
			had, less := x.bound(x.be[r.ID], victim, int64(r.Time*100/max(j.ByBE, 1)))
			if less <= 0 {
				continue
			}
			part := float64(r.Time) / float64(j.ByBE)
			q.Suspect, q.Had = r.ID, had
			q.Most = max(int64(float64(rate)*(1-part*less*reliefPercent/100)), 1)
			q.Own = int64(float64(perMille(j, r.ID)) * (1 - less*reliefPercent/100))
			if r.ID == last.Suspect {
				q.Had = last.Had
			}
			q.Spread = 0
			return q
		}
	}
	if seeks {
		others, bounds := j.ByBE, 0
		for _, r := range j.Runners {
			if _, bounded := x.next.Bounds[r.ID]; bounded {
				others -= r.Time
				bounds++
			}
		}
		q.Spread++
		_, shared := x.next.Shared[x.SLO.Service(victim)]
		q.Rest = bounds > 0 && suspectDivisor*others < j.Waited || q.Spread < spreadWindows && len(x.be) > 1 && !shared
	}
	if q.All = !q.Rest; q.All {
		q = x.liftAll(q, victim)
		if x.next.Shared == nil {
			x.next.Shared = map[string]time.Time{}
		}
		x.next.Shared[x.SLO.Service(victim)] = x.Snapshot.At
	}
	return q
}

// isVain reports whether a bound of this runner did not help lately, and the service waits
// for it during less than half of its waits for BE work.
func (x *follower) isVain(r slo.Runner, victim node.WorkloadID, j slo.Waits) bool {
	_, vain := x.next.Vain[x.pairOf(victim, x.be[r.ID])]
	return vain && 2*r.Time < j.ByBE
}

// perMille returns how long the service waited for a workload, in thousandths of the time.
func perMille(j slo.Waits, id node.WorkloadID) int64 {
	i := slices.IndexFunc(j.Runners, func(r slo.Runner) bool { return r.ID == id })
	if i < 0 {
		return 0
	}
	return int64(j.Runners[i].Time * 1000 / max(j.Window, 1))
}

// isSuspect reports whether a runner caused so much of the waits for BE work that it may
// be bounded, and was not tried yet.
func (x *follower) isSuspect(r slo.Runner, q Search, j slo.Waits) bool {
	return x.be[r.ID] != nil && r.Cause == slo.ForBE && suspectDivisor*r.Time >= j.ByBE && !slices.Contains(q.Tried, r.ID)
}

// endTrial ends the trial of a bound with which the service waits for BE work as long as
// before. If it waits for another suspect in place of this one, the bound stays until
// the next trial ends: of two jobs that use all CPUs, each takes what the other loses.
func (x *follower) endTrial(q Search, victim node.WorkloadID, j slo.Waits) Search {
	with := map[node.WorkloadID]unit.MilliCPU{q.Suspect: q.Had}
	maps.Copy(with, q.With)
	shifted := perMille(j, q.Suspect) <= q.Own
	q.Tried, q.With, q.Suspect = append(slices.Clone(q.Tried), q.Suspect), with, ""
	another := func(r slo.Runner) bool { return x.isSuspect(r, q, j) }
	if shifted && len(q.Tried) < maxSuspects && slices.ContainsFunc(j.Runners, another) {
		return q
	}
	for id := range q.With {
		if w := x.be[id]; w != nil {
			if x.next.Vain == nil {
				x.next.Vain = map[Pair]time.Time{}
			}
			x.next.Vain[x.pairOf(victim, w)] = x.Snapshot.At
		}
	}
	return x.liftAll(q, victim)
}

// liftAll gives the suspects that are bounded together back what they lost.
func (x *follower) liftAll(q Search, victim node.WorkloadID) Search {
	for id, had := range q.With {
		x.liftBound(id, had, victim)
	}
	q.With = nil
	return q
}

// bound halves what a workload may use. It returns the bound that the workload had,
// and the part of its use that it loses; 0: it can lose nothing more.
func (x *follower) bound(w *node.Workload, victim node.WorkloadID, share int64) (had unit.MilliCPU, less float64) {
	if own, _ := facts.Original(x.Snapshot.Knobs, node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}).(node.CPUMax); w.CPUManagedExternally && facts.IsQuota(own) {
		return 0, 0 // the kubelet owns this limit
	}
	used := max(x.Use.Workload[w.ID], x.Use.Latest[w.ID])
	b, was := x.next.Bounds[w.ID]
	at := x.Snapshot.At
	if since := at.Sub(b.Cut); was && since >= 0 && since < slo.LeastWindow*9/10 {
		return b.May, 0.5 // it was halved for another service, and this one looks at that
	}
	if was {
		had = b.May
		used = min(used, b.May) // the mean is older than the bound
	} else {
		b = Bound{Since: at}
		if l, known := x.next.Levels[x.pairOf(victim, w)]; known && at.Sub(l.At) < l.Probe {
			used = min(used, 2*l.May*safePercent/100)
		}
	}
	may := used / 2
	if was {
		may = min(may, b.May/2)
	}
	may = max(may, Least)
	if used <= Least || was && may >= b.May {
		return 0, 0
	}
	b.May, b.Victim, b.Share, b.At, b.Cut, b.IdleSince = may, victim, share, at, at, time.Time{}
	x.next.Bounds[w.ID] = b
	return had, 1 - float64(may)/float64(used)
}

// learnAll remembers the bounds with which a service misses its objective, after it was
// met: those of all suspects, because they failed together. If they failed together at about
// this level before, they give back a little, and learnAll returns one of them. If that does
// not help, the next window halves one of them. Otherwise one of them is halved now, and only
// the others give back a little.
func (x *follower) learnAll(victim node.WorkloadID, j slo.Waits) (back node.WorkloadID) {
	var ids []node.WorkloadID
	var now, before unit.MilliCPU
	known := true
	for _, r := range j.Runners {
		if b, bounded := x.next.Bounds[r.ID]; bounded && suspectDivisor*r.Time >= j.ByBE {
			l, learnt := x.next.Levels[x.pairOf(victim, x.be[r.ID])]
			ids, known = append(ids, r.ID), known && learnt
			now, before = now+x.failed(r.ID, b), before+l.May
		}
	}
	again := known && nearPercent*before >= 100*max(now-before, before-now)
	for i, id := range ids {
		b := x.next.Bounds[id]
		may := x.failed(id, b)
		x.learn(x.pairOf(victim, x.be[id]), victim, may, again)
		if i == 0 && !again {
			continue
		}
		b.May, b.At, b.IdleSince = max(may*safePercent/100, Least), x.Snapshot.At, time.Time{}
		if again {
			b.Cut, back = x.Snapshot.At, id
		}
		x.next.Bounds[id] = b
	}
	return back
}

// failed returns the CPU with which a bounded workload made a service miss its objective.
func (x *follower) failed(id node.WorkloadID, b Bound) unit.MilliCPU {
	return min(b.May, max(x.Use.Workload[id], x.Use.Latest[id], Least))
}

// learn remembers the level at which a pair failed, and the time to its next probe.
func (x *follower) learn(p Pair, victim node.WorkloadID, may unit.MilliCPU, again bool) {
	l := x.next.Levels[p]
	next := Level{May: may, At: x.Snapshot.At, Probe: firstProbe, Load: x.loads[x.SLO.Service(victim)]}
	_, byRequests := x.window(victim)
	if byRequests {
		next.Probe = firstRequestProbe
	}
	if again {
		next.Probe = min(2*l.Probe, longestInterval)
		if !byRequests { // a miss in a second may be chance
			next.May = max(may, (may+l.May)/2)
		}
	}
	if load, smooth := x.next.Loads[x.SLO.Service(victim)]; smooth {
		next.Load = load
	}
	if x.next.Levels == nil {
		x.next.Levels = map[Pair]Level{}
	}
	x.next.Levels[p] = next
}

// liftBound gives a suspect back what it lost without an effect.
func (x *follower) liftBound(id node.WorkloadID, had unit.MilliCPU, victim node.WorkloadID) {
	b, bounded := x.next.Bounds[id]
	if !bounded || b.Victim != victim {
		return
	}
	if had == 0 {
		delete(x.next.Bounds, id)
		return
	}
	b.May, b.At = max(had, b.May), x.Snapshot.At // it may have grown meanwhile
	x.next.Bounds[id] = b
}

// Text says in one sentence why a workload has its bound.
func (b Bound) Text() string {
	return fmt.Sprintf("%s waited for it, which was %d %% of its waits for BE: it alone is bounded, to %v", b.Victim, b.Share, b.May)
}

// Tighten returns the smaller of a quota and the bound, and whether that is the
// bound.
func (b Bound) Tighten(own node.CPUMax) (node.CPUMax, bool) {
	if facts.IsQuota(own) && facts.MilliOf(own) <= b.May {
		return own, false
	}
	return Limit(b.May), true
}

// Limit returns the quota of a bounded workload that may use m. Less than Least is
// possible only in the default period.
func Limit(m unit.MilliCPU) node.CPUMax {
	if m < Least {
		return node.Limit(m)
	}
	return node.LimitIn(m, Period)
}
