package prospect

import (
	"slices"

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

// Lasting is what was promised for some hours with DayPercent, by the hour of the day at
// which the hours begin (UTC): the mean over the days. An hour at which there was no
// promise is absent.
type Lasting struct {
	Hours  int                           `json:"hours"`
	CPU    [24]node.Maybe[unit.MilliCPU] `json:"cpu_mcpu"`
	Memory [24]node.Maybe[unit.Bytes]    `json:"memory_bytes"`
}

// A Past is what the promises of a node were like.
type Past struct {
	Promises []promise.Promise // at its end
	Days     []Day
	Lasting  []Lasting
}

// Backtest plays the room of a node to package promise, as the agent would have done: how
// many promises came true, whether they were better than a fixed quantile of the past,
// and what was promised at which hour. There are none if no room was measured.
func Backtest(n Node) (past Past) {
	var state promise.State
	var byHour hourly
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
			past.Days = ended(past.Days, end/minutesOfDay, before, past.Promises, now)
			before, past.Promises = past.Promises, now
		}
		// The value of a step is the least of its minutes.
		for minute := first; minute < first+n.Step; minute++ {
			state.Observe(minute, room)
			if end == Absent || end/minutesOfHour != minute/minutesOfHour {
				byHour.add(minute/minutesOfHour%24, state.Promises(minute, room))
			}
			end = minute
		}
		last = room
	}
	if end == Absent {
		return past
	}
	now := state.Promises(end, last)
	past.Days = ended(past.Days, end/minutesOfDay, before, past.Promises, now)
	past.Promises, past.Lasting = now, byHour.means()
	return past
}

// hourly has the sums and numbers of promises with DayPercent, by length and hour of the day.
type hourly [len(promise.Hours)][24]struct{ cpu, memory, cpus, memories int64 }

func (s *hourly) add(hour int64, all []promise.Promise) {
	for _, p := range all {
		if p.Percent != DayPercent {
			continue
		}
		of := &s[slices.Index(promise.Hours[:], p.Hours)][hour]
		if p.CPU.Code == promise.Known {
			of.cpu, of.cpus = of.cpu+int64(p.CPU.Value), of.cpus+1
		}
		if p.Memory.Code == promise.Known {
			of.memory, of.memories = of.memory+int64(p.Memory.Value/mib), of.memories+1
		}
	}
}

// means returns the means of the lengths for which there were promises.
func (s *hourly) means() (all []Lasting) {
	for i, hours := range promise.Hours {
		l, some := Lasting{Hours: hours}, false
		for h, of := range s[i] {
			if of.cpus > 0 {
				l.CPU[h], some = node.Some(unit.MilliCPU(of.cpu/of.cpus)), true
			}
			if of.memories > 0 {
				l.Memory[h], some = node.Some(unit.Bytes(of.memory/of.memories)*mib), true
			}
		}
		if some {
			all = append(all, l)
		}
	}
	return all
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
