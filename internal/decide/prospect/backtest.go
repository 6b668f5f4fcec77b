package prospect

import (
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// DayPercent is the probability of the promises that a Day counts.
const DayPercent unit.Percent = 90

// A Day counts the promises of CPU for some hours with DayPercent whose end became known on
// a day. Over weeks, package promise corrects itself until it keeps what it says; a day on
// which the load changed shows what that cost.
type Day struct {
	Day    int64 `json:"day"` // since 1970, UTC
	Hours  int   `json:"hours"`
	Judged int64 `json:"judged"`
	Kept   int64 `json:"kept"`
}

// Fit compares the day with its probability. The interval is wide, because a month has some
// ninety such days.
func (d Day) Fit() Fit {
	const oneInThousand = 3.29
	least, most := interval(d.Kept, d.Judged, float64(d.Judged)/float64(d.Hours), oneInThousand)
	return fitOf(least, most, DayPercent)
}

// Backtest plays the room of a node to package promise, as the agent would have done. It
// returns the promises at its end: how many of them came true, whether they were better
// than a fixed quantile of the past, and what they promise now. It returns nothing if no
// room was measured.
func Backtest(n Node) (promises []promise.Promise, days []Day) {
	var state promise.State
	var last promise.Room
	var before []promise.Promise // at the end of the day before yesterday
	end := int64(Absent)
	for i := range max(len(n.RoomCPU), len(n.RoomMemory)) {
		room := n.room(i)
		if !room.CPU.Known() && !room.Memory.Known() {
			continue
		}
		first := n.Start + int64(i)*n.Step
		if today := first / minutesOfDay; end != Absent && end/minutesOfDay != today {
			now := state.Promises(end, last)
			days = ended(days, end/minutesOfDay, before, promises, now)
			before, promises = promises, now
		}
		// The value of a step is the least of its minutes.
		for minute := first; minute < first+n.Step; minute++ {
			state.Observe(minute, room)
			end = minute
		}
		last = room
	}
	if end == Absent {
		return nil, nil
	}
	now := state.Promises(end, last)
	return now, ended(days, end/minutesOfDay, before, promises, now)
}

// room returns the room of a step.
func (n Node) room(step int) (room promise.Room) {
	if v := at(n.RoomCPU, step); v != Absent {
		room.CPU = node.Some(unit.MilliCPU(v))
	}
	if v := at(n.RoomMemory, step); v != Absent {
		room.Memory = node.Some(unit.Bytes(v) * mib)
	}
	return room
}

// ended adds a day, between whose ends the counts of promises went from those of yesterday
// to those of now. A broken promise counts when it breaks, and one that is kept at its end.
// So there must have been promises before yesterday: on the first day, only broken ones
// count. A day whose counts package promise has halved is left out.
func ended(days []Day, day int64, before, yesterday, now []promise.Promise) []Day {
	for i, p := range now {
		if p.Percent != DayPercent || len(before) == 0 || before[i].CPU.Code != promise.Known {
			continue
		}
		was := yesterday[i].CPU
		if d := (Day{day, p.Hours, p.CPU.Judged - was.Judged, p.CPU.Kept - was.Kept}); d.Judged > 0 && d.Kept >= 0 {
			days = append(days, d)
		}
	}
	return days
}
