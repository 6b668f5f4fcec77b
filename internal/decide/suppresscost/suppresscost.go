// Package suppresscost adds up what the owner's threshold of CPU suppress costs
// best-effort (BE) work. This is the CPU time that stayed idle while BE used
// all that the threshold allowed. The threshold is also called the watermark.
package suppresscost

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// The bound of BE counts as reached if BE uses at least reachedShare percent of
// it. The kernel hands out a quota in slices, so a small rest remains even if
// BE could use more.
const reachedShare = 95

// A Watermark is the cost of cpuSuppressThresholdPercent, counted from the time
// Since. The zero Watermark says that there is no threshold.
type Watermark struct {
	Percent unit.Percent `json:"threshold_percent"`
	// Since is the time at which the count began: the start of the agent, or
	// the last change of the threshold.
	Since time.Time `json:"since"`
	// Counted is the part of the time since Since in which BE ran and its CPU
	// usage was known.
	Counted time.Duration `json:"counted_ns"`
	// Reached is the part of Counted in which BE used all that the threshold
	// allowed.
	Reached time.Duration `json:"reached_ns"`
	// Withheld is the amount of CPU time that stayed idle during Reached. It is an
	// upper bound. Without the threshold BE could have used that time, but may not
	// have wanted all of it.
	Withheld time.Duration `json:"withheld_ns"`
}

// HasThreshold reports whether there is a threshold.
func (w Watermark) HasThreshold() bool { return !w.Since.IsZero() }

// Average is the mean of Withheld over the counted time, as CPUs.
func (w Watermark) Average() unit.MilliCPU {
	if w.Counted <= 0 {
		return 0
	}
	return unit.MilliCPU(1000 * w.Withheld.Seconds() / w.Counted.Seconds())
}

// String says in one sentence what the threshold cost, and which claim does not
// hold because of it.
func (w Watermark) String() string {
	text := fmt.Sprintf("cpuSuppressThresholdPercent %v: ", int64(w.Percent))
	switch {
	case w.Counted <= 0:
		text += "BE has not run yet, so it has cost nothing"
	case w.Withheld <= 0:
		text += fmt.Sprintf("it has cost BE nothing in %v", w.Counted.Round(time.Second))
	default:
		text += fmt.Sprintf("it has withheld up to %v from BE in the mean of %v, %v of CPU time in all: that stayed idle in the %v in which BE used all that it was allowed",
			w.Average(), w.Counted.Round(time.Second), w.Withheld.Round(time.Second), w.Reached.Round(time.Second))
	}
	return text + ". With a threshold, Tenon does not claim that services wait no longer than without Tenon: BE starts anew in each period of its quota"
}

// A Tick is the input of Follow from one tick of the loop.
type Tick struct {
	Percent unit.Percent // the owner's threshold
	// BackedOff says that the CPU back-off narrows BE further, because an
	// objective is missed. Then the threshold is not what withholds the idle
	// CPU.
	BackedOff bool
	CPUs      unit.CPUSet // the CPUs that BE may use, apart from the threshold
	Layout    facts.Layout
	Use       facts.Use
}

// Follow returns the watermark after a tick. s is the snapshot of the tick. The
// knobs in s have bounded BE since the last tick.
func (w Watermark) Follow(t Tick, s node.Snapshot) Watermark {
	if w.Percent != t.Percent || w.Since.IsZero() || w.Since.After(s.At) {
		w = Watermark{Percent: t.Percent, Since: s.At}
	}
	elapsed := t.Use.Elapsed
	if elapsed <= 0 || elapsed > facts.LongestGap {
		return w
	}
	idle, known := t.idleCPU(s)
	used, held := t.roots(s)
	if !known || used == 0 {
		return w
	}
	w.Counted += elapsed
	if held && !t.BackedOff {
		w.Reached += elapsed
		w.Withheld += time.Duration(idle) * elapsed / 1000
	}
	return w
}

// idleCPU returns how much CPU is idle on the CPUs that BE may use.
func (t Tick) idleCPU(s node.Snapshot) (unit.MilliCPU, bool) {
	var room unit.CPUSet
	for _, m := range t.Layout.Roots {
		room = room.Union(facts.RoomOf(s.Knobs, m, t.CPUs))
	}
	free := unit.CPUs(room.Len())
	for cpu := range room.All() {
		busy, known := t.Use.CPU[cpu]
		if !known {
			return 0, false
		}
		free -= min(busy, unit.CPUs(1))
	}
	return free, !room.Empty()
}

// roots returns how much CPU BE uses. held says whether BE reached the bound of
// the threshold at any contention root.
func (t Tick) roots(s node.Snapshot) (all unit.MilliCPU, held bool) {
	used := make(map[node.CgroupPath]unit.MilliCPU, len(t.Layout.Roots))
	own := map[node.CgroupPath]unit.MilliCPU{}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		m := t.Layout.RootOf[i]
		if m == "" {
			continue
		}
		used[m] += t.Use.Workload[w.ID]
		all += t.Use.Workload[w.ID]
		if limit, has := w.CPULimit.Value(); has && w.Cgroup == m {
			own[m] = limit
		}
	}
	for _, m := range t.Layout.Roots {
		may, bounded := boundOf(s, m, facts.RoomOf(s.Knobs, m, t.CPUs))
		if limit, has := own[m]; has && limit <= may {
			continue // its own limit bounds it
		}
		if bounded && used[m]*100 >= may*reachedShare {
			held = true
		}
	}
	return all, held
}

// boundOf returns how much CPU a contention root may use. room are the CPUs that
// it could use without the threshold. bounded is true if the root may use less
// because of the threshold. A cpuset without any CPU of room does not count: BE
// then has its minimum, which does not come from the threshold.
func boundOf(s node.Snapshot, m node.CgroupPath, room unit.CPUSet) (may unit.MilliCPU, bounded bool) {
	may = unit.CPUs(room.Len())
	if set, known := s.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}].(node.CPUs); known && !set.Set.Empty() {
		if here := unit.CPUs(set.Set.Intersect(room).Len()); here > 0 && here < may {
			may, bounded = here, true
		}
	}
	knob := node.Knob{Cgroup: m, File: node.FileCPUMax}
	quota, known := s.Knobs.Now[knob].(node.CPUMax)
	if !known || !facts.IsQuota(quota) || facts.MilliOf(quota) > may {
		return may, bounded
	}
	if quota.Period == culprit.Period {
		return facts.MilliOf(quota), false // the bound of one workload, for which a service waited
	}
	before, _ := facts.Original(s.Knobs, knob).(node.CPUMax)
	return facts.MilliOf(quota), !facts.IsQuota(before) || facts.MilliOf(quota) < facts.MilliOf(before)
}
