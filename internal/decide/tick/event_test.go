package tick

import (
	"fmt"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

func TestEventsThatWaitAreBounded(t *testing.T) {
	var waiting []Event
	first := time.Unix(1, 0)
	for i := range 1000 {
		for _, id := range []node.WorkloadID{"web", "api"} {
			waiting = Join(waiting, Event{At: first.Add(time.Duration(i)), Kind: EventDelay, Workload: id})
		}
		waiting = Join(waiting, Event{At: first, Kind: EventCgroups})
	}
	if len(waiting) != 3 || waiting[0].Workload != "web" || !waiting[0].At.Equal(first) || waiting[0].More != 999 {
		t.Errorf("%+v", waiting)
	}
}

// TestAWaitHidesNoOtherEvent joins pressure of CPU, which a quota can explain,
// and pressure of memory, which it cannot.
func TestAWaitHidesNoOtherEvent(t *testing.T) {
	var waiting []Event
	for range 3 {
		waiting = Join(waiting, Event{Kind: EventPressure, Workload: "web", Wait: time.Second})
		waiting = Join(waiting, Event{Kind: EventPressure, Workload: "web"})
	}
	if len(waiting) != 2 || waiting[0].Wait == 0 || waiting[1].Wait != 0 || waiting[0].More != 2 || waiting[1].More != 2 {
		t.Errorf("%+v", waiting)
	}
}

func TestWokenIsOnePhrase(t *testing.T) {
	events := []Event{{Kind: EventDelay, Workload: "web", Text: "3 waits", More: 2}, {Kind: EventConfig}}
	if got, want := DescribeEvents(events), "delay web: 3 waits (and 2 more); config"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range 10 {
		events = append(events, Event{Kind: EventPressure, Workload: node.WorkloadID(fmt.Sprint(i))})
	}
	if got, want := DescribeEvents(events), "delay web: 3 waits (and 2 more); config; pressure 0; and 9 other events"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if DescribeEvents(nil) != "" {
		t.Error("no event woke the tick, but Woken says so")
	}
}
