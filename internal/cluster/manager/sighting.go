package manager

import (
	"sync"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
)

// young is the age by the clock of its node up to which a report is believed to
// be fresh before this process has seen it change, and as far as that clock may
// be ahead.
const young = 2 * time.Minute

// sightings remembers when this process saw each node's report change. A
// replica that does not lead keeps it, too: when it takes over, it knows which
// reports are stale.
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

// see notes a report, and returns when it was first seen as it is. What the
// manager itself writes into it is no sign of life of its agent, and a report
// that its agent has only just made, and not yet filled in, is none.
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
		next.at, next.fresh = now, age < young && age > -young
	case last.run != next.run || last.sequence != next.sequence || !last.reported.Equal(next.reported):
		next.at, next.fresh = now, true
	}
	s.of[r.Name] = next
	return Sighting{Batch: &r.Status.Batch, Seen: next.at, Fresh: next.fresh}
}

// forget drops a report that is gone.
func (s *sightings) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, name)
}
