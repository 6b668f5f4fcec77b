package tick

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// An Event is why a tick did not wait for its period.
type Event struct {
	// At is when user space learned of it, comparable with Tick.Begun.
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Workload is whose event it is; empty: of none.
	Workload node.WorkloadID `json:"workload,omitempty"`
	// Text says what was seen: "3 waits of more than 2ms in 50ms".
	Text string `json:"text,omitempty"`
	// More is how many events of the same kind and workload followed before
	// the tick began. They say nothing new, and are not kept.
	More int `json:"more,omitempty"`
	// Again: the tick before this one had the event too, and could tell little
	// of it.
	Again bool `json:"again,omitempty"`
}

// Count is how many events it stands for that no tick before had.
func (e Event) Count() int {
	if e.Again {
		return e.More
	}
	return 1 + e.More
}

// An EventKind says where an event comes from.
type EventKind string

// The kinds of events.
const (
	EventDelay     EventKind = "delay"    // waits of a workload for a CPU crossed the alarm
	EventPressure  EventKind = "pressure" // a PSI trigger
	EventCgroups   EventKind = "cgroups"  // cgroups have come or gone
	EventConfig    EventKind = "config"   // the configuration shall be read again
	EventPin       EventKind = "pin"      // an operator has chosen how to isolate on the CPU
	EventMechanism EventKind = "rung"     // the means that isolates on the CPU has failed, or finds strays
	EventHandover  EventKind = "handover" // a means was given up for another, which waited for it
)

// EventKinds lists the kinds.
var EventKinds = []EventKind{EventDelay, EventPressure, EventCgroups, EventConfig, EventPin, EventMechanism, EventHandover}

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

// Woken says in one phrase what woke a tick; empty: nothing did.
func Woken(events []Event) string {
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

// Join adds an event to those that wait for a tick. One of the same kind and
// workload is counted in the first, so that the number stays bounded.
func Join(waiting []Event, e Event) []Event {
	for i := range waiting {
		if w := &waiting[i]; w.Kind == e.Kind && w.Workload == e.Workload {
			w.More += 1 + e.More
			return waiting
		}
	}
	return append(waiting, e)
}
