package usage

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/rqdelay"
	"tenon.sh/tenon/internal/model/node"
)

// alarm tells the kernel when to report waits: after 3 long waits within 50 ms. The
// function limitOf says which waits are long (docs/decisions/0016-wake-ups.md).
var alarm = rqdelay.Alarm{Waits: 3, Window: 50 * time.Millisecond, Gap: 50 * time.Millisecond, Beside: siblingLimit}

const (
	// tooLong is the limit of a wait for workloads without an objective. On a
	// machine with many CPUs, the time slice of a thread is about as long.
	tooLong = 2 * time.Millisecond
	// siblingLimit is the time, within a window of the alarm, for which
	// latency-sensitive work may run while best-effort work runs on the
	// sibling. It applies only while siblings are watched.
	siblingLimit = 2 * time.Millisecond
	// alarmsKept is the capacity of the channel of alarms. If it is full, new
	// alarms are dropped. That is harmless: the other alarms already wake the loop.
	alarmsKept = 16
)

// limitOf returns the longest wait of a workload that is not too long.
func limitOf(w node.Workload) time.Duration { return w.Objective.RunQueueDelay.Or(tooLong) }

// A Delayed is an alarm about a latency-sensitive workload. It waited too long
// and too often for best-effort work, or ran too long beside best-effort work.
type Delayed struct {
	At       time.Time // when the alarm was read
	Workload node.WorkloadID
	Text     string // "waited 3 times its 2ms in 50ms, the last 4.1ms for batch"
	// Wait is the length of the last wait. It is 0 if the alarm is about work on
	// the sibling.
	Wait time.Duration
}

// forward forwards alarms until the counter ends. It drops alarms about waits
// for work that is not best-effort, because narrowing best-effort work would
// not shorten these waits. It also drops alarms about workloads that have lost
// their slot since the event.
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
	// Elsewhere means that the waiting thread was moved to another CPU. The thread
	// for which it waited is not known. It may be best-effort, so the alarm counts.
	if waiter == "" || runner == "" || d.classes[e.Runner] != node.BE && e.Runner != rqdelay.Elsewhere {
		return Delayed{}, false
	}
	if e.Waits == 0 {
		return Delayed{At: time.Now(), Workload: waiter, Text: fmt.Sprintf("ran for %v in %v on CPU %d with %s on its sibling",
			e.Beside.Round(10*time.Microsecond), alarm.Window, e.CPU, runner)}, true
	}
	return Delayed{At: time.Now(), Workload: waiter, Wait: e.Wait, Text: fmt.Sprintf("waited %d times its %v in %v, the last %v for %s",
		e.Waits, d.limit[e.Slot], alarm.Window, e.Wait.Round(10*time.Microsecond), runner)}, true
}
