package host

import (
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// SenseSiblings makes snapshots show, or not, where latency-sensitive work ran,
// and makes it an alarm of CountDelays that it runs on a CPU while best-effort
// work runs on its sibling: for the rung that keeps siblings clean by cpuset.
// Others have no use for it.
func (h *Host) SenseSiblings(on bool) {
	h.delays.mu.Lock()
	defer h.delays.mu.Unlock()
	h.delays.beside = on
}

// watchSiblings has the counter watch the siblings of these CPUs, or none; d.mu
// is held. Of more than two threads in a core each watches the next.
func (d *delays) watchSiblings(t node.Topology) error {
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

// ranLS is where latency-sensitive work ran; nil: that is not counted, or of no
// use to anybody. d.mu is held.
func (d *delays) ranLS(t node.Topology) map[unit.CPU]time.Duration {
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
