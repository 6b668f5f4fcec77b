package host

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
)

// alarm is when waits are worth a look at once; the length of a wait that is
// too long is each workload's own (docs/decisions/0016-wake-ups.md).
var alarm = rqdelay.Alarm{Waits: 3, Window: 50 * time.Millisecond, Gap: 50 * time.Millisecond, Beside: besideLong}

const (
	// tooLong is that length for a workload that names no objective: about the
	// slice of a thread that nobody preempts on a machine of many CPUs.
	tooLong = 2 * time.Millisecond
	// besideLong is for how long latency-sensitive work may run beside
	// best-effort work in a window of the alarm, where that is watched.
	besideLong = 2 * time.Millisecond
	// alarmsKept is how many alarms wait for their reader; more say nothing new.
	alarmsKept = 16
)

// limitOf is the length of a wait of a workload that is too long.
func limitOf(w node.Workload) time.Duration { return w.Objective.RunQueueDelay.Or(tooLong) }

// A Delayed says that a latency-sensitive workload waited for best-effort
// work, too often and for too long, or ran beside it.
type Delayed struct {
	At       time.Time // when this was learnt
	Workload node.WorkloadID
	Text     string // "waited 3 times its 2ms in 50ms, the last 4.1ms for batch"
}

// tell passes alarms on until the counter ends. Waits for others than
// best-effort work are no alarm, also if it has just left its slot: they end no
// sooner if that is narrowed.
func (d *delays) tell(from <-chan rqdelay.Event, to chan<- Delayed) {
	defer close(to)
	for e := range from {
		a, is := d.alarmOf(e)
		if !is {
			continue
		}
		select {
		case to <- a:
		default:
		}
	}
}

func (d *delays) alarmOf(e rqdelay.Event) (Delayed, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiter, runner := d.names[e.Slot], d.names[e.Runner]
	// Whom a thread waited for that was moved is not known.
	if waiter == "" || runner == "" || d.classes[e.Runner] != node.BE && e.Runner != rqdelay.Elsewhere {
		return Delayed{}, false
	}
	if e.Waits == 0 {
		return Delayed{At: time.Now(), Workload: waiter, Text: fmt.Sprintf("ran for %v in %v on CPU %d with %s on its sibling",
			e.Beside.Round(10*time.Microsecond), alarm.Window, e.CPU, runner)}, true
	}
	return Delayed{At: time.Now(), Workload: waiter, Text: fmt.Sprintf("waited %d times its %v in %v, the last %v for %s",
		e.Waits, d.limit[e.Slot], alarm.Window, e.Wait.Round(10*time.Microsecond), runner)}, true
}
