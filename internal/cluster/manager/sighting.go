package manager

import (
	"sync"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// youngAge is the age below which a report is fresh, even if this process has
// not seen it change. The clock of the node determines the age, and may be
// ahead by youngAge.
const youngAge = 2 * time.Minute

// sightings stores the times at which this process saw each report change. All replicas store
// them, so that a new leader knows which reports are stale.
type sightings struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[string]sighted
}

type sighted struct {
	run      string
	sequence int64
	reported time.Time
	at       time.Time
	fresh    bool
}

func newSightings(now func() time.Time) *sightings {
	return &sightings{now: now, of: map[string]sighted{}}
}

// see records a report, and returns it with the time of its last change. Changes of the
// manager's own fields do not count. If the agent has created the report but not filled
// it in, the report counts as missing.
func (s *sightings) see(r *v1alpha1.NodeReport) Sighting {
	if r.Status.Reported.IsZero() && r.Status.Run == "" {
		return Sighting{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	last, known := s.of[r.Name]
	next := sighted{run: r.Status.Run, sequence: r.Status.Sequence, reported: r.Status.Reported.Time, at: last.at, fresh: last.fresh}
	switch {
	case !known:
		age := now.Sub(r.Status.Reported.Time)
		next.at, next.fresh = now, age < youngAge && age > -youngAge
	case last.run != next.run || last.sequence != next.sequence || !last.reported.Equal(next.reported):
		next.at, next.fresh = now, true
	}
	s.of[r.Name] = next
	return Sighting{Batch: &r.Status.Batch, Seen: next.at, Fresh: next.fresh}
}

// forget removes a deleted report.
func (s *sightings) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, name)
}
