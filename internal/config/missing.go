// This file measures how long a ConfigMap has been missing.

package config

import "time"

// GoneAfter is the time after which a missing ConfigMap counts as deleted on
// purpose. Before this time, an update may be in progress (`kubectl replace
// --force`, charts). Without the ConfigMap, BE has no limits and no batch
// resources.
const GoneAfter = 5 * time.Minute

// Missing measures how long a ConfigMap has been missing. The zero Missing
// means that the ConfigMap exists, or that See has not been called yet.
type Missing struct {
	since time.Time
	over  bool
}

// See records whether the ConfigMap exists now (there). It returns how long the
// last content still applies: 0 if the ConfigMap exists or counts as deleted.
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

// Due reports whether the ConfigMap has been missing for GoneAfter. Once See
// has reported the deletion, Due returns false.
func (m *Missing) Due(now time.Time) bool {
	return !m.since.IsZero() && !m.over && now.Sub(m.since) >= GoneAfter
}

// Since returns when the ConfigMap began to be missing. It is zero if the
// ConfigMap exists, or counts as deleted.
func (m *Missing) Since() time.Time {
	if m.over {
		return time.Time{}
	}
	return m.since
}
