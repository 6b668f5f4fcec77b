// Package reclaim decides how much memory the kernel should reclaim from BE
// workloads (memory.reclaim), so that services find free memory. The size of a
// step follows what the last step did to the workload: it grows while the
// workload does not notice, and is halved if threads waited for memory or if
// pages were soon read back. The control law is that of TCP congestion avoidance
// (additive increase, multiplicative decrease), and its input that of Weiner et
// al., TMO: Transparent Memory Offloading in Datacenters (ASPLOS 2022).
package reclaim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Config configures the reclaim. The zero Config reclaims nothing.
type Config struct {
	// FreePercent is the part of the node's memory that should hold nothing (MemFree).
	// While less is free, the kernel reclaims memory of BE work. 0 disables the reclaim.
	FreePercent unit.Percent `json:"free_percent,omitempty"`
}

const (
	// leastStep is the smallest step, and the first one.
	leastStep = unit.Bytes(1 << 20)
	// A step grows by 1/growthDivisor of the workload's memory, and is at most
	// 1/stepDivisor of it. So the pages that one step takes too much are few.
	growthDivisor = 64
	stepDivisor   = 8
	// mostPerSecond bounds what all workloads together are asked for. The kernel reclaims
	// on the CPU of the agent, at some GiB in a second.
	mostPerSecond = unit.Bytes(64 << 20)
	// A step takes too much if threads of the workload waited for memory for more than
	// 1/stallDivisor of the time since, or if it read back more than 1/refaultDivisor of
	// what the kernel reclaimed.
	stallDivisor   = 100
	refaultDivisor = 4
	// A step finds little if the kernel reclaims less than 1/littleDivisor of it.
	littleDivisor = 2
	// If the smallest step takes too much, the workload is left alone for leastRest, and
	// each time for twice as long, up to mostRest.
	leastRest = time.Minute
	mostRest  = 16 * time.Minute
	// freshWithin is the maximum age of the counters from which a step starts. What the
	// workload waited for before is no effect of the step.
	freshWithin = time.Second
	// lostAfter is the time after which an order that no one carries out is forgotten.
	lostAfter = 30 * time.Second
)

// An Outcome says what a step did to the workload.
type Outcome string

// The outcomes of a step.
const (
	Unnoticed Outcome = "unnoticed" // the next step is larger
	Stalled   Outcome = "stalled"   // threads waited for memory
	Refaulted Outcome = "refaulted" // what was reclaimed was soon read back
	Little    Outcome = "little"    // the kernel found little that it could reclaim
	Failed    Outcome = "failed"    // the kernel refused it
)

// A Hold is the reason why a workload is asked for nothing in this tick.
type Hold string

// The reasons.
const (
	Enough    Hold = "enough"     // enough of the node's memory is free
	NoService Hold = "no-service" // no service runs on the node or is about to
	NotHere   Hold = "not-here"   // the kernel has no memory.reclaim
	Stale     Hold = "stale"      // its pressure and refaults were not read just now
	Unknown   Hold = "unknown"    // a value is missing: the memory, pressure, refaults, protection, or whether it is frozen
	Pending   Hold = "pending"    // the last step goes on, or is not judged yet
	Resting   Hold = "resting"    // the last step took too much
	Protected Hold = "protected"  // the workload has little more than memory.min or memory.low
	Mixed     Hold = "mixed"      // the cgroup holds other workloads, or is the root
	Ending    Hold = "ending"     // it is being evicted, or is frozen
	Rate      Hold = "rate"       // other workloads were asked for all that one second allows
)

// State is what the reclaim keeps between ticks.
type State struct {
	At time.Time `json:"at,omitzero"`
	// Allowance is what may still be asked for (see mostPerSecond).
	Allowance unit.Bytes `json:"allowance,omitempty"`
	// Lacks is what the node lacks to FreePercent.
	Lacks unit.Bytes                `json:"lacks,omitempty"`
	Work  map[node.WorkloadID]*Work `json:"work,omitempty"`
}

// Work is the reclaim of one BE workload. It never changes.
type Work struct {
	Cgroup node.CgroupPath `json:"cgroup"`
	// Step is the size of the next step.
	Step unit.Bytes `json:"step"`
	// Asked is the step that is not judged yet, or 0. AskedAt is its time, or that of the
	// last one. Then holds the counters at that time.
	Asked   unit.Bytes `json:"asked,omitempty"`
	AskedAt time.Time  `json:"asked_at,omitzero"`
	Then    Counters   `json:"then,omitzero"`
	Last    Judgement  `json:"last,omitzero"`
	// Rest is how long the workload is left alone after a step that is too large although
	// it is the smallest. Until is the end of the present rest.
	Rest  time.Duration `json:"rest_ns,omitempty"`
	Until time.Time     `json:"until,omitzero"`
	Hold  Hold          `json:"hold,omitempty"`
}

// Counters are those of a workload by which a step is judged.
type Counters struct {
	At       time.Time     `json:"at,omitzero"`          // when Stalled and Refaults were read
	Stalled  time.Duration `json:"stalled_ns,omitempty"` // time in which some thread waited for memory (PSI)
	Refaults int64         `json:"refaults,omitempty"`   // pages
	Got      unit.Bytes    `json:"got,omitempty"`
}

// A Judgement says what a step did. The zero Judgement means that no step was judged yet.
type Judgement struct {
	Outcome Outcome    `json:"outcome,omitempty"`
	Asked   unit.Bytes `json:"asked,omitempty"`
	Got     unit.Bytes `json:"got,omitempty"`
	// Stalled is the time in which some thread waited for memory, of the time Over between
	// the last reading before the step and that after it. Refaulted is what was read back
	// in this time.
	Stalled   time.Duration `json:"stalled_ns,omitempty"`
	Over      time.Duration `json:"over_ns,omitempty"`
	Refaulted unit.Bytes    `json:"refaulted,omitempty"`
}

// Files lists the knobs that Decide reads and never sets.
func (c Config) Files() []node.File {
	if c.FreePercent <= 0 {
		return nil
	}
	return []node.File{node.FileMemory, node.FileRun}
}

// Orders lists what the kernel should reclaim after this tick.
func (s State) Orders() []node.ReclaimOrder {
	var all []node.ReclaimOrder
	for _, id := range slices.Sorted(maps.Keys(s.Work)) {
		if w := s.Work[id]; w.Asked > 0 && w.AskedAt.Equal(s.At) {
			all = append(all, node.ReclaimOrder{Workload: id, Cgroup: w.Cgroup, Bytes: w.Asked})
		}
	}
	return all
}

// MayRun reports whether an order for a workload may go on that was decided in an
// earlier tick. It may not if the reclaim is off, or if the workload is gone, is no BE
// work, is ending, is frozen, or has others in its cgroup.
func (s State) MayRun(id node.WorkloadID) bool {
	w := s.Work[id]
	return w != nil && w.Hold != Ending && w.Hold != Mixed
}

// Decide judges the steps that have ended, and decides the next ones while the node
// lacks free memory.
func Decide(c Config, st State, s node.Snapshot) State {
	if c.FreePercent <= 0 {
		return State{}
	}
	elapsed := time.Duration(0)
	if !st.At.IsZero() {
		elapsed = min(max(s.At.Sub(st.At), 0), facts.LongestGap)
	}
	perGap := mostPerSecond * unit.Bytes(facts.LongestGap/time.Second)
	next := State{At: s.At, Allowance: min(st.Allowance+unit.Bytes(elapsed.Seconds()*float64(mostPerSecond)), perGap)}
	x := decider{snap: s, next: next, inside: insideOf(s.Workloads)}
	idle := x.lack(c)
	asked := x.follow(st)
	slices.SortStableFunc(asked, func(a, b *node.Workload) int {
		return cmp.Or(x.work(a).AskedAt.Compare(x.work(b).AskedAt), strings.Compare(string(a.ID), string(b.ID)))
	})
	left := x.next.Lacks - x.running()
	for _, w := range asked {
		hold, size := x.size(w, left)
		if idle != "" && hold != Ending && hold != Mixed { // these two also end a step that goes on (MayRun)
			hold = idle
		}
		work := *x.work(w)
		if work.Hold = hold; hold == "" {
			now, _ := countersOf(w)
			work.Asked, work.AskedAt, work.Then = size, s.At, now
			left -= size
			x.next.Allowance -= size
		}
		x.next.Work[w.ID] = &work
	}
	return x.next
}

// A decider holds the data of one decision.
type decider struct {
	snap   node.Snapshot
	next   State
	inside map[node.CgroupPath]int // workloads in and below each cgroup
}

func (x *decider) work(w *node.Workload) *Work { return x.next.Work[w.ID] }

// insideOf counts the workloads in and below each cgroup.
func insideOf(all []node.Workload) map[node.CgroupPath]int {
	inside := make(map[node.CgroupPath]int, len(all))
	for i := range all {
		for p := all[i].Cgroup; p != ""; p = p.Parent() {
			inside[p]++
		}
	}
	return inside
}

// lack computes what the node lacks. It returns the reason why no workload is asked
// for memory, or "".
func (x *decider) lack(c Config) Hold {
	s := &x.snap
	total, sized := s.MemoryTotal.Value()
	free, known := s.Usage.Free.Value()
	serves := func(w node.Workload) bool { return w.Class.Sensitive() }
	switch {
	case !s.Capabilities.Has(node.FeatureMemoryReclaim):
		return NotHere
	case !sized || !known:
		return Unknown
	case !slices.ContainsFunc(s.Workloads, serves) && !slices.ContainsFunc(s.Arriving, serves):
		return NoService
	}
	if x.next.Lacks = max(total.Percent(c.FreePercent)-free, 0); x.next.Lacks < leastStep {
		return Enough
	}
	return ""
}

// follow judges the steps of the last ticks, and returns the BE workloads.
func (x *decider) follow(st State) []*node.Workload {
	var all []*node.Workload
	for i := range x.snap.Workloads {
		w := &x.snap.Workloads[i]
		if w.Class != node.BE {
			continue
		}
		if x.next.Work == nil {
			x.next.Work = map[node.WorkloadID]*Work{}
		}
		was := st.Work[w.ID]
		if was == nil || was.Cgroup != w.Cgroup {
			was = &Work{Cgroup: w.Cgroup, Step: leastStep}
		}
		next := judge(*was, w, x.snap)
		x.next.Work[w.ID] = &next
		all = append(all, w)
	}
	return all
}

// running returns what the kernel was asked for and may not have reclaimed yet.
func (x *decider) running() (all unit.Bytes) {
	for i := range x.snap.Workloads {
		w := &x.snap.Workloads[i]
		if work := x.work(w); work != nil && w.Usage.Reclaim.Running && w.Usage.Reclaim.Ended.Before(work.AskedAt) {
			all += work.Asked
		}
	}
	return all
}

// size returns the next step of a workload, or the reason why there is none.
func (x *decider) size(w *node.Workload, left unit.Bytes) (Hold, unit.Bytes) {
	work := x.work(w)
	used, known := w.Usage.Memory.Value()
	now, counted := countersOf(w)
	memory, shown := x.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileMemory}].(node.Memory)
	run, runs := x.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}]
	// The kernel does not count the protection of the cgroup from which it is asked to
	// reclaim (mem_cgroup_protection in include/linux/memcontrol.h).
	room := used - max(memory.Min, memory.Low)
	step := min(work.Step, room, max(used/stepDivisor, leastStep))
	switch {
	case w.Cgroup == "" || x.inside[w.Cgroup] > 1:
		return Mixed, 0
	case w.Ending != "" || run == node.Frozen || run == node.Ended:
		return Ending, 0
	case work.Asked > 0 || w.Usage.Reclaim.Running:
		return Pending, 0
	case !known || !counted || !shown || !runs:
		return Unknown, 0
	case x.snap.At.Before(work.Until):
		return Resting, 0
	case x.snap.At.Sub(now.At) > freshWithin:
		return Stale, 0
	case step < leastStep:
		return Protected, 0
	case left < leastStep:
		return Enough, 0
	case x.next.Allowance < leastStep:
		return Rate, 0
	}
	page := max(x.snap.Knobs.Kernel.PageSize, 1)
	return "", min(step, left, x.next.Allowance) / page * page
}

// countersOf returns the counters of a workload, and whether all of them are known.
func countersOf(w *node.Workload) (Counters, bool) {
	stalled, measured := w.Usage.Pressure.Memory.Some.Value()
	refaults, counted := w.Usage.Refaults.Value()
	at := w.Usage.SlowAt
	return Counters{at, stalled, refaults, w.Usage.Reclaim.Got}, measured && counted && !at.IsZero()
}

// judge judges the last step of a workload once its effect shows.
func judge(w Work, of *node.Workload, s node.Snapshot) Work {
	r := of.Usage.Reclaim
	if w.Asked == 0 || r.Running {
		return w
	}
	if r.Ended.Before(w.AskedAt) { // no one has carried it out: the agent observes, or was replaced meanwhile
		if s.At.Sub(w.AskedAt) >= lostAfter {
			w.Asked = 0
		}
		return w
	}
	now, known := countersOf(of)
	if !r.IsSettled(s.At) || !known || now.At.Sub(r.Ended) < node.ReclaimSettles {
		return w
	}
	if now.Stalled < w.Then.Stalled || now.Refaults < w.Then.Refaults || now.Got < w.Then.Got {
		return Work{Cgroup: w.Cgroup, Step: leastStep} // counters begin again: the cgroup or the agent is another one
	}
	page := max(s.Knobs.Kernel.PageSize, 1)
	j := Judgement{
		Outcome: Unnoticed, Asked: w.Asked, Got: now.Got - w.Then.Got, Over: now.At.Sub(w.Then.At),
		Stalled: now.Stalled - w.Then.Stalled, Refaulted: unit.Bytes(now.Refaults-w.Then.Refaults) * page,
	}
	switch {
	case r.Errno != 0:
		j.Outcome = Failed
	case j.Stalled > j.Over/stallDivisor:
		j.Outcome = Stalled
	case j.Refaulted > j.Got/refaultDivisor && j.Refaulted > leastStep/refaultDivisor:
		j.Outcome = Refaulted
	case j.Got < w.Asked/littleDivisor:
		j.Outcome = Little
	}
	full := w.Step-w.Asked < page // orders are whole pages
	w.Asked, w.Last = 0, j
	if j.Outcome == Unnoticed {
		if w.Rest /= 2; w.Rest < leastRest {
			w.Rest = 0
		}
		if used := of.Usage.Memory.Or(0); full { // a smaller step says nothing about larger ones
			w.Step = min(w.Step+max(used/growthDivisor, leastStep), max(used/stepDivisor, leastStep))
		}
		return w
	}
	if w.Step = j.Asked / 2; j.Outcome == Little || j.Outcome == Failed {
		w.Step = min(w.Step, j.Got)
	}
	w.Until = s.At.Add(node.ReclaimSettles)
	if w.Step < leastStep {
		w.Step, w.Rest = leastStep, min(max(2*w.Rest, leastRest), mostRest)
		w.Until = s.At.Add(w.Rest)
	}
	return w
}
