package config

import "time"

// GoneAfter is how long a ConfigMap has to be missing before that means that its
// owner wants none: it is made anew by `kubectl replace --force` and by updates of
// charts, and without it nothing bounds best-effort work and nothing is promised.
const GoneAfter = 5 * time.Minute

// Missing is since when a ConfigMap is not there. The zero Missing: it is, or
// nobody has said anything else.
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

// Since is since when it is missing and waited for; zero: it is not.
func (m *Missing) Since() time.Time {
	if m.over {
		return time.Time{}
	}
	return m.since
}
