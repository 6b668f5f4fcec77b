package usage

import (
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// WatchSiblings switches on or off that snapshots show the CPUs on which
// latency-sensitive work ran, and that Count raises an alarm when it runs
// beside best-effort work on a sibling. Only the isolation mechanism siblings
// needs this.
func (d *Delays) WatchSiblings(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beside = on
}

// watchSiblings makes the counter watch the siblings of these CPUs, or none;
// d.mu is held. In a core with more than two threads each thread watches the
// next.
func (d *Delays) watchSiblings(t node.Topology) error {
	if !d.beside {
		return d.counter.WatchSiblings(nil)
	}
	cores := map[node.CoreID][]unit.CPU{}
	for _, c := range t.CPUs {
		cores[c.Core] = append(cores[c.Core], c.ID)
	}
	of := make(map[unit.CPU]unit.CPU, len(t.CPUs))
	for _, cpus := range cores {
		for i, c := range cpus {
			if next := cpus[(i+1)%len(cpus)]; next != c {
				of[c] = next
			}
		}
	}
	return d.counter.WatchSiblings(of)
}

// ranLS returns on which CPUs latency-sensitive work ran; nil: not counted, or
// not needed. d.mu is held.
func (d *Delays) ranLS(t node.Topology) map[unit.CPU]time.Duration {
	if !d.beside {
		return nil
	}
	ran := d.now.RunByClass[rqdelay.LS]
	on := make(map[unit.CPU]time.Duration, len(t.CPUs))
	for _, c := range t.CPUs {
		on[c.ID] = 0
		if int(c.ID) < len(ran) {
			on[c.ID] = ran[c.ID]
		}
	}
	return on
}
