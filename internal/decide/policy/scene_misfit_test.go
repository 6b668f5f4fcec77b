package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// readThreads reads a word such as web.threads=16/12: web has 16 threads, and
// 12 of them are runnable.
func (p *spell) readThreads(t *testing.T, w word) {
	t.Helper()
	var count [2]int
	if _, err := fmt.Sscanf(w.val, "%d/%d", &count[0], &count[1]); err != nil {
		t.Fatalf("scenario word %s=%s: want THREADS/RUNNABLE", w.key, w.val)
	}
	if p.threads == nil {
		p.threads = map[node.WorkloadID][2]int{}
	}
	p.threads[node.WorkloadID(strings.TrimSuffix(w.key, ".threads"))] = count
}

// readThrottling reads a word such as web.throttled=3/10:400ms: of 10 quota
// periods, web was throttled in 3, for 400 ms in sum over all CPUs. The time may
// be left out.
func (p *spell) readThrottling(t *testing.T, w word) {
	t.Helper()
	id := node.WorkloadID(strings.TrimSuffix(w.key, ".throttled"))
	periods, length, timed := strings.Cut(w.val, ":")
	var ran [2]int64
	if _, err := fmt.Sscanf(periods, "%d/%d", &ran[0], &ran[1]); err != nil {
		t.Fatalf("scenario word %s=%s: want PERIODS/PERIODS", w.key, w.val)
	}
	if p.throttled == nil {
		p.throttled, p.held = map[node.WorkloadID][2]int64{}, map[node.WorkloadID]time.Duration{}
	}
	if p.throttled[id] = ran; timed {
		p.held[id] = mustParse(t, word{w.key, length}, time.ParseDuration)
	}
}

// misfits prints the misfits of the last tick.
func (n *scene) misfits() []string {
	var lines []string
	found := n.state.Misfits.Misfits()
	for _, id := range slices.Sorted(maps.Keys(found)) {
		m := found[id]
		lines = append(lines, fmt.Sprintf("%s for %v (%s): %s", id, n.snap.At.Sub(m.Since).Round(time.Second), m.Kind, m.Text),
			"  write: "+m.Write)
	}
	return lines
}
