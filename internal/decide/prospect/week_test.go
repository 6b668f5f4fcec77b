package prospect

import (
	"math"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// monday is the first day of some week.
const monday = 20_444 // 2025-12-22

// weeks makes nodes in steps of an hour, from an hour of a Monday on. Each of the days
// moves the room of all nodes.
func weeks(nodes int, hour int64, days []float64) (all []Outlook) {
	for i := range nodes {
		rnd := rand.New(rand.NewPCG(uint64(i), 11))
		n := Node{CPU: 16_000, Start: monday*day + hour*60, Step: 60}
		for s := hour; s < int64(len(days))*24; s++ {
			v := 5000 + days[s/24] + 2000*math.Sin(2*math.Pi*float64(s)/24) + 100*rnd.NormFloat64()
			n.RoomCPU = append(n.RoomCPU, int64(max(v, 0)))
		}
		all = append(all, Outlook{CPU: n.CPU, Week: n.week(), Hours: hoursOf(n)})
	}
	return all
}

func hoursOf(n Node) (hours [24]Hour) {
	byHour, _ := n.hours()
	for h, steps := range byHour {
		hours[h] = n.hour(steps)
	}
	return hours
}

// randomDays makes days that differ, each of which is by a share like the one before.
// weekend is what Saturdays and Sundays have more.
func randomDays(rnd *rand.Rand, count int, like, weekend float64) []float64 {
	days := make([]float64, count)
	level := rnd.NormFloat64()
	for i := range days {
		level = like*level + math.Sqrt(1-like*like)*rnd.NormFloat64()
		if days[i] = 800 * level; i%7 >= 5 {
			days[i] += weekend
		}
	}
	return days
}

// share returns how many of 400 fleets differ.
func share(seed uint64, nodes int, hour int64, days int, like, weekend float64) float64 {
	found := 0
	const fleets = 400
	for i := range uint64(fleets) {
		rnd := rand.New(rand.NewPCG(seed, i))
		all := weeks(nodes, hour, randomDays(rnd, days, like, weekend))
		if Sum(all).Week.Differ {
			found++
		}
	}
	return float64(found) / fleets
}

// TestDaysOfOneKindSeldomDiffer counts how often a page would set weekends apart that are
// days as all others, also if all nodes have their busy days together.
func TestDaysOfOneKindSeldomDiffer(t *testing.T) {
	for _, c := range []struct {
		nodes int
		hour  int64
		days  int
		like  float64
		most  float64
	}{
		{1, 0, 7, 0, 0.06}, {5, 0, 7, 0, 0.06}, {1, 15, 8, 0, 0.06}, {1, 0, 28, 0, 0.06}, {5, 0, 7, 0.5, 0.13}, {1, 0, 28, 0.5, 0.08},
	} {
		got := share(1, c.nodes, c.hour, c.days, c.like, 0)
		t.Logf("%+v: %.3f differ", c, got)
		if got > c.most {
			t.Errorf("%+v: %.3f differ", c, got)
		}
	}
}

// TestWeekendsThatDifferAreFound: they have three fifths more room, and days differ by a
// sixth. A difference that changes no answer is none, however sure it is.
func TestWeekendsThatDifferAreFound(t *testing.T) {
	for _, days := range []int{7, 14, 28} {
		got := share(2, 3, 0, days, 0, 3000)
		t.Logf("%d days: %.3f are found", days, got)
		if least := map[int]float64{7: 0.9, 14: 1, 28: 1}[days]; got < least {
			t.Errorf("%d days: %.3f are found", days, got)
		}
	}
	small := make([]float64, 28)
	for i := range small {
		if i%7 >= 5 {
			small[i] = 400
		}
	}
	if w := Sum(weeks(3, 0, small)).Week; w.Differ || w.Weekend.All.Mean <= w.Weekdays.All.Mean {
		t.Errorf("a difference of a twelfth: %+v", w)
	}
}

// TestPartsOfAWeekAreThoseOfItsDays has 2 CPUs of room on working days, and 6 on the two
// days behind them.
func TestPartsOfAWeekAreThoseOfItsDays(t *testing.T) {
	make := func(first int64, days int) Node {
		n := Node{CPU: 16_000, Start: first * day, Step: 5}
		for s := range days * day / 5 {
			v, used := int64(2000), int64(8000)
			if d := (int(first-monday) + s*5/day) % 7; d >= 5 {
				v, used = 6000, 4000
			}
			n.RoomCPU, n.UsedCPU = append(n.RoomCPU, v), append(n.UsedCPU, used)
		}
		return n
	}
	whole, young, unnamed := Summarize(make(monday, 14)), Summarize(make(monday, 4)), Summarize(make(0, 14))
	f := Sum([]Outlook{whole, young, unnamed})
	w := f.Week
	if !w.Differ || w.Nodes != 1 || w.Capacity != 16_000 || w.Weekends != 2 || f.CPU.Nodes != 3 {
		t.Errorf("%+v", w)
	}
	for h := range 24 {
		low, high := w.Weekdays.Hours[h], w.Weekend.Hours[h]
		if low.Steps != 10*12 || high.Steps != 4*12 || low.Low != 2000 || low.Mean != 2000 || high.Low != 6000 || high.Mean != 6000 || low.Used.Or(0) != 8000 || high.Used.Or(0) != 4000 {
			t.Errorf("at %d: %+v, weekend %+v", h, low, high)
		}
	}
	if n := len(whole.Week.Days); n != 14 || whole.Week.Days[5] != (DayRoom{monday + 5, 6000}) || whole.Week.Days[7] != (DayRoom{monday + 7, 2000}) {
		t.Errorf("%d days: %v", n, whole.Week.Days)
	}
	if unnamed.Week.Weekdays.All.Steps != 0 || unnamed.Week.Days != nil {
		t.Errorf("times since the beginning of a trace have days with names: %+v", unnamed.Week)
	}
	if none := Sum([]Outlook{young}).Week; none.Nodes != 0 || none.Differ {
		t.Errorf("without a weekend: %+v", none)
	}
}

// TestANodeThatIsMissingForADayMovesNoDay: the node with the most room is away on a Sunday.
func TestANodeThatIsMissingForADayMovesNoDay(t *testing.T) {
	all := weeks(2, 0, make([]float64, 14))
	for i := range all[0].Week.Days {
		all[0].Week.Days[i].Mean += 8000
	}
	all[0].Week.Days = append(all[0].Week.Days[:6], all[0].Week.Days[7:]...)
	for _, d := range daysApart([]*Outlook{&all[0], &all[1]}) {
		if math.Abs(d.apart)*16_000 > float64(unit.MilliCPU(100)) {
			t.Errorf("day %d: %.4f", d.day-monday, d.apart)
		}
	}
}
