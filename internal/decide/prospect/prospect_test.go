package prospect

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const day = 24 * 60

// column makes values for a number of steps: a day and a night, noise, and holes.
func column(rnd *rand.Rand, steps int, step, mean int64, holes float64) []int64 {
	values := make([]int64, steps)
	for i := range values {
		minute := float64(int64(i) * step)
		values[i] = int64(max(float64(mean)*(1+0.6*math.Sin(2*math.Pi*minute/day)+0.5*rnd.NormFloat64()), 0))
		if rnd.Float64() < holes {
			values[i] = Absent
		}
	}
	return values
}

// countByHand counts the failed jobs by looking at each step of each job.
func countByHand(n Node, length time.Duration, fill unit.Percent) (cpu, memory Trials) {
	perJob := int(math.Ceil(length.Minutes() / float64(n.Step)))
	if perJob < 2 {
		return cpu, memory
	}
	whole := func(room []int64, begin int) bool {
		return begin+perJob <= len(room) && room[begin] > 0 && !slices.Contains(room[begin:begin+perJob], Absent)
	}
	for begin := range n.steps() {
		if whole(n.RoomCPU, begin) {
			requested := float64(fill) / 100 * float64(n.RoomCPU[begin])
			short := 0
			for _, got := range n.RoomCPU[begin : begin+perJob] {
				if float64(got) < requested/2 {
					short++
				}
			}
			cpu.Jobs++
			if float64(short) > 0.1*float64(perJob) {
				cpu.Failed++
			}
		}
		if whole(n.RoomMemory, begin) {
			requested := float64(fill) / 100 * float64(n.RoomMemory[begin])
			memory.Jobs++
			if slices.ContainsFunc(n.RoomMemory[begin:begin+perJob], func(got int64) bool { return requested > float64(got+int64(n.Spare>>20)) }) {
				memory.Failed++
			}
		}
	}
	return cpu, memory
}

// TestRisksAreThoseOfAnEnumeration compares each count with one that looks at each step of
// each job, on nodes with holes and with different steps.
func TestRisksAreThoseOfAnEnumeration(t *testing.T) {
	failed := int64(0)
	for seed := range uint64(24) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		step := []int64{1, 5, 10, 60}[seed%4]
		holes := []float64{0, 0.001, 0.02}[seed%3]
		n := Node{CPU: 16000, Memory: 64 << 30, Spare: unit.Bytes(rnd.Int64N(400)) << 20, Start: int64(rnd.IntN(5000)), Step: step}
		steps := int(3 * day / step)
		n.RoomCPU, n.RoomMemory = column(rnd, steps, step, 6000, holes), column(rnd, steps, step, 2000, holes)
		risks := Summarize(n).Risks
		if len(risks) != len(Lengths)*len(Fills) {
			t.Fatalf("%d risks", len(risks))
		}
		for _, r := range risks {
			cpu, memory := countByHand(n, r.Length, r.Fill)
			if !r.CPU.sameAs(cpu) || !r.Memory.sameAs(memory) {
				t.Errorf("seed %d, %v filled to %v: CPU %+v, memory %+v; by hand %+v and %+v", seed, r.Length, r.Fill, r.CPU, r.Memory, cpu, memory)
			}
			failed += cpu.Failed + memory.Failed
		}
		if (risks[0].CPU.Jobs == 0) != (step >= 10) {
			t.Errorf("a job of 10 min at steps of %d min: %+v", step, risks[0])
		}
	}
	if failed == 0 {
		t.Error("no job failed: this test compares nothing")
	}
}

func (t Trials) sameAs(o Trials) bool { return t.Jobs == o.Jobs && t.Failed == o.Failed }

// room makes the room of a node at steps of 5 minutes: days and nights, noise that lasts for
// hours, and on some days a burst.
func room(rnd *rand.Rand, days int) Node {
	n := Node{CPU: 16_000, Step: 5}
	level, burst := 0.0, 0
	for s := range days * day / 5 {
		level = 0.98*level + 0.2*rnd.NormFloat64()
		if rnd.Float64() < 0.002 {
			burst = 6 + rnd.IntN(24)
		}
		v := 7000 + 2500*math.Sin(2*math.Pi*float64(s*5)/day) + 900*level + 200*rnd.NormFloat64()
		if burst--; burst > 0 {
			v -= 4500
		}
		n.RoomCPU = append(n.RoomCPU, int64(max(v, 1)))
	}
	return n
}

// TestIntervalsOfRisksHoldTheTruth draws 200 fleets of one or five nodes, with two weeks
// each, of a process whose risks are known from ten years.
func TestIntervalsOfRisksHoldTheTruth(t *testing.T) {
	truth := room(rand.New(rand.NewPCG(99, 1)), 3650).risks()
	for _, nodes := range []int{1, 5} {
		held := make([]int, len(truth))
		const fleets = 200
		for seed := range uint64(fleets) {
			sums := make([]Trials, len(truth))
			for i := range nodes {
				for k, r := range room(rand.New(rand.NewPCG(seed, uint64(100+i))), 14).risks() {
					sums[k] = sums[k].add(r.CPU)
				}
			}
			for k, sum := range sums {
				least, most, known := sum.Interval()
				if is := float64(truth[k].CPU.Failed) / float64(truth[k].CPU.Jobs); known && least <= is && is <= most {
					held[k]++
				}
			}
		}
		for k, r := range truth {
			is := float64(r.CPU.Failed) / float64(r.CPU.Jobs)
			t.Logf("%d nodes, %v filled to %v: the risk is %.4f, %d of %d intervals hold it", nodes, r.Length, r.Fill, is, held[k], fleets)
			// The least is what 90 % may give by chance in 200 draws, or less for rare failures.
			enough := fleets * 85 / 100
			if is < 0.005 {
				enough = fleets * 75 / 100
			}
			if held[k] < enough || held[k] > fleets*98/100 {
				t.Errorf("%d nodes, %v filled to %v: %d of %d intervals hold the risk of %.4f", nodes, r.Length, r.Fill, held[k], fleets, is)
			}
		}
	}
}

func TestStudentIsThatOfTheTable(t *testing.T) {
	for degrees, want := range map[float64]float64{2: 4.303, 3: 3.182, 6: 2.447, 13: 2.160, 60: 2.000} { // any table
		if got := student(degrees); math.Abs(got/want-1) > 0.04 {
			t.Errorf("%v degrees: %v, want %v", degrees, got, want)
		}
	}
}

// TestHoursHaveTheValuesOfTheirSteps also checks that what was not measured is unknown.
func TestHoursHaveTheValuesOfTheirSteps(t *testing.T) {
	n := Node{Name: "n", CPU: 4000, Memory: 8 << 30, Start: 23 * 60, Step: 1}
	for i := range int64(120) { // 23:00 to 1:00
		n.RoomCPU = append(n.RoomCPU, i+1)
		n.UsedCPU = append(n.UsedCPU, 100)
	}
	n.RoomCPU[60] = Absent
	o := Summarize(n)
	if got, want := o.Hours[23].CPU, (Spread[unit.MilliCPU]{Steps: 60, Low: 4, Mean: 30, Used: node.Some[unit.MilliCPU](100)}); got != want {
		t.Errorf("23 h: %+v, want %+v", got, want)
	}
	if got, want := o.Hours[0].CPU, (Spread[unit.MilliCPU]{Steps: 59, Low: 64, Mean: 91, Used: node.Some[unit.MilliCPU](100)}); got != want {
		t.Errorf("0 h: %+v, want %+v", got, want)
	}
	if o.Hours[12].CPU.Steps != 0 || o.Hours[12].CPU.Used.Known() || o.All.Memory.Steps != 0 || o.All.Memory.Used.Known() || o.BatchCPU.Known() {
		t.Errorf("something is known that was not measured: %+v", o)
	}
	if o.Seen != 120 || o.From != 23*60 || o.To != 25*60 {
		t.Errorf("seen %d of %d to %d", o.Seen, o.From, o.To)
	}
	if empty := Summarize(Node{Step: 1}); empty.Seen != 0 || empty.Promises != nil {
		t.Errorf("a node without a step: %+v", empty)
	}
}

// fleet makes nodes whose room follows the day. after changes the room from the middle on.
func fleet(nodes, days int, noise float64, wave, after float64) (all []Outlook) {
	for i := range nodes {
		rnd := rand.New(rand.NewPCG(uint64(i), 7))
		n := Node{Name: string(rune('a' + i)), CPU: 16000, Memory: 64 << 30, Start: 20000 * day, Step: 5}
		for s := range days * day / 5 {
			used := 5000 + wave*math.Sin(2*math.Pi*float64(s*5)/day) + noise*rnd.NormFloat64()
			if s >= days*day/10 {
				used *= after
			}
			n.RoomCPU = append(n.RoomCPU, int64(max(24000-used, 0)))
		}
		all = append(all, Summarize(n))
	}
	return all
}

// TestABacktestHasTeeth: if the load doubles in the middle, that day is shown as one on
// which promises were kept less often than they said, and no other day is; and in white
// noise no promise is better than a quantile.
func TestABacktestHasTeeth(t *testing.T) {
	bad := func(f Fleet) (days []int64) {
		for _, d := range f.Days {
			if d.Fit() == FitSeldom {
				days = append(days, d.Day-20000)
			}
		}
		return slices.Compact(days)
	}
	calm := Sum(fleet(6, 28, 200, 2000, 1))
	// Promises for 24 hours begin on day 7. On that day only broken ones are judged.
	if i := slices.IndexFunc(calm.Days, func(d Day) bool { return d.Hours == 24 }); i < 0 || calm.Days[i].Day < 20008 {
		t.Errorf("days of promises for 24 hours: %+v", calm.Days)
	}
	if got := bad(calm); len(got) > 0 {
		t.Errorf("a fleet that stays as it was has bad days: %v", got)
	}
	for _, p := range calm.CPU.Promised {
		if p.Fit == FitSeldom {
			t.Errorf("a fleet that stays as it was, %d h with %v: %+v", p.Hours, p.Percent, p)
		}
	}
	if got := bad(Sum(fleet(6, 28, 200, 2000, 2))); len(got) == 0 || got[0] != 14 || got[len(got)-1] > 15 {
		t.Errorf("a fleet whose load doubles on day 14 has bad days: %v", got)
	}
	noise := Sum(fleet(6, 28, 800, 0, 1))
	for i, p := range noise.CPU.Promised {
		if !p.SkillPercent.Known() {
			t.Fatalf("no promise for %d h with %v was judged", p.Hours, p.Percent)
		}
		if p.Better {
			t.Errorf("white noise, %d h with %v: better than a quantile on most nodes", p.Hours, p.Percent)
		}
		if wave := calm.CPU.Promised[i]; p.Hours == 1 && !wave.Better {
			t.Errorf("a daily wave, %d h with %v: not better than a quantile on most nodes", p.Hours, p.Percent)
		}
	}
}

// TestWhatLastsByHourIsWhatWasPromised plays a node to package promise again, with a hole
// of a day, and takes the means by hand.
func TestWhatLastsByHourIsWhatWasPromised(t *testing.T) {
	n := room(rand.New(rand.NewPCG(5, 5)), 12)
	n.Start = 20_000*day + 7*60
	for i := 9 * day / 5; i < 10*day/5; i++ {
		n.RoomCPU[i] = Absent
	}
	var state promise.State
	sums, counts := map[[2]int]float64{}, map[[2]int]float64{}
	for i, v := range n.RoomCPU {
		if v == Absent {
			continue
		}
		now := promise.Room{CPU: node.Some(unit.MilliCPU(v))}
		for m := range int64(5) {
			minute := n.Start + int64(i)*5 + m
			state.Observe(minute, now)
			if minute%60 != 0 {
				continue
			}
			for _, p := range state.Promises(minute, now) {
				if p.Percent == DayPercent && p.CPU.Code == promise.Known {
					key := [2]int{p.Hours, int(minute / 60 % 24)}
					sums[key], counts[key] = sums[key]+float64(p.CPU.Value), counts[key]+1
				}
			}
		}
	}
	got := Backtest(n).Lasting
	if len(got) != len(promise.Hours) {
		t.Fatalf("%d lengths", len(got))
	}
	for _, l := range got {
		for h, v := range l.CPU {
			key := [2]int{l.Hours, h}
			value, known := v.Value()
			if known != (counts[key] > 0) || known && math.Abs(float64(value)-sums[key]/counts[key]) > 1 {
				t.Errorf("for %d h at %d:00: %v, by hand %v of %v", l.Hours, h, v, sums[key], counts[key])
			}
			if l.Memory[h].Known() {
				t.Errorf("for %d h at %d:00: memory, which was not measured", l.Hours, h)
			}
		}
	}
	one := Summarize(n)
	young := one
	young.Lasting = young.Lasting[:1]
	f := Sum([]Outlook{one, young})
	if len(f.Lasting) != 1 || f.Lasting[0].CPU[12].Or(0) != 2*one.Lasting[0].CPU[12].Or(1) {
		t.Errorf("the sum of two nodes: %+v", f.Lasting)
	}
}

func TestASumLeavesOutWhatIsNotKnown(t *testing.T) {
	hour := func(low, mean unit.MilliCPU) Spread[unit.MilliCPU] {
		return Spread[unit.MilliCPU]{Steps: 10, Low: low, Mean: mean, Used: node.Some(mean)}
	}
	whole := func(low, mean unit.MilliCPU) (o Outlook) {
		o = Outlook{CPU: 8000, Memory: 1 << 30, To: 8 * day, Seen: 8 * day, BatchCPU: node.Some[unit.MilliCPU](0)}
		o.All.CPU = hour(low, mean)
		for h := range o.Hours {
			o.Hours[h].CPU = hour(low, mean)
		}
		return o
	}
	young := whole(5, 5)
	young.Hours[3] = Hour{}
	young.To, young.Seen = day-60, day-60
	f := Sum([]Outlook{whole(1000, 3000), young, whole(500, 4000), {}})
	if f.CPU.Nodes != 2 || f.CPU.Capacity != 16000 || f.CPU.Hours[3].Low != 1500 || f.CPU.All.Mean != 7000 || f.Memory.Nodes != 0 {
		t.Errorf("%+v", f.CPU)
	}
	want := []Gap{{GapRoomCPU, 1}, {GapRoomMemory, 4}, {GapNoForecast, 2}, {GapNotInSum, 1}, {GapBatch, 1}}
	if !reflect.DeepEqual(f.Gaps, want) {
		t.Errorf("gaps %v, want %v", f.Gaps, want)
	}
	promising := young
	promising.Promises = []promise.Promise{{Hours: 1, Percent: 90, CPU: promise.Amount[unit.MilliCPU]{Code: promise.TooFew}, Memory: promise.Amount[unit.Bytes]{Code: promise.Known}}}
	if f, want := Sum([]Outlook{promising}), []Gap{{GapRoomMemory, 1}, {GapNoWeek, 1}}; !reflect.DeepEqual(f.Gaps, want) {
		t.Errorf("a young node with a promise: gaps %v, want %v", f.Gaps, want)
	}
	if f := Sum([]Outlook{young}); f.CPU.Nodes != 1 || f.CPU.Hours[3].Steps != 0 || f.CPU.Hours[4].Low != 5 {
		t.Errorf("a young node alone: %+v", f.CPU)
	}
	if f := Sum(nil); f.Nodes != 0 || f.To != 0 {
		t.Errorf("no node: %+v", f)
	}
}

func TestTheWorstServicesOfAFleet(t *testing.T) {
	hurt := func(service, by string, minutes int64, lost time.Duration) Hurt {
		return Hurt{service, by, minutes, lost}
	}
	n := Node{Step: 1}
	for i := range 20 {
		n.Hurt = append(n.Hurt, hurt("web", string(rune('a'+i)), 1, time.Duration(20-i)), hurt(string(rune('a'+i)), "", 1, time.Duration(i)))
	}
	o := Summarize(n)
	if len(o.Hurt) != mostHurt+mostLimited || o.Hurt[0].By != "a" && o.Hurt[1].By != "a" {
		t.Errorf("%+v", o.Hurt)
	}
	f := Sum([]Outlook{{Hurt: []Hurt{hurt("web", "ci", 3, 50)}}, {Hurt: []Hurt{hurt("api", "ci", 2, 60), hurt("web", "ci", 4, 20)}}})
	want := []HurtOn{{hurt("web", "ci", 7, 70), 2}, {hurt("api", "ci", 2, 60), 1}}
	if !reflect.DeepEqual(f.Hurt, want) {
		t.Errorf("%+v", f.Hurt)
	}
}

// servers makes outlooks of nodes with the same use and batch work at each hour.
func servers(n int, used, batch, low, mean unit.MilliCPU) (all []Outlook) {
	for range n {
		o := Outlook{CPU: 16000, Memory: 64 << 30, BatchCPU: node.Some(batch)}
		h := Hour{
			CPU:    Spread[unit.MilliCPU]{Steps: 1, Low: low, Mean: mean, Used: node.Some(used)},
			Memory: Spread[unit.Bytes]{Steps: 1, Used: node.Some[unit.Bytes](16 << 30)},
		}
		o.All = h
		for i := range o.Hours {
			o.Hours[i] = h
		}
		all = append(all, o)
	}
	return all
}

// TestASavingNeedsWorkAndRoom: nothing is saved without batch work, and never more than
// its share. Nodes that could go today do not count.
func TestASavingNeedsWorkAndRoom(t *testing.T) {
	cost := func(all []Outlook) Saving { return Sum(all).Saving }
	if s := cost(servers(10, 8000, 0, 3000, 6000)); s.Code != NoBatchWork || s.High.Nodes != 0 || s.High.CPU != 0 {
		t.Errorf("no batch work: %+v", s)
	}
	unknown := servers(10, 8000, 0, 3000, 6000)
	for i := range unknown {
		unknown[i].BatchCPU = node.Maybe[unit.MilliCPU]{}
	}
	if s := cost(unknown); s.Code != BatchUnknown {
		t.Errorf("batch work is not known: %+v", s)
	}
	for name, unmeasure := range map[string]func(o *Outlook){
		"no room": func(o *Outlook) { o.All.CPU.Steps = 0 }, "no use": func(o *Outlook) { o.Hours = [24]Hour{} },
	} {
		named := servers(2, 8000, 2000, 3000, 6000)
		unmeasure(&named[0])
		if s := cost(named[:1]); s.Code != Unmeasured || s.Nodes != 0 {
			t.Errorf("batch work is known, %s: %+v", name, s)
		}
		if s := cost(named); s.Code != Counted || s.Nodes != 1 {
			t.Errorf("batch work of two nodes is known, and of one %s: %+v", name, s)
		}
	}
	if s := cost(servers(1, 8000, 2000, 3000, 6000)); s.Code != OneNode || s.High.CPU != 2000 {
		t.Errorf("one node: %+v", s)
	}
	if s := cost(servers(10, 8000, 2000, 0, 0)); s.Code != NoRoom {
		t.Errorf("no room: %+v", s)
	}
	// A quarter of the CPU of ten nodes moves, so at most two of them go. Their memory must
	// fit on the others, so none does while all nodes are equally full.
	s := cost(servers(10, 8000, 2000, 5000, 6000))
	if s.Code != Counted || s.Work != 20000 || s.Low.CPU != 20000 || s.Low.Nodes != 0 || s.High.Nodes != 0 {
		t.Errorf("full memory: %+v", s)
	}
	roomy := servers(10, 8000, 2000, 5000, 6000)
	for h := range roomy[9].Hours {
		roomy[9].Hours[h].Memory.Used = node.Some[unit.Bytes](48 << 30) // the busiest one
	}
	if s := cost(roomy); s.Low.Nodes != 2 || s.High.Nodes != 2 {
		t.Errorf("free memory: %+v, want two nodes fewer", s)
	}
	for i := range roomy {
		roomy[i].All.CPU.Low = 1000 // half of the work fits
	}
	if s := cost(roomy); s.Low.CPU != 10000 || s.Low.Nodes > 1 || s.High.Nodes != 2 {
		t.Errorf("little room that lasts: %+v", s)
	}
	// The batch work fills the room, and a node that goes takes 10 CPUs of it away.
	for i := range roomy {
		roomy[i].All.CPU.Low, roomy[i].All.CPU.Mean = 2000, 2000
	}
	for h := range roomy[9].Hours {
		roomy[9].Hours[h].CPU.Used = node.Some[unit.MilliCPU](12_000) // so three nodes could go today, and four then
	}
	if s := cost(roomy); s.Code != Counted || s.High.CPU != 20000 || s.High.Nodes != 0 {
		t.Errorf("a room that the work fills: %+v", s)
	}
	// Half of the nodes are idle, so they could go today: batch work adds nothing to that.
	idle := append(servers(5, 15000, 0, 0, 0), servers(5, 100, 50, 5000, 6000)...)
	for i := range idle {
		for h := range idle[i].Hours {
			idle[i].Hours[h].Memory.Used = node.Some(unit.Bytes(max(48-8*i, 1)) << 30) // the first one is the busiest
		}
	}
	if s := cost(idle); s.Low.Nodes != 0 || s.High.Nodes != 0 {
		t.Errorf("idle nodes: %+v", s)
	}
}

// TestTheEndsOfAnIntervalAreShares: at each end, the share that was seen is z standard
// deviations away.
func TestTheEndsOfAnIntervalAreShares(t *testing.T) {
	for _, c := range []struct{ kept, judged int64 }{{900, 1000}, {50, 60}, {30, 100}} {
		for _, z := range []float64{1.96, 3.29} {
			n := float64(c.judged)
			least, most := interval(c.kept, c.judged, n, z)
			for _, end := range []int64{least, most} {
				share := float64(end) / 1000
				if away := math.Abs(share-float64(c.kept)/n) / math.Sqrt(share*(1-share)/n); math.Abs(away-z) > 0.06 {
					t.Errorf("%d of %d, %v: the end %d is %.2f deviations away", c.kept, c.judged, z, end, away)
				}
			}
		}
	}
	if least, most := interval(0, 0, 0, 1.96); least != 0 || most != 1000 {
		t.Errorf("no trial: %d to %d", least, most)
	}
}

func BenchmarkSummarizeAWeek(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 1))
	n := Node{CPU: 16000, Memory: 64 << 30, Step: 1}
	n.RoomCPU, n.RoomMemory = column(rnd, 7*day, 1, 6000, 0.001), column(rnd, 7*day, 1, 20000, 0.001)
	n.UsedCPU, n.UsedMemory = n.RoomCPU, n.RoomMemory
	for b.Loop() {
		Summarize(n)
	}
}

// BenchmarkSumOfAFleet adds up 5,000 nodes in ten pools.
func BenchmarkSumOfAFleet(b *testing.B) {
	one := fleet(1, 8, 200, 2000, 1)[0]
	rnd := rand.New(rand.NewPCG(1, 1))
	var all []Outlook
	for i := range 5000 {
		o := servers(1, unit.MilliCPU(4000+rnd.IntN(8000)), unit.MilliCPU(rnd.IntN(3000)), 3000, 6000)[0]
		o.Pool, o.Risks, o.Promises, o.Days = string(rune('a'+i%10)), one.Risks, one.Promises, one.Days
		for h := range o.Hours {
			o.Hours[h].Memory.Used = node.Some(unit.Bytes(10+rnd.IntN(30)) << 30)
		}
		all = append(all, o)
	}
	for b.Loop() {
		if Sum(all).Saving.High.Nodes == 0 {
			b.Fatal("nothing is saved")
		}
	}
}

func BenchmarkBacktestAWeek(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 1))
	n := Node{Step: 1, RoomCPU: column(rnd, 7*day, 1, 6000, 0.001), RoomMemory: column(rnd, 7*day, 1, 20000, 0.001)}
	for b.Loop() {
		Backtest(n)
	}
}
