package prospect

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Lengths are the lengths of the jobs whose risks are counted, in ascending order.
var Lengths = [...]time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour}

// Fills are the shares of the room that batch work uses in them, in ascending order.
var Fills = [...]unit.Percent{50, 75, 100}

const (
	minutesOfHour = 60
	minutesOfDay  = 24 * minutesOfHour
	mib           = 1 << 20
	// lowOf is the part of the steps that may be below Spread.Low: one of 20.
	lowOf = 20
	// mostHurt and mostLimited are the numbers of services that wait for others, and of
	// those that their own limit holds back, in an outlook.
	mostHurt, mostLimited = 5, 3
)

// Summarize returns what is known of a node. If the node has no promises, they are
// those of Backtest.
func Summarize(n Node) Outlook {
	steps := n.steps()
	o := Outlook{
		Name: n.Name, Pool: n.Pool, CPU: n.CPU, Memory: n.Memory,
		From: n.Start, To: n.Start + int64(steps)*n.Step, Step: n.Step,
		Hurt: worst(n.Hurt), Promises: n.Promises,
	}
	for i := range steps {
		for _, column := range [][]int64{n.RoomCPU, n.RoomMemory, n.UsedCPU, n.UsedMemory} {
			if at(column, i) != Absent {
				o.Seen += n.Step
				break
			}
		}
	}
	byHour, all := n.hours()
	for h, steps := range byHour {
		o.Hours[h] = n.hour(steps)
	}
	o.All = n.hour(all)
	o.Risks, o.Week = n.risks(), n.week()
	if sum, known := meanOf(n.BatchCPU, all); known > 0 {
		o.BatchCPU = node.Some(unit.MilliCPU(sum / known))
	}
	past := Backtest(n)
	if o.Days, o.Lasting = past.Days, past.Lasting; len(o.Promises) == 0 {
		o.Promises = past.Promises
	}
	return o
}

// at returns a value of a column, or Absent.
func at(column []int64, step int) int64 {
	if step >= len(column) {
		return Absent
	}
	return column[step]
}

func (n Node) steps() int {
	return max(len(n.RoomCPU), len(n.RoomMemory), len(n.UsedCPU), len(n.UsedMemory), len(n.BatchCPU))
}

// hours returns the steps of each hour of the day, and all steps.
func (n Node) hours() (byHour [24][]int, all []int) {
	all = make([]int, n.steps())
	for i := range all {
		all[i] = i
		h := (n.Start + int64(i)*n.Step) / minutesOfHour % 24
		byHour[h] = append(byHour[h], i)
	}
	return byHour, all
}

// hour returns the values of some steps.
func (n Node) hour(steps []int) Hour {
	return Hour{
		CPU:    spreadOf[unit.MilliCPU](n.RoomCPU, n.UsedCPU, steps, 1),
		Memory: spreadOf[unit.Bytes](n.RoomMemory, n.UsedMemory, steps, mib),
	}
}

// spreadOf returns the spread of some steps of a room, in units of scale.
func spreadOf[T unit.MilliCPU | unit.Bytes](room, used []int64, steps []int, scale T) Spread[T] {
	var s Spread[T]
	measured := make([]int64, 0, len(steps))
	for _, i := range steps {
		if v := at(room, i); v != Absent {
			measured = append(measured, v)
		}
	}
	if n := len(measured); n > 0 {
		slices.Sort(measured)
		sum, _ := meanOf(room, steps)
		s = Spread[T]{Steps: int64(n), Low: T(measured[n/lowOf]) * scale, Mean: T(sum) * scale / T(n)}
	}
	if sum, known := meanOf(used, steps); known > 0 {
		s.Used = node.Some(T(sum) * scale / T(known))
	}
	return s
}

// meanOf returns the sum and the number of the values of some steps.
func meanOf(column []int64, steps []int) (sum, known int64) {
	for _, i := range steps {
		if v := at(column, i); v != Absent {
			sum, known = sum+v, known+1
		}
	}
	return sum, known
}

// worst returns the hurt services that an outlook has, the worst first.
func worst(all []Hurt) []Hurt {
	all = slices.SortedFunc(slices.Values(all), Hurt.compare)
	pairs, limited := 0, 0
	return slices.DeleteFunc(all, func(h Hurt) bool {
		if h.By == "" {
			limited++
			return limited > mostLimited
		}
		pairs++
		return pairs > mostHurt
	})
}

// risks counts jobs that begin at each step. Whether a job fails depends on one value of
// its window: the least room but a tenth of the steps, or the least of all.
func (n Node) risks() []Risk {
	risks := make([]Risk, 0, len(Lengths)*len(Fills))
	spare := int64(n.Spare / mib)
	for _, length := range Lengths {
		steps := int((int64(length/time.Minute) + n.Step - 1) / max(n.Step, 1))
		cpu, memory := lows(n.RoomCPU, steps, steps/10), lows(n.RoomMemory, steps, 0)
		for _, fill := range Fills {
			risks = append(risks, Risk{
				Length: length, Fill: fill,
				CPU:    n.trials(n.RoomCPU, cpu, func(begin, low int64) bool { return 200*low < int64(fill)*begin }),
				Memory: n.trials(n.RoomMemory, memory, func(begin, low int64) bool { return 100*(low+spare) < int64(fill)*begin }),
			})
		}
	}
	return risks
}

// trials counts the jobs that begin at each step. low has the value that decides on them.
func (n Node) trials(room, low []int64, fails func(begin, low int64) bool) (t Trials) {
	var days []Trials
	at := int64(Absent) // the day of the last of them
	for i, l := range low {
		if l == Absent || room[i] <= 0 {
			continue // a part of the job was not measured, or there was nothing to request
		}
		if day := (n.Start + int64(i)*n.Step) / minutesOfDay; day != at {
			days, at = append(days, Trials{}), day
		}
		today := &days[len(days)-1]
		today.Jobs++
		if fails(room[i], l) {
			today.Failed++
		}
	}
	for _, d := range days {
		t.Jobs, t.Failed = t.Jobs+d.Jobs, t.Failed+d.Failed
	}
	if t.Free = max(int64(len(days))-1, 0); t.Free == 0 {
		return t
	}
	// The days as clusters (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, chapter 6).
	share := float64(t.Failed) / float64(t.Jobs)
	for _, d := range days {
		apart := float64(d.Failed) - share*float64(d.Jobs)
		t.Variance += apart * apart * float64(len(days)) / float64(t.Free)
	}
	return t
}

// lows returns, for each window of a length by its first step, the value that k others are
// not above; Absent if a step of it is. A window of one step says nothing about what
// comes, so there is none.
func lows(values []int64, length, k int) []int64 {
	if length < 2 || len(values) < length {
		return nil
	}
	out := make([]int64, len(values)-length+1)
	sorted := make([]int64, 0, length) // the values of the window
	holes := 0
	for i, v := range values {
		if v == Absent {
			holes++
		} else {
			place, _ := slices.BinarySearch(sorted, v)
			sorted = slices.Insert(sorted, place, v)
		}
		first := i - length + 1
		if first < 0 {
			continue
		}
		out[first] = Absent
		if holes == 0 {
			out[first] = sorted[k]
		}
		if gone := values[first]; gone == Absent {
			holes--
		} else {
			place, _ := slices.BinarySearch(sorted, gone)
			sorted = slices.Delete(sorted, place, place+1)
		}
	}
	return out
}
