package control

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
)

// TestTheStatusOfAnObserverSaysThatNothingIsWritten checks both forms of the status: the
// writes that did not happen, the most frequent first, and no bound that looks as if it
// were in force.
func TestTheStatusOfAnObserverSaysThatNothingIsWritten(t *testing.T) {
	l := NewLedger("v1")
	observed := measuredTick(time.Second, 800)
	observed.Shadow = &tick.Shadow{Total: map[plan.Owner]int64{plan.OwnerMemory: 3, plan.OwnerSuppress: 12}}
	l.Observe(observed, nil)
	s := l.Status()
	text := s.String()
	for _, want := range []string{
		"observes   nothing is written; it would have made 15 writes: suppress 12, memory 3\n", "BE bound   not written: batch.slice cpu.max",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	data, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(data), `"shadow":{"steps":{"memory":3,"suppress":12}}`) || s.Held != 0 || len(s.Recent) > 0 {
		t.Errorf("%s, %v", data, err)
	}
}
