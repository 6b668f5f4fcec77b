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
