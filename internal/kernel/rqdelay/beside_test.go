package rqdelay

import (
	"errors"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// TestBEBesideLSCausesAnEventAtOnce declares that two CPUs of the machine are
// siblings. They need not be siblings: the program relies on the map from user
// space.
func TestBEBesideLSCausesAnEventAtOnce(t *testing.T) {
	s := newStage(t)
	if s.cpus.Len() < 2 {
		t.Skip("needs 2 CPUs")
	}
	var cpus []unit.CPU
	for c := range s.cpus.All() {
		cpus = append(cpus, c)
	}
	one, other := cpus[0], cpus[1]
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	if err := errors.Join(s.Tree.WriteCPUs(ls, unit.CPUSetOf(one)), s.Tree.WriteCPUs(be, unit.CPUSetOf(other))); err != nil {
		t.Fatal(err)
	}
	// The limit for waits is so high that only Beside can cause events.
	alarm := Alarm{Wait: time.Hour, Waits: 1, Window: 50 * time.Millisecond, Gap: 50 * time.Millisecond, Beside: time.Millisecond}
	p := s.open(alarm)
	s.track(p, lsSlot, lsID, LS)
	s.track(p, beSlot, beID, BE)
	s.start("spin", be)
	s.start("pulse", ls)
	events := func(long time.Duration) (n int) {
		begun := time.Now()
		for over := time.After(long); ; {
			select {
			case e := <-p.Events():
				n++
				if n <= 2 {
					t.Logf("%+v, read %v later", e, time.Since(e.At))
				}
				if e.Slot != lsSlot || e.Runner != beSlot || e.CPU != one || e.Waits != 0 || e.Beside < alarm.Beside || e.Beside > alarm.Window+10*time.Millisecond {
					t.Errorf("event %+v, want LS %v or more beside BE on CPU %d", e, alarm.Beside, one)
				}
			case <-over:
				if most := int(time.Since(begun)/alarm.Gap) + 1; n > most {
					t.Errorf("%d events in %v, want at most %d", n, long, most)
				}
				return n
			}
		}
	}
	if n := events(watch / 4); n > 0 {
		t.Errorf("%d events before WatchSiblings", n)
	}
	if err := p.WatchSiblings(map[unit.CPU]unit.CPU{one: other, other: one}); err != nil {
		t.Fatal(err)
	}
	if n := events(2 * watch); n < 2 {
		t.Errorf("%d events in %v, want several", n, 2*watch)
	}
	if err := p.WatchSiblings(nil); err != nil {
		t.Fatal(err)
	}
	events(alarm.Gap) // events that are already in the queue
	if n := events(watch / 4); n > 0 {
		t.Errorf("%d events after WatchSiblings(nil)", n)
	}
}

func TestSiblingsThatAreNoneAreRefused(t *testing.T) {
	s := newStage(t)
	p := s.open(Alarm{})
	for name, of := range map[string]map[unit.CPU]unit.CPU{"its own": {0: 0}, "no CPU of this machine": {0: unit.MaxCPUs - 1}} {
		if err := p.WatchSiblings(of); err == nil {
			t.Errorf("%s: the sibling was accepted", name)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.WatchSiblings(map[unit.CPU]unit.CPU{0: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
}
