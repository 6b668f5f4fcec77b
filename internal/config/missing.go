package config

import "time"

// GoneAfter is the time after which a missing ConfigMap counts as deleted on
// purpose. Sooner it may be an update (`kubectl replace --force`, charts), and
// without it nothing bounds BE and nothing is promised.
const GoneAfter = 5 * time.Minute

// Missing tracks the time since a ConfigMap is missing. The zero Missing: it
// exists, or See was not called yet.
type Missing struct {
	since time.Time
	over  bool
}

// See takes whether the ConfigMap is there now. Wait: what it said last holds,
// for so much longer; 0: it is there, or is taken to be deleted.
func (m *Missing) See(there bool, now time.Time) (wait time.Duration) {
	switch {
	case there:
		*m = Missing{}
	case m.since.IsZero():
		m.since = now
	}
	if m.since.IsZero() || m.over {
		return 0
	}
	wait = max(m.since.Add(GoneAfter).Sub(now), 0)
	m.over = wait == 0
	return wait
}

// Due reports that the wait is over and See has not said so yet.
func (m *Missing) Due(now time.Time) bool {
	return !m.since.IsZero() && !m.over && now.Sub(m.since) >= GoneAfter
}

// Since returns the time since which it is missing and waited for, or zero.
func (m *Missing) Since() time.Time {
	if m.over {
		return time.Time{}
	}
	return m.since
}
