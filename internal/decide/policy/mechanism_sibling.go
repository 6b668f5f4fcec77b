package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// besideShare is the share of a CPU, in thousandths, from which
	// latency-sensitive work counts as running there: timers and rare wake-ups
	// occur on every CPU.
	besideShare = 10
	// marginCalm is how long best-effort work then avoids its siblings.
	marginCalm = 3 * time.Second
	// blindFor is how long the CPUs of latency-sensitive work may stay
	// uncounted before that is a mechanism failure: counting starts with the
	// mechanism.
	blindFor = 10 * time.Second
)

// sightings holds the CPUs on which latency-sensitive work ran lately.
type sightings struct {
	At      time.Time                  `json:"at,omitzero"`
	Counter map[unit.CPU]time.Duration `json:"counter,omitempty"`
	Last    map[unit.CPU]time.Time     `json:"last,omitempty"`
	// Blind is the time since when the CPUs are not counted.
	Blind time.Time `json:"blind,omitzero"`
}

// observe adds the counters of s. Without counters older sightings last until
// they expire.
func (x sightings) observe(s node.Snapshot) sightings {
	switch {
	case x.At.After(s.At): // the clock of another boot
		return sightings{At: s.At}
	case s.Isolation.LSOn == nil && x.Blind.IsZero():
		return sightings{At: s.At, Last: x.lately(s.At), Blind: s.At}
	case s.Isolation.LSOn == nil:
		return sightings{At: s.At, Last: x.lately(s.At), Blind: x.Blind}
	}
	next := sightings{At: s.At, Counter: s.Isolation.LSOn, Last: x.lately(s.At)}
	elapsed := s.At.Sub(x.At)
	for cpu, now := range next.Counter {
		then, known := x.Counter[cpu]
		if known && now > then && now-then >= elapsed*besideShare/1000 {
			next.Last[cpu] = s.At
		}
	}
	return next
}

// blind reports whether the CPUs were not counted for too long.
func (x sightings) blind() bool { return !x.Blind.IsZero() && x.At.Sub(x.Blind) >= blindFor }

// lately returns the CPUs whose siblings are still to be kept clean.
func (x sightings) lately(at time.Time) map[unit.CPU]time.Time {
	last := map[unit.CPU]time.Time{}
	for cpu, seen := range x.Last {
		if age := at.Sub(seen); age >= 0 && age < marginCalm {
			last[cpu] = seen
		}
	}
	return last
}

// siblings lists the CPUs beside which LS work ran, the oldest first.
func (x sightings) siblings(t node.Topology) []unit.CPU {
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

// clear removes the CPUs beside latency-sensitive work from a set, as far as
// the least allows; it then returns CPUs in the order of siblings.
func (x suppressor) clear(of unit.CPUSet) unit.CPUSet {
	left := of.Minus(unit.CPUSetOf(x.beside...))
	for _, cpu := range x.beside {
		if left.Len() >= min(x.fewest(), of.Len()) {
			break
		}
		if of.Has(cpu) {
			left = left.With(cpu)
		}
	}
	return left
}

// keptOff says how many CPUs clear removed; empty: none.
func keptOff(of, left unit.CPUSet) string {
	if n := of.Minus(left).Len(); n > 0 {
		return fmt.Sprintf("; %s kept free beside LS", facts.AreCPUs(n))
	}
	return ""
}
