package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// maxWaits is the maximum number of runners in the status of a workload.
const maxWaits = 5

// waitsOf returns how long a workload waited per second, by the runner that had
// the CPU. The period is between the snapshots older and newer.
func (l *Ledger) waitsOf(id node.WorkloadID) []Wait {
	elapsed := l.elapsed()
	now := waitsOf(l.newer.Waits, id)
	if elapsed <= 0 || len(now) == 0 {
		return nil
	}
	before := map[node.WorkloadID]time.Duration{}
	for _, w := range waitsOf(l.older.Waits, id) {
		before[w.Runner] = w.Time
	}
	var all []Wait
	for _, w := range now {
		if t := time.Duration(float64(w.Time-before[w.Runner]) / elapsed.Seconds()); t > 0 {
			all = append(all, Wait{w.Runner, t})
		}
	}
	slices.SortFunc(all, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), strings.Compare(string(a.Runner), string(b.Runner)))
	})
	return all[:min(len(all), maxWaits)]
}

// waitsOf returns the waits of one waiter from a list that is sorted by waiter.
func waitsOf(all []node.Wait, id node.WorkloadID) []node.Wait {
	first, _ := slices.BinarySearchFunc(all, id, func(w node.Wait, id node.WorkloadID) int {
		return strings.Compare(string(w.Waiter), string(id))
	})
	last := first
	for last < len(all) && all[last].Waiter == id {
		last++
	}
	return all[first:last]
}

// WaitedFor prints waits: "120ms for batch/job, 1.5ms for (kernel)".
func WaitedFor(waits []Wait) string {
	var all []string
	for _, w := range waits {
		all = append(all, fmt.Sprintf("%v for %s", Brief(w.Time), w.Runner))
	}
	return strings.Join(all, ", ")
}

// Brief rounds d to two or three digits.
func Brief(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Nanosecond; unit /= 10 {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d
}
