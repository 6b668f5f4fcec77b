package isolation

import (
	"cmp"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// LS work counts as running on a CPU if it uses at least runningShare
	// thousandths of the CPU. Timers and rare wake-ups, which happen on every
	// CPU, use less.
	runningShare = 10
	// After LS ran on a CPU, BE avoids its siblings for the time marginCalm.
	marginCalm = 3 * time.Second
	// blindFor is the time without counters of LS work after which
	// the mechanism that follows it has failed. It is not 0, because the counting starts
	// only when the mechanism starts.
	blindFor = 10 * time.Second
)

// Sightings holds the CPUs on which LS work ran a short time ago.
type Sightings struct {
	At      time.Time                  `json:"at,omitzero"`
	Counter map[unit.CPU]time.Duration `json:"counter,omitempty"`
	Last    map[unit.CPU]time.Time     `json:"last,omitempty"`
	// Blind is the time since which the counters have been missing. It is zero
	// if the counters exist.
	Blind time.Time `json:"blind,omitzero"`
}

// Observe adds the counters of s. If s has no counters, the older sightings
// stay until they expire.
func (x Sightings) Observe(s node.Snapshot) Sightings {
	switch {
	case x.At.After(s.At): // x.At is from before a reboot
		return Sightings{At: s.At}
	case s.Isolation.LSOn == nil && x.Blind.IsZero():
		return Sightings{At: s.At, Last: x.recentCPUs(s.At), Blind: s.At}
	case s.Isolation.LSOn == nil:
		return Sightings{At: s.At, Last: x.recentCPUs(s.At), Blind: x.Blind}
	}
	next := Sightings{At: s.At, Counter: s.Isolation.LSOn, Last: x.recentCPUs(s.At)}
	elapsed := s.At.Sub(x.At)
	for cpu, now := range next.Counter {
		then, known := x.Counter[cpu]
		if known && now > then && now-then >= elapsed*runningShare/1000 {
			next.Last[cpu] = s.At
		}
	}
	return next
}

// Blinded reports whether the counters have been missing for blindFor.
func (x Sightings) Blinded() bool { return !x.Blind.IsZero() && x.At.Sub(x.Blind) >= blindFor }

// recentCPUs returns the CPUs on which LS ran a short time ago, and
// when it did. BE must still avoid the siblings of these CPUs.
func (x Sightings) recentCPUs(at time.Time) map[unit.CPU]time.Time {
	last := map[unit.CPU]time.Time{}
	for cpu, seen := range x.Last {
		if age := at.Sub(seen); age >= 0 && age < marginCalm {
			last[cpu] = seen
		}
	}
	return last
}

// Siblings lists the siblings of the CPUs on which LS work ran. It begins with
// the CPU whose siblings LS has not used for the longest time.
func (x Sightings) Siblings(t node.Topology) []unit.CPU {
	if len(x.Last) == 0 {
		return nil
	}
	cores := map[node.CoreID][]unit.CPU{}
	for _, c := range t.CPUs {
		cores[c.Core] = append(cores[c.Core], c.ID)
	}
	seen := map[unit.CPU]time.Time{}
	for _, cpus := range cores {
		for _, ls := range cpus {
			at, is := x.Last[ls]
			for _, beside := range cpus {
				if is && beside != ls && seen[beside].Before(at) {
					seen[beside] = at
				}
			}
		}
	}
	var all []unit.CPU
	for cpu := range seen {
		all = append(all, cpu)
	}
	slices.SortFunc(all, func(a, b unit.CPU) int { return cmp.Or(seen[a].Compare(seen[b]), cmp.Compare(b, a)) })
	return all
}
