package loop

import (
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// explainedShare is the part of a wait for which the waiting service's own quota must
// have throttled it, so that the quota explains the wait: 1/explainedShare. After
// the throttling ends, threads still wait for each other.
const explainedShare = 2

// A quotaWatch knows for how long the own quotas of services have throttled them.
type quotaWatch struct {
	throttled map[node.WorkloadID]time.Duration // at the last snapshot
	growth    map[node.WorkloadID]time.Duration // between the last two snapshots
}

// observe adds a snapshot.
func (q quotaWatch) observe(s node.Snapshot) quotaWatch {
	var next quotaWatch
	for i := range s.Workloads {
		w := &s.Workloads[i]
		now := w.Usage.Throttled.Or(0)
		if now <= 0 || !w.Class.Sensitive() {
			continue // there is no quota, which is the usual case
		}
		if next.throttled == nil {
			next = quotaWatch{map[node.WorkloadID]time.Duration{}, map[node.WorkloadID]time.Duration{}}
		}
		next.throttled[w.ID] = now
		if then, had := q.throttled[w.ID]; had && now > then {
			next.growth[w.ID] = now - then
		}
	}
	return next
}

// explains reports whether a service's own quota explains the wait that an
// event is about. The kernel counts the time for which a thread is throttled as
// a wait, and BE runs meanwhile. But BE has not caused that wait.
func (q quotaWatch) explains(e tick.Event) bool {
	return e.Wait > 0 && explainedShare*q.growth[e.Workload] >= e.Wait
}
