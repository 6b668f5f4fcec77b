package usage

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
)

// alarm says how many long waits raise an alarm. Which wait is long depends on
// the workload (docs/decisions/0016-wake-ups.md).
var alarm = rqdelay.Alarm{Waits: 3, Window: 50 * time.Millisecond, Gap: 50 * time.Millisecond, Beside: siblingLimit}

const (
	// tooLong is a time. If a workload has no objective, its longer waits count
	// as long. It is about the slice of a thread on a machine with many CPUs.
	tooLong = 2 * time.Millisecond
	// siblingLimit is a time within a window of the alarm. If siblings are
	// watched, latency-sensitive work may not run beside best-effort work for
	// longer.
	siblingLimit = 2 * time.Millisecond
	// alarmsKept is the length of the queue of alarms. If the queue is full, a
	// further alarm is dropped, because the loop wakes up anyway.
	alarmsKept = 16
)

// limitOf returns how long a wait of a workload may be.
func limitOf(w node.Workload) time.Duration { return w.Objective.RunQueueDelay.Or(tooLong) }

// A Delayed is an alarm. A latency-sensitive workload waited too often and too
// long for best-effort work, or it ran beside such work for too long.
type Delayed struct {
	At       time.Time // when the alarm was read
	Workload node.WorkloadID
	Text     string // "waited 3 times its 2ms in 50ms, the last 4.1ms for batch"
}

// forward forwards alarms until the counter ends. It drops an alarm about waits
// for other work than best-effort work, because to narrow best-effort work
// would not shorten these waits. The other work may have left its slot
// meanwhile.
func (d *Delays) forward(from <-chan rqdelay.Event, to chan<- Delayed) {
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

func (d *Delays) alarmOf(e rqdelay.Event) (Delayed, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiter, runner := d.names[e.Slot], d.names[e.Runner]
	// If a waiting thread was moved to another CPU, it is not known for which
	// thread it waited.
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
