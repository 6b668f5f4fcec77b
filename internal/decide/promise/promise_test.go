package promise

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A shape gives the room of CPU, in thousandths of a CPU, at a minute. level is
// noise that lasts for some hours, and blip noise of one minute; both have mean 0
// and deviation 1.
type shape func(minute int, level, blip float64) float64

func cycle(minute int, hours float64) float64 {
	return math.Sin(2 * math.Pi * float64(minute) / 60 / hours)
}

var shapes = map[string]shape{
	"daily": func(m int, l, b float64) float64 { return 20_000 + 6_000*cycle(m, 24) + 1_500*l + 300*b },
	"weekly": func(m int, l, b float64) float64 {
		return 20_000 + 4_000*cycle(m, 24) + 3_000*cycle(m, 168) + 1_500*l + 300*b
	},
	"flat": func(_ int, l, b float64) float64 { return 8_000 + 1_000*l + 200*b },
	"releases": func(m int, l, b float64) float64 { // a service restarts for 20 minutes every 31 hours
		v := 20_000 + 3_000*cycle(m, 24) + 1_000*l + 300*b
		if m%(31*60) < 20 {
			v -= 8_000
		}
		return v
	},
	"narrow": func(m int, l, b float64) float64 { return 500 + 2_000*cycle(m, 24) + 400*l + 100*b }, // often no room at all
}

// cpuOnly and both make a Room of an amount of CPU; both adds 4 MiB of memory for
// each thousandth of a CPU.
func cpuOnly(v unit.MilliCPU) Room { return Room{CPU: node.Some(v)} }
func both(v unit.MilliCPU) Room {
	return Room{CPU: node.Some(v), Memory: node.Some(unit.Bytes(v) * 4 * mib)}
}

// feed gives a state the room of some days, and calls see after each minute.
func feed(s *State, days int, seed uint64, of shape, give func(unit.MilliCPU) Room, see func(minute int64, room unit.MilliCPU)) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	level, lasts := rnd.NormFloat64(), math.Exp(-1.0/180)
	for m := range days * 24 * 60 {
		level = lasts*level + math.Sqrt(1-lasts*lasts)*rnd.NormFloat64()
		v := unit.MilliCPU(max(of(m, level, rnd.NormFloat64()), 0))
		minute := int64(m) + 10*24*60
		s.Observe(minute, give(v))
		if see != nil {
			see(minute, v)
		}
	}
}

// TestALongerOrSurerPromiseIsNeverLarger also checks that none is above the room
// of now.
func TestALongerOrSurerPromiseIsNeverLarger(t *testing.T) {
	shapes := maps.Clone(shapes)
	shapes["step"] = func(m int, l, b float64) float64 {
		v := 20_000 + 4_000*cycle(m, 24) + 2_000*l + 500*b
		if m > 8*24*60 && m < 14*24*60 {
			v /= 3
		}
		return v
	}
	shapes["dips"] = func(m int, l, b float64) float64 { // an hour of little room in every third
		v := 20_000 + 500*l + 100*b
		if m/60%3 == 0 {
			v -= 15_000
		}
		return v
	}
	for name, of := range shapes {
		var s State
		seen := 0
		feed(&s, 20, 7, of, both, func(minute int64, room unit.MilliCPU) {
			all := s.Promises(minute, both(room))
			for i, p := range all {
				if p.CPU.Code != Known {
					if p.CPU.Value != 0 {
						t.Fatalf("%s: %+v promises without being known", name, p)
					}
					continue
				}
				seen++
				if p.CPU.Value > room || p.CPU.Value < 0 {
					t.Fatalf("%s, minute %d: %+v, and the room is %v", name, minute, p, room)
				}
				if p.Memory.Value > unit.Bytes(room)*4*mib {
					t.Fatalf("%s, minute %d: %+v, and the room is %d MiB", name, minute, p, room*4)
				}
				for _, q := range all[:i] {
					if q.Hours <= p.Hours && q.Percent <= p.Percent && q.CPU.Code == Known && q.CPU.Value < p.CPU.Value {
						t.Fatalf("%s, minute %d: %+v is less than %+v", name, minute, q, p)
					}
				}
			}
		})
		if seen < 100_000 {
			t.Errorf("%s: only %d promises were made", name, seen)
		}
	}
}

// A judge checks promises without the code that makes them: it keeps those of
// each full hour and the room of the minutes that follow.
type judge struct {
	open         []open
	kept, judged [len(Hours) * len(Levels)]int
}

type open struct {
	kind int
	ends int64
	v    unit.MilliCPU
	kept bool
}

func (j *judge) see(s *State, minute int64, room unit.MilliCPU) {
	if minute%60 == 0 {
		for kind, p := range s.Promises(minute, cpuOnly(room)) {
			if p.CPU.Code == Known {
				j.open = append(j.open, open{kind, minute + int64(p.Hours)*60, p.CPU.Value, true})
			}
		}
	}
	left := j.open[:0]
	for _, o := range j.open {
		if minute >= o.ends {
			j.judged[o.kind]++
			if o.kept {
				j.kept[o.kind]++
			}
			continue
		}
		o.kept = o.kept && room >= o.v
		left = append(left, o)
	}
	j.open = left
}

// coverage returns the share of kept promises in percent.
func (j *judge) coverage(kind int) float64 {
	return 100 * float64(j.kept[kind]) / float64(j.judged[kind])
}

func kindOf(kind int) (hours int, percent unit.Percent) {
	return Hours[kind/len(Levels)], Levels[kind%len(Levels)]
}

// TestPromisesAreKeptAsOftenAsTheySay judges four months from the second week on.
// A room that is often 0 keeps a promise of 0 always, so more may be kept there.
func TestPromisesAreKeptAsOftenAsTheySay(t *testing.T) {
	for name, of := range shapes {
		t.Run(name, func(t *testing.T) {
			var s State
			var j judge
			feed(&s, 120, 3, of, cpuOnly, func(minute int64, room unit.MilliCPU) {
				if minute >= 17*24*60 {
					j.see(&s, minute, room)
				}
			})
			for kind := range j.judged {
				hours, percent := kindOf(kind)
				got := j.coverage(kind)
				t.Logf("%2d h %v: %.1f %% of %d", hours, percent, got, j.judged[kind])
				if got < float64(percent)-2 || got > float64(percent)+2 && name != "narrow" {
					t.Errorf("%d h with %v: %.1f %% of %d promises were kept", hours, percent, got, j.judged[kind])
				}
			}
		})
	}
}

// TestAPromiseCountsWhatWasKept compares the counts of the promises with those of
// the judge, which sees what was shown.
func TestAPromiseCountsWhatWasKept(t *testing.T) {
	for name, of := range shapes {
		var s State
		var j judge
		feed(&s, 40, 9, of, cpuOnly, func(minute int64, room unit.MilliCPU) { j.see(&s, minute, room) })
		for kind, p := range s.Promises(s.CPU.Last, cpuOnly(unit.MilliCPU(s.CPU.Now))) {
			if int(p.CPU.Kept) != j.kept[kind] || p.CPU.Kept == 0 {
				t.Errorf("%s: %d h with %v: %d are counted as kept, and %d were", name, p.Hours, p.Percent, p.CPU.Kept, j.kept[kind])
			}
			if broken := p.CPU.Judged - p.CPU.Kept; int(broken) < j.judged[kind]-j.kept[kind] {
				t.Errorf("%s: %d h with %v: %d are counted as broken, and %d were", name, p.Hours, p.Percent, broken, j.judged[kind]-j.kept[kind])
			}
		}
	}
}

// TestPromisesRecoverFromAStepWithinThreeDays judges the two weeks that begin
// three days after a step, as the mean of ten nodes. After a fall, more than asked
// are kept for up to ten days, because the windows of the fall count among the
// past ones.
func TestPromisesRecoverFromAStepWithinThreeDays(t *testing.T) {
	const before, after = 30, 17
	for _, step := range []float64{-8_000, -3_000, 3_000, 8_000} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			var sum judge
			var promised, room float64
			for seed := range uint64(10) {
				var s State
				var j judge
				stepped := func(m int, l, b float64) float64 {
					v := shapes["daily"](m, l, b)
					if m >= before*24*60 {
						v += step
					}
					return v
				}
				feed(&s, before+after, 100+seed, stepped, cpuOnly, func(minute int64, v unit.MilliCPU) {
					if minute < (10+before+3)*24*60 {
						return
					}
					j.see(&s, minute, v)
					if minute%60 == 0 {
						promised += float64(s.Promises(minute, cpuOnly(v))[1].CPU.Value)
						room += float64(v)
					}
				})
				for kind := range j.judged {
					sum.judged[kind] += j.judged[kind]
					sum.kept[kind] += j.kept[kind]
				}
			}
			for kind := range sum.judged {
				hours, percent := kindOf(kind)
				got := sum.coverage(kind)
				t.Logf("%2d h %v: %.1f %% of %d", hours, percent, got, sum.judged[kind])
				if got < float64(percent)-2 || got > float64(percent)+8 || step > 0 && got > float64(percent)+5 {
					t.Errorf("%d h with %v: %.1f %% of %d promises were kept", hours, percent, got, sum.judged[kind])
				}
			}
			if promised < room/2 {
				t.Errorf("1 h with 90 %% promises %.0f of %.0f: it is kept because it is small", promised, room)
			}
		})
	}
}

// TestWhiteNoiseHasNoPattern: a promise cannot gain where the hours are
// independent, and has to gain where they follow the day.
func TestWhiteNoiseHasNoPattern(t *testing.T) {
	for name, of := range map[string]shape{
		"noise": func(_ int, _, b float64) float64 { return 10_000 + 2_000*b }, "daily": shapes["daily"],
	} {
		for seed := range uint64(6) {
			var s State
			feed(&s, 60, seed, of, cpuOnly, nil)
			for _, p := range s.Promises(s.CPU.Last, cpuOnly(unit.MilliCPU(s.CPU.Now))) {
				if name == "daily" && (p.Hours == 24 || p.Percent == 95) {
					continue // a day has the whole cycle, and few promises of 95 % are broken
				}
				if got, want := p.CPU.Better, name == "daily"; got != want {
					t.Errorf("%s: %d h with %v: a skill of %v counts as better: %v", name, p.Hours, p.Percent, p.CPU.SkillPercent, got)
				}
			}
		}
	}
}

func TestNothingIsPromisedBeforeEnoughWindows(t *testing.T) {
	var s State
	for _, p := range s.Promises(0, both(1000)) {
		if p.CPU.Code != Unmeasured || p.Memory.Code != Unmeasured {
			t.Errorf("a promise of nothing: %+v", p)
		}
	}
	began := map[int]int64{}
	feed(&s, 8, 1, shapes["daily"], cpuOnly, func(minute int64, room unit.MilliCPU) {
		for _, p := range s.Promises(minute, cpuOnly(room)) {
			switch {
			case p.CPU.Code == Known && p.CPU.Windows < p.CPU.Needed, p.CPU.Code == TooFew && p.CPU.Windows >= p.CPU.Needed:
				t.Fatalf("%+v", p)
			case p.CPU.Code == Known && began[p.Hours] == 0:
				began[p.Hours] = minute/60 - 10*24
			}
		}
	})
	for h, hours := range Hours { // a day for the level, and the windows, of which the last one lasts
		if want := int64(day + needed[h] + hours - 1); began[hours] != want {
			t.Errorf("promises of %d h began after %d h, want %d", hours, began[hours], want)
		}
	}
	last := s.CPU.Last
	if p := s.Promises(last+staleAfter, cpuOnly(9000))[0]; p.CPU.Code != Known {
		t.Errorf("a value that is %d minutes old does not count: %+v", staleAfter, p)
	}
	if p := s.Promises(last, Room{})[0]; p.CPU.Code != Unmeasured {
		t.Errorf("the room of now is not known, and there is a promise: %+v", p)
	}
	if p := s.Promises(last, cpuOnly(7))[0]; p.CPU.Value != 7 {
		t.Errorf("a promise is larger than the room of now, 7m: %+v", p)
	}
	if p := s.Promises(last+staleAfter+1, cpuOnly(9000))[0]; p.CPU.Code != Unmeasured || p.CPU.Value != 0 {
		t.Errorf("a value that is older counts: %+v", p)
	}
}

// TestAHoleJudgesNothing: the room of an hour that the agent did not see neither
// keeps nor breaks a promise, and each resource has holes of its own.
func TestAHoleJudgesNothing(t *testing.T) {
	var s State
	at := int64(0)
	pass := func(minutes int, room Room) {
		for range minutes {
			s.Observe(at, room)
			at++
		}
	}
	full := Room{CPU: node.Some(unit.MilliCPU(5000)), Memory: node.Some(unit.Bytes(64 << 30))}
	pass(10*24*60, full)
	before, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	day := s.Promises(at-1, full)
	if p := day[0].CPU; p.Code != Known || p.Value != 5000 || p.Kept != p.Judged || p.Judged == 0 {
		t.Fatalf("a room that stays is not promised: %+v", p)
	}
	pass(60, Room{CPU: full.CPU}) // no memory for an hour
	pass(1, full)
	hole := s.Promises(at-1, full)
	if got, had := hole[0].CPU.Judged, day[0].CPU.Judged; got != had+2 {
		t.Errorf("%d promises of CPU are judged, want %d", got, had+2)
	}
	for i, p := range hole {
		if got := p.Memory.Judged - day[i].Memory.Judged; got != 1 { // the hour before the hole
			t.Errorf("%d h: the hole judges %d promises of memory", p.Hours, got-1)
		}
	}
	if s.Memory.Past[len(s.Memory.Past)-1] >= 0 || s.CPU.Past[len(s.CPU.Past)-1] != 5000 {
		t.Errorf("the hole is not in the past: %v", s.Memory.Past[len(s.Memory.Past)-3:])
	}

	if s, err = Restore(before); err != nil {
		t.Fatal(err)
	}
	s.Observe(at-24*60, full) // the clock is set back
	if p := s.Promises(at-24*60, full)[0].CPU; p.Code != TooFew || p.Judged != day[0].CPU.Judged {
		t.Errorf("after a step of the clock: %+v", p)
	}
}

// TestAClockThatIsSetBackOverAFullHourForgetsNothing sets it back by a minute.
func TestAClockThatIsSetBackOverAFullHourForgetsNothing(t *testing.T) {
	var s, want State
	feed(&s, 10, 4, shapes["daily"], cpuOnly, nil)
	feed(&want, 10, 4, shapes["daily"], cpuOnly, nil)
	room := cpuOnly(9000)
	full := (s.CPU.Last/60 + 1) * 60
	for _, minute := range []int64{full, full - 1, full + 1} {
		s.Observe(minute, room)
		if minute >= full {
			want.Observe(minute, room)
		}
	}
	if got := s.Promises(full+1, room); !reflect.DeepEqual(got, want.Promises(full+1, room)) || got[0].CPU.Code != Known {
		t.Errorf("%+v", got)
	}
}

// TestASavedStateGoesOnAsIfNothingWas also checks that the state of a node with
// hundreds of CPUs is small.
func TestASavedStateGoesOnAsIfNothingWas(t *testing.T) {
	large := func(m int, l, b float64) float64 { return 10 * shapes["weekly"](m, l, b) }
	var s State
	feed(&s, 40, 11, large, both, nil)
	text, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 10_000 {
		t.Errorf("the state has %d bytes, more than 10,000", len(text))
	}
	back, err := Restore(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3 * 24 * 60) {
		room := Room{CPU: node.Some(unit.MilliCPU(100_000 + i*37%50_000)), Memory: node.Some(unit.Bytes(i%977) << 30)}
		minute := s.CPU.Last + 1
		s.Observe(minute, room)
		back.Observe(minute, room)
		if a, b := s.Promises(minute, room), back.Promises(minute, room); !reflect.DeepEqual(a, b) {
			t.Fatalf("minute %d: %+v\nwant %+v", i, b, a)
		}
	}
}

func FuzzRestore(f *testing.F) {
	var s State
	feed(&s, 6, 2, shapes["daily"], both, nil)
	text, err := s.Save()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"cpu":{"begun":true,"past":[-2]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Restore(text)
		if err != nil || s.CPU.Last > most-1000 {
			return
		}
		last := s.CPU.Last
		for i := range int64(200) {
			room := Room{CPU: node.Some(unit.MilliCPU(i * 100)), Memory: node.Some(unit.Bytes(i) << 30)}
			s.Observe(last+i, room)
			for _, p := range s.Promises(last+i, room) {
				if p.CPU.Value > unit.MilliCPU(i*100) || p.CPU.Value < 0 {
					t.Fatalf("%+v", p)
				}
			}
		}
	})
}

func BenchmarkMinute(b *testing.B) {
	var s State
	feed(&s, 20, 1, shapes["daily"], both, nil)
	minute := s.CPU.Last
	b.ReportAllocs()
	for b.Loop() {
		minute++
		s.Observe(minute, Room{CPU: node.Some(unit.MilliCPU(10_000)), Memory: node.Some(unit.Bytes(10 << 30))})
	}
}
