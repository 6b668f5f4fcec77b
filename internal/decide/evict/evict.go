// Package evict decides which BE workloads end, because the node's memory or CPU
// runs short: it asks as few as possible to end, kills those that do not, and
// freezes those that grow meanwhile. It owns the knob run.
package evict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Owned are the knobs that this package decides.
var Owned = []node.File{node.FileRun}

// Config is the part of resource-threshold-config that ends BE work. The zero
// value ends none.
type Config struct {
	Memory MemoryConfig `json:"memory,omitzero"`
	CPU    CPUConfig    `json:"cpu,omitzero"`
	// Grace is the time between SIGTERM and SIGKILL (evictGracePeriodSeconds).
	Grace time.Duration `json:"grace_ns,omitempty"`
	// MostPriority is the highest priority of work that may be evicted
	// (evictEnabledPriorityThreshold). Missing: all best-effort work may.
	MostPriority node.Maybe[int64] `json:"evictEnabledPriorityThreshold,omitzero"`
}

// On reports whether any kind of eviction is switched on.
func (c Config) On() bool { return c.Memory.on() || c.CPU.satisfies() || c.CPU.bounds() }

// Files lists the knobs that c may want to set.
func (c Config) Files() []node.File {
	if !c.On() {
		return nil
	}
	return Owned
}

// Causes are the words with which the reason of each eviction begins,
// before a colon.
var Causes = []string{CauseMemory, CauseCPU}

// The causes of evictions.
const (
	CauseMemory = "memory"
	CauseCPU    = "cpu"
)

const (
	// settling is how long after the end of a victim no other is chosen, so that
	// the memory and CPU that it freed are measured and not assumed.
	settling = time.Second
	// dying is how long a victim may take to die of SIGKILL before another is
	// chosen, and before it is killed again; that time doubles each time, up
	// to longestDying.
	dying        = 2 * time.Second
	longestDying = time.Minute
)

// State is what evictions remember from tick to tick: the victims, and for how
// long there has been a reason for more of them. Durations are sums of the times
// between snapshots, each bounded, so a clock that jumps, or a pause of the
// agent, ends no grace period.
type State struct {
	At      time.Time                  `json:"at,omitzero"`
	Victims map[node.WorkloadID]victim `json:"victims,omitempty"`
	// Settling is for how long still no other victim is chosen.
	Settling time.Duration `json:"settling_ns,omitempty"`
	Memory   memoryRelief  `json:"memory,omitzero"`
	// Starved is for how long BE has got too little CPU, and Busy for how long
	// the node's CPUs have been above their threshold.
	Starved lasting `json:"starved,omitzero"`
	Busy    lasting `json:"busy,omitzero"`
}

// A victim is a workload that was asked to end.
type victim struct {
	Cause string `json:"cause"`
	// Waited is for how long, since it was asked or last killed.
	Waited time.Duration `json:"waited_ns,omitempty"`
	Kills  int           `json:"kills,omitempty"`
	// Memory is its use at that time, and CPU its counter in the last tick: a
	// lower counter means another cgroup of the same name.
	Memory unit.Bytes    `json:"memory,omitempty"`
	CPU    time.Duration `json:"cpu_ns,omitempty"`
	// Cached: Memory counts all page cache.
	Cached bool `json:"cached,omitempty"`
}

// patience is how long a victim may take to die after SIGKILL.
func (v victim) patience() time.Duration { return min(dying<<min(v.Kills-1, 8), longestDying) }

// holds reports whether no other victim is chosen while this one is there.
func (v victim) holds() bool { return v.Kills == 0 || v.Kills == 1 && v.Waited < dying }

// lasting is for how long a condition has held without a break.
type lasting struct {
	So  bool          `json:"so,omitempty"`
	For time.Duration `json:"for_ns,omitempty"`
}

// next adds the time since the last tick. A long one, as after a pause of the
// agent, counts in part: the condition in between is unknown.
func (x lasting) next(so bool, elapsed time.Duration) lasting {
	switch {
	case !so:
		return lasting{}
	case !x.So || elapsed <= 0:
		return lasting{So: true}
	}
	return lasting{So: true, For: x.For + min(elapsed, facts.LongestGap)}
}

// An evictor is one decision of evict.
type evictor struct {
	Config
	facts.Layout
	use  facts.Use
	snap node.Snapshot
	// elapsed is the time since the last decision.
	elapsed time.Duration
	was     State
	next    State
	wants   []plan.Want
	at      map[node.Knob]int       // of wants
	inside  map[node.CgroupPath]int // workloads in and below each cgroup, once asked for
	held    bool                    // no other victim is chosen now
}

// Decide returns what to remember and what the knob run of BE workloads should be.
// Victims are those of lowest priority, and of these the ones that use most.
func Decide(c Config, st State, l facts.Layout, u facts.Use, s node.Snapshot) (State, []plan.Want) {
	if !c.On() {
		return State{}, nil // what is frozen is released as nobody's
	}
	x := evictor{Config: c, Layout: l, use: u, snap: s, was: st, next: State{At: s.At}, at: map[node.Knob]int{}}
	if !st.At.IsZero() {
		x.elapsed = s.At.Sub(st.At)
	}
	x.follow()
	x.relieve()
	x.satisfy()
	x.unload()
	return x.next, x.wants
}

// RunKnob is the knob that ends, freezes and thaws a workload.
func RunKnob(w node.Workload) node.Knob { return node.Knob{Cgroup: w.Cgroup, File: node.FileRun} }

// want adds the want that the knob run of workload w be v. It replaces an
// earlier want for that knob.
func (x *evictor) want(w node.Workload, i plan.Intent, v node.Value, reason string) {
	k := RunKnob(w)
	want := plan.Want{Intent: i, Knob: k, Value: v, Owner: plan.OwnerEvict, Reason: reason, BE: true}
	if at, said := x.at[k]; said {
		x.wants[at] = want
		return
	}
	x.at[k] = len(x.wants)
	x.wants = append(x.wants, want)
}

// follow moves on the victims of earlier ticks.
func (x *evictor) follow() {
	passed := min(max(x.elapsed, 0), facts.LongestGap)
	x.next.Settling = max(x.was.Settling-passed, 0)
	left := len(x.was.Victims)
	for _, w := range x.snap.Workloads {
		v, chosen := x.was.Victims[w.ID]
		chosen = chosen && x.evictsBy(v.Cause)
		if !chosen || w.Class != node.BE || x.ended(w) || w.Usage.CPU.Or(v.CPU) < v.CPU {
			continue
		}
		left--
		if why := x.exempt(w, v.Cause); why != "" {
			x.want(w, plan.Release, nil, fmt.Sprintf("%s: %s was asked to end and may stay: %s", v.Cause, w.ID, why))
			continue
		}
		v.Waited += passed
		v.CPU = w.Usage.CPU.Or(v.CPU)
		x.pursue(w, v)
	}
	if left > 0 { // some have ended
		x.next.Settling = settling
	}
	x.held = x.next.Settling > 0 || slices.ContainsFunc(x.snap.Workloads, func(w node.Workload) bool {
		v, chosen := x.next.Victims[w.ID]
		return chosen && v.holds()
	})
}

// evictsBy reports whether evictions for this cause are still switched on.
func (x *evictor) evictsBy(cause string) bool {
	if cause == CauseMemory {
		return x.Memory.on()
	}
	return x.CPU.satisfies() || x.CPU.bounds()
}

func (x *evictor) ended(w node.Workload) bool { return x.snap.Knobs.Now[RunKnob(w)] == node.Ended }

// pursue kills a victim that has not ended in its grace period, or that grows.
func (x *evictor) pursue(w node.Workload, v victim) {
	grown := v.Cause == CauseMemory && x.grown(w, v.Memory, v.Cached)
	switch {
	case v.Kills == 0 && (v.Waited >= x.graceOf(w) || grown):
		reason := fmt.Sprintf("%s: %s was asked to end %v ago and is still there", v.Cause, w.ID, v.Waited.Round(time.Second/10))
		if grown && v.Waited < x.graceOf(w) {
			reason = fmt.Sprintf("%s: %s was asked to end and takes more memory instead", v.Cause, w.ID)
		}
		v.Waited, v.Kills = 0, 1
		x.want(w, plan.Set, node.Ended, reason)
	case v.Kills == 0:
		x.want(w, plan.Abstain, nil, fmt.Sprintf("%s: %s was asked to end and has %v for it", v.Cause, w.ID, x.graceOf(w)))
	case v.Waited >= v.patience():
		reason := fmt.Sprintf("%s: %s did not die of SIGKILL: once more", v.Cause, w.ID)
		v.Waited, v.Kills = 0, v.Kills+1
		x.want(w, plan.Set, node.Ended, reason)
	default:
		x.want(w, plan.Abstain, nil, fmt.Sprintf("%s: %s was killed and is not gone yet", v.Cause, w.ID))
	}
	x.remember(w, v)
}

// graceOf is the grace period of a workload: its own, or else the configured one.
func (x *evictor) graceOf(w node.Workload) time.Duration { return w.Grace.Or(x.Grace) }

func (x *evictor) remember(w node.Workload, v victim) {
	if x.next.Victims == nil {
		x.next.Victims = map[node.WorkloadID]victim{}
	}
	x.next.Victims[w.ID] = v
}

// choose asks workloads to end until the sum that they free is at least need, those
// of lowest priority first and then those with the largest use. freed is the amount
// that the end of a workload frees; a workload for which it is 0 is passed over.
func (x *evictor) choose(cause, reason string, need int64, freed, use func(node.Workload) int64, show func(int64) string) (expected int64, chosen int) {
	all := x.candidates(cause)
	slices.SortStableFunc(all, func(a, b node.Workload) int {
		return cmp.Or(cmp.Compare(a.EvictionPriority, b.EvictionPriority), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.SubPriority, b.SubPriority),
			cmp.Compare(use(b), use(a)), strings.Compare(string(a.ID), string(b.ID)))
	})
	for _, w := range all {
		if expected >= need {
			break
		}
		if freed(w) <= 0 {
			continue
		}
		expected += freed(w)
		chosen++
		x.remember(w, victim{Cause: cause, Memory: facts.MemoryOf(w).Or(0), CPU: w.Usage.CPU.Or(0), Cached: cached(w)})
		x.want(w, plan.Set, node.AskedToEnd, fmt.Sprintf("%s: %s; %s has %s and %s", cause, reason, w.ID, rankOf(w), show(freed(w))))
	}
	x.held = x.held || chosen > 0
	return expected, chosen
}

// rankOf says, for a reason, which priorities put a workload before others.
func rankOf(w node.Workload) string {
	s := fmt.Sprintf("priority %d", w.Priority)
	if w.SubPriority != 0 {
		s += fmt.Sprintf(".%d", w.SubPriority)
	}
	if w.EvictionPriority != 0 {
		s = fmt.Sprintf("eviction priority %d, %s", w.EvictionPriority, s)
	}
	return s
}

// candidates lists the BE workloads that run and may be evicted for a cause. A
// workload whose knob could not be read cannot be asked to end.
func (x *evictor) candidates(cause string) []node.Workload {
	var all []node.Workload
	for _, w := range x.snap.Workloads {
		_, chosen := x.next.Victims[w.ID]
		_, shown := x.snap.Knobs.Now[RunKnob(w)]
		if w.Class == node.BE && shown && !chosen && !x.ended(w) && x.exempt(w, cause) == "" {
			all = append(all, w)
		}
	}
	return all
}

// exempt says why a workload is exempt from eviction for a cause; empty: it is
// not.
func (x *evictor) exempt(w node.Workload, cause string) string {
	if x.inside == nil {
		x.inside = make(map[node.CgroupPath]int, len(x.snap.Workloads))
		for _, o := range x.snap.Workloads {
			for p := o.Cgroup; p != ""; p = p.Parent() {
				x.inside[p]++
			}
		}
	}
	most, bounded := x.MostPriority.Value()
	switch {
	case w.EvictionExempt != "":
		return w.EvictionExempt
	case w.Cgroup == "":
		return "its cgroup is that of all"
	case x.inside[w.Cgroup] > 1:
		return "its cgroup holds other work, too"
	case bounded && int64(w.Priority) > most:
		return fmt.Sprintf("its priority %d is above %d", w.Priority, most)
	case slices.Contains(w.Overrides.EvictionExemptFrom, cause):
		return "its owner does not let it be evicted for " + cause
	}
	return ""
}

// leave wants nothing of each BE workload that has no want yet, and says why.
func (x *evictor) leave(reason string) {
	for _, w := range x.snap.Workloads {
		if _, said := x.at[RunKnob(w)]; w.Class == node.BE && !said {
			x.want(w, plan.Abstain, nil, reason)
		}
	}
}
