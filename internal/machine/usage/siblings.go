package usage

import (
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// WatchSiblings turns on, or off, what the isolation mechanism siblings needs.
// Snapshots then show on which CPUs latency-sensitive work ran. Count also
// raises an alarm when latency-sensitive work runs too long while best-effort
// work runs on the sibling.
func (d *Delays) WatchSiblings(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beside = on
}

// watchSiblings tells the counter which sibling to watch for each CPU of t, or
// none if WatchSiblings is off. In a core with more than two threads, each
// thread watches the next one. The caller holds d.mu.
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

// ranLS returns how long latency-sensitive work ran on each CPU, or nil if
// WatchSiblings is off. The caller holds d.mu.
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
