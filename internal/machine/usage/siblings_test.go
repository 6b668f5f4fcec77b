package usage

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/unit"
)

func TestSiblingsAreWatchedForTheirMechanismOnly(t *testing.T) {
	h := newDelayBench(t) // all CPUs of this node belong to one core
	h.look(web, batch)
	if len(h.tally.beside) > 0 {
		t.Errorf("watched without need: %v", h.tally.beside)
	}
	h.beside = true
	h.look(web, batch)
	if diff := cmp.Diff(map[unit.CPU]unit.CPU{0: 1, 1: 0}, h.tally.beside); diff != "" {
		t.Error(diff)
	}
	h.tally.events <- rqdelay.Event{Slot: h.tally.slots[h.inodes["web"]], Runner: h.tally.slots[h.inodes["batch"]], CPU: 1, Beside: 3 * time.Millisecond}
	select {
	case a := <-h.alarms:
		if a.Workload != "web" || a.Text != "ran for 3ms in 50ms on CPU 1 with batch on its sibling" {
			t.Errorf("alarm %+v", a)
		}
	case <-time.After(5 * time.Second):
		t.Error("no alarm")
	}
	h.beside = false
	h.look(web, batch)
	if len(h.tally.beside) > 0 {
		t.Errorf("watched after it was over: %v", h.tally.beside)
	}
}

func TestWhereLSRanIsShownForItsMechanismOnly(t *testing.T) {
	h := newDelayBench(t)
	h.tally.read.RunByClass = map[rqdelay.Class][]time.Duration{rqdelay.LS: {time.Second}, rqdelay.BE: {0, time.Second}}
	if got := h.look(web, batch).Isolation.LSOn; got != nil {
		t.Errorf("it is not needed, and it shows %v", got)
	}
	h.beside = true
	if diff := cmp.Diff(map[unit.CPU]time.Duration{0: time.Second, 1: 0}, h.look(web, batch).Isolation.LSOn); diff != "" {
		t.Error(diff)
	}
}
