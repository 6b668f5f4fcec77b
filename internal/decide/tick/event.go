package tick

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// An Event is the reason why a tick started before its period was over.
type Event struct {
	// At is the time at which user space learned of the event. It is on the
	// same clock as Tick.Begun.
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Workload is the workload that the event is about, or empty.
	Workload node.WorkloadID `json:"workload,omitempty"`
	// Text describes the event: "3 waits of more than 2ms in 50ms".
	Text string `json:"text,omitempty"`
	// Wait is the length of the last wait for a CPU. It is 0 if the event is
	// about something else.
	Wait time.Duration `json:"wait_ns,omitempty"`
	// More is the number of later events of the same kind and workload before the
	// tick began. Only their number is kept.
	More int `json:"more,omitempty"`
	// Again says that the previous tick already had this event, but its
	// snapshot showed too little of the effect.
	Again bool `json:"again,omitempty"`
}

// Count returns the number of events that this event represents. It does not
// count events that an earlier tick has counted.
func (e Event) Count() int {
	if e.Again {
		return e.More
	}
	return 1 + e.More
}

// An EventKind is the source of an event.
type EventKind string

// The values of EventKind.
const (
	EventDelay     EventKind = "delay"     // waits of a workload for a CPU crossed the alarm
	EventPressure  EventKind = "pressure"  // a PSI trigger
	EventCgroups   EventKind = "cgroups"   // cgroups were created or removed
	EventStart     EventKind = "start"     // a container waits for its limits before it starts
	EventConfig    EventKind = "config"    // the configuration must be read again
	EventPin       EventKind = "pin"       // an operator requested an isolation mechanism
	EventMechanism EventKind = "mechanism" // the isolation mechanism failed or found strays
	EventHandover  EventKind = "handover"  // one isolation mechanism ended, so that the next can start
	EventOverwrite EventKind = "overwrite" // another component wrote a knob of Tenon, as it did before
)

// EventKinds lists the kinds of events.
var EventKinds = []EventKind{EventDelay, EventPressure, EventCgroups, EventStart, EventConfig, EventPin, EventMechanism, EventHandover, EventOverwrite}

// String prints the event as one phrase.
func (e Event) String() string {
	s := string(e.Kind)
	if e.Workload != "" {
		s += " " + string(e.Workload)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.More > 0 {
		s += fmt.Sprintf(" (and %d more)", e.More)
	}
	return s
}

// DescribeEvents describes the events that started a tick. It returns "" if
// there are none.
func DescribeEvents(events []Event) string {
	const most = 3
	var b strings.Builder
	for i, e := range events {
		if i == most {
			fmt.Fprintf(&b, "; and %d other events", len(events)-most)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.String())
	}
	return b.String()
}

// Join adds an event to those that wait for a tick. If the list already has an
// event of the same kind and workload, Join only increases the count of that
// event, so that the list stays short. Waits for a CPU stay apart from the rest,
// because a quota of the workload can explain only them.
func Join(waiting []Event, e Event) []Event {
	for i := range waiting {
		if w := &waiting[i]; w.Kind == e.Kind && w.Workload == e.Workload && (w.Wait > 0) == (e.Wait > 0) {
			w.More += 1 + e.More
			return waiting
		}
	}
	return append(waiting, e)
}
