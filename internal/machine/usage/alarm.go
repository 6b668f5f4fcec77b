package usage

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
)

// alarm tells the kernel when to report waits: after 3 long waits within 50 ms.
// limitOf says which waits are long (docs/decisions/0016-wake-ups.md).
var alarm = rqdelay.Alarm{Waits: 3, Window: 50 * time.Millisecond, Gap: 50 * time.Millisecond, Beside: siblingLimit}

const (
	// tooLong is the limit of a wait for workloads without an objective. It is
	// about the time slice of a thread on a machine with many CPUs.
	tooLong = 2 * time.Millisecond
	// siblingLimit is how long, within a window of the alarm, latency-sensitive
	// work may run beside best-effort work on the sibling. It applies only
	// while siblings are watched.
	siblingLimit = 2 * time.Millisecond
	// alarmsKept is the length of the queue of alarms. A full queue drops new
	// alarms. No harm is done, because the queued alarms already wake the loop.
	alarmsKept = 16
)

// limitOf returns the longest wait of a workload that is not too long.
func limitOf(w node.Workload) time.Duration { return w.Objective.RunQueueDelay.Or(tooLong) }

// A Delayed is an alarm: a latency-sensitive workload waited too long and too
// often for best-effort work, or ran too long beside such work.
type Delayed struct {
	At       time.Time // when the alarm was read
	Workload node.WorkloadID
	Text     string // "waited 3 times its 2ms in 50ms, the last 4.1ms for batch"
}

// forward forwards alarms until the counter ends. It drops alarms about waits
// for work that is not best-effort, because narrowing best-effort work would
// not shorten these waits. It also drops alarms about workloads that have lost
// their slot meanwhile.
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
	// Elsewhere means that the waiting thread was moved to another CPU. It is
	// then unknown for which thread it waited, so the alarm counts.
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
