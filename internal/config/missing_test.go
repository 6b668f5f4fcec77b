package config

import (
	"testing"
	"time"
)

func TestAConfigMapIsGoneOnlyAfterAWhile(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var m Missing
	for _, x := range []struct {
		what  string
		after time.Duration
		there bool
		due   bool
		wait  time.Duration
	}{
		{"there", 0, true, false, 0},
		{"gone", 0, false, false, GoneAfter},
		{"still", time.Minute, false, false, GoneAfter - time.Minute},
		{"back", 2 * time.Minute, true, false, 0},
		{"gone again: counted anew", 3 * time.Minute, false, false, GoneAfter},
		{"for so long", 3*time.Minute + GoneAfter, false, true, 0},
		{"and on", 30 * time.Minute, false, false, 0},
		{"back", 31 * time.Minute, true, false, 0},
		{"gone once more", 32 * time.Minute, false, false, GoneAfter},
	} {
		now := at.Add(x.after)
		if due := m.Due(now); due != x.due {
			t.Errorf("%s: due %v", x.what, due)
		}
		if wait := m.See(x.there, now); wait != x.wait {
			t.Errorf("%s: %v to wait; want %v", x.what, wait, x.wait)
		}
		if waits := !m.Since().IsZero(); waits != (x.wait > 0) {
			t.Errorf("%s: missing since %v", x.what, m.Since())
		}
	}
}
