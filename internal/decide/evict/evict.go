// Package evict decides which BE workloads must end when the node's memory or
// CPU is short. It asks as few workloads as possible to end, and kills those
// that do not end in time. While memory is short, it freezes workloads that
// grow. It decides the knob node.FileRun.
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

// Owned lists the knobs that this package decides.
var Owned = []node.File{node.FileRun}

// Config holds the keys of resource-threshold-config for the eviction of BE
// work. The zero Config evicts nothing.
type Config struct {
	Memory MemoryConfig `json:"memory,omitzero"`
	CPU    CPUConfig    `json:"cpu,omitzero"`
	// Grace is the time between SIGTERM and SIGKILL (evictGracePeriodSeconds).
	Grace time.Duration `json:"grace_ns,omitempty"`
	// MostPriority is the highest priority of work that Tenon may evict
	// (evictEnabledPriorityThreshold). If it is absent, Tenon may evict every
	// BE workload.
	MostPriority node.Maybe[int64] `json:"evictEnabledPriorityThreshold,omitzero"`
	// Unlabelled lets Tenon evict work that is BE only because it requests no
	// resources (evictUnlabelled).
	Unlabelled bool `json:"evictUnlabelled,omitempty"`
}

// Enabled reports whether any kind of eviction is enabled.
func (c Config) Enabled() bool { return c.Memory.on() || c.CPU.satisfies() || c.CPU.bounds() }

// Files lists the knobs that Decide may set.
func (c Config) Files() []node.File {
	if !c.Enabled() {
		return nil
	}
	return Owned
}

// A Cause is the resource whose shortage causes an eviction.
type Cause string

// The causes of evictions.
const (
	CauseMemory Cause = "memory"
	CauseCPU    Cause = "cpu"
)

// Causes lists the causes of evictions.
var Causes = []Cause{CauseMemory, CauseCPU}

const (
	// settling is the time for which Tenon chooses no other victim after a victim
	// has ended. The next measurements must first show the memory and CPU that the
	// victim freed.
	settling = time.Second
	// killPause is the time for which Tenon chooses no other victim after
	// SIGKILL. It is also the time before Tenon kills the same victim again.
	// That time doubles with each kill, up to longestKillPause.
	killPause        = 2 * time.Second
	longestKillPause = time.Minute
	// While memory is short, a victim that has not ended yet is awaited for the
	// time shortHold before another is chosen. After that, others are chosen if
	// more must go than the victim has, and after longestHold in any case. A pod
	// may have a grace period of an hour. longestHold is longer than the default
	// grace period of Kubernetes.
	shortHold   = 10 * time.Second
	longestHold = 40 * time.Second
)

// State is the state of evictions between ticks. Its durations are sums of the
// times between snapshots, and each of these times counts as facts.LongestGap
// at most. Therefore neither a jump of the clock nor a pause of the agent ends
// a grace period.
type State struct {
	At      time.Time                  `json:"at,omitzero"`
	Victims map[node.WorkloadID]Victim `json:"victims,omitempty"`
	// Settling is the remaining time in which Tenon chooses no other victim.
	Settling time.Duration `json:"settling_ns,omitempty"`
	Memory   memoryRelief  `json:"memory,omitzero"`
	// Satisfied holds the bound, usage and requests of BE in a window. Busy is
	// the time for which the node has used more CPU than its threshold.
	Satisfied satisfaction  `json:"satisfied,omitzero"`
	Busy      conditionTime `json:"busy,omitzero"`
}

// A Victim is a workload that Tenon asked to end.
type Victim struct {
	Cause Cause `json:"cause"`
	// Waited is the time since Tenon asked the workload to end, or since the
	// last kill.
	Waited time.Duration `json:"waited_ns,omitempty"`
	Kills  int           `json:"kills,omitempty"`
	// Memory is the memory usage of the workload when it was chosen. CPU is the
	// value of its CPU counter in the last tick. A counter that has fallen
	// since then belongs to a new cgroup of the same name.
	Memory unit.Bytes    `json:"memory,omitempty"`
	CPU    time.Duration `json:"cpu_ns,omitempty"`
	// Cached says that Memory includes all page cache.
	Cached bool `json:"cached,omitempty"`
}

// patience returns how long Tenon waits after a SIGKILL before it kills the
// victim again.
func (v Victim) patience() time.Duration { return min(killPause<<min(v.Kills-1, 8), longestKillPause) }

// awaited reports whether Tenon waits for the end of this victim before it
// chooses another because CPU is short.
func (v Victim) awaited() bool { return v.Kills == 0 || v.Kills == 1 && v.Waited < killPause }

// holds is like awaited, but because memory is short.
func (v Victim) holds() bool { return v.awaited() && (v.Kills > 0 || v.Waited < longestHold) }

// holdsAll is like holds, whatever more must go than this victim has.
func (v Victim) holdsAll() bool { return v.holds() && (v.Kills > 0 || v.Waited < shortHold) }

// A conditionTime is the time for which a condition has held without
// interruption.
type conditionTime struct {
	So  bool          `json:"so,omitempty"`
	For time.Duration `json:"for_ns,omitempty"`
}

// next adds the time since the last tick if the condition still holds. It adds
// at most facts.LongestGap, because it is unknown whether the condition held
// during a pause of the agent.
func (x conditionTime) next(so bool, elapsed time.Duration) conditionTime {
	switch {
	case !so:
		return conditionTime{}
	case !x.So || elapsed <= 0:
		return conditionTime{So: true}
	}
	return conditionTime{So: true, For: x.For + min(elapsed, facts.LongestGap)}
}

// An evictor holds the input and the result of one call of Decide.
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
	at      map[node.Knob]int       // index into wants
	inside  map[node.CgroupPath]int // workloads in and below each cgroup; nil until needed
	held    bool                    // choose no other victim in this tick because CPU is short
}

// Decide returns the next state, and a want for the knob node.FileRun of each
// BE workload. It chooses the victims with the lowest priority, and among equal
// priorities those with the largest usage. It chooses the workloads of a
// DaemonSet last, because their controller would start them again at once on
// the same node.
func Decide(c Config, st State, l facts.Layout, u facts.Use, s node.Snapshot) (State, []plan.Want) {
	if !c.Enabled() {
		return State{}, nil // package policy releases frozen cgroups that no want mentions
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

// RunKnob returns the knob that ends, freezes and thaws a workload.
func RunKnob(w node.Workload) node.Knob { return node.Knob{Cgroup: w.Cgroup, File: node.FileRun} }

// want adds the want that gives the knob node.FileRun of w the value v. It
// replaces an earlier want for this knob.
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

// follow updates the victims of earlier ticks. It drops victims that have
// ended, and pursues the others.
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
	if left > 0 { // some of the workloads have ended
		x.next.Settling = settling
	}
	x.held = x.next.Settling > 0 || slices.ContainsFunc(x.snap.Workloads, func(w node.Workload) bool {
		v, chosen := x.next.Victims[w.ID]
		return chosen && v.awaited()
	})
}

// evictsBy reports whether eviction for this cause is still enabled.
func (x *evictor) evictsBy(cause Cause) bool {
	if cause == CauseMemory {
		return x.Memory.on()
	}
	return x.CPU.satisfies() || x.CPU.bounds()
}

func (x *evictor) ended(w node.Workload) bool { return x.snap.Knobs.Now[RunKnob(w)] == node.Ended }

// pursue kills a victim that has not ended in its grace period, or that uses
// clearly more memory than when it was chosen.
func (x *evictor) pursue(w node.Workload, v Victim) {
	grown := v.Cause == CauseMemory && x.hasGrown(w, v.Memory, v.Cached)
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

// graceOf returns the grace period of a workload, or else the configured one.
func (x *evictor) graceOf(w node.Workload) time.Duration { return w.Grace.Or(x.Grace) }

func (x *evictor) remember(w node.Workload, v Victim) {
	if x.next.Victims == nil {
		x.next.Victims = map[node.WorkloadID]Victim{}
	}
	x.next.Victims[w.ID] = v
}

// choose asks workloads to end until they free a given amount (need). It takes
// the workloads with the lowest priority first, and among equal priorities
// those with the largest usage. The function freed returns the amount that the
// end of a workload frees. If the amount is 0, choose skips the workload.
func (x *evictor) choose(cause Cause, reason string, need int64, freed, use func(node.Workload) int64, show func(int64) string) (expected int64, chosen int) {
	all := x.candidates(cause)
	slices.SortStableFunc(all, func(a, b node.Workload) int {
		return cmp.Or(compareFlags(a.Daemon, b.Daemon), cmp.Compare(a.EvictionPriority, b.EvictionPriority), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.SubPriority, b.SubPriority),
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
		x.remember(w, Victim{Cause: cause, Memory: facts.MemoryOf(w).Or(0), CPU: w.Usage.CPU.Or(0), Cached: includesCache(w)})
		x.want(w, plan.Set, node.AskedToEnd, fmt.Sprintf("%s: %s; %s has %s and %s", cause, reason, w.ID, rankOf(w), show(freed(w))))
	}
	x.held = x.held || chosen > 0
	return expected, chosen
}

// compareFlags compares two flags, so that false sorts before true.
func compareFlags(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// rankOf returns the part of a reason that names the priorities by which Tenon
// chose a workload.
func rankOf(w node.Workload) string {
	s := fmt.Sprintf("priority %d", w.Priority)
	if w.SubPriority != 0 && w.SubPriority != w.Priority {
		s += fmt.Sprintf(".%d", w.SubPriority)
	}
	if w.EvictionPriority != 0 {
		s = fmt.Sprintf("eviction priority %d, %s", w.EvictionPriority, s)
	}
	return s
}

// candidates lists the running BE workloads that Tenon may evict for a cause. A
// workload whose knob node.FileRun could not be read is omitted, because Tenon
// cannot ask it to end.
func (x *evictor) candidates(cause Cause) []node.Workload {
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

// exempt returns the reason why a workload must not be evicted for a cause, or
// "".
func (x *evictor) exempt(w node.Workload, cause Cause) string {
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
		return "its cgroup is the root"
	case x.inside[w.Cgroup] > 1:
		return "its cgroup holds other work, too"
	case bounded && int64(cmp.Or(w.Priority, w.DefaultPriority)) > most:
		return fmt.Sprintf("its priority %d is above %d", cmp.Or(w.Priority, w.DefaultPriority), most)
	case w.Unlabelled && !x.Unlabelled:
		return "it is BE only because it requests nothing (evictUnlabelled)"
	case slices.Contains(w.Overrides.EvictionExemptFrom, string(cause)):
		return "its owner does not let it be evicted for " + string(cause)
	}
	return ""
}

// leave adds a want for each BE workload that has none yet. The want abstains
// and carries the reason.
func (x *evictor) leave(reason string) {
	for _, w := range x.snap.Workloads {
		if _, said := x.at[RunKnob(w)]; w.Class == node.BE && !said {
			x.want(w, plan.Abstain, nil, reason)
		}
	}
}
