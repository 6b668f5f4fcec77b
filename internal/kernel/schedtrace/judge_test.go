package schedtrace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/unit"
)

const µs = time.Microsecond

// script parses a trace in the notation of the tests. Each line has a time in
// microseconds and then "cpu0 a>b", "wake a" or "wake1 a" (sent to CPU 1). The
// first letter of a name is the class: l for LS, b for BE, o for others. The
// idle loop is "-".
func script(t *testing.T, text string) []Event {
	t.Helper()
	tids := map[string]Thread{"-": {TID: 0, Comm: "swapper"}}
	thread := func(name string) Thread {
		if _, ok := tids[name]; !ok {
			tids[name] = Thread{TID: 100 + len(tids), Comm: name}
		}
		return tids[name]
	}
	var events []Event
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var at int
		var where, what string
		if _, err := fmt.Sscan(line, &at, &where, &what); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		e := Event{At: time.Duration(at) * µs, Kind: Wake, Thread: thread(what)}
		if cpu, sent := strings.CutPrefix(where, "wake"); sent && cpu != "" {
			e.Target = unit.CPU(cpu[0] - '0')
		}
		if cpu, ok := strings.CutPrefix(where, "cpu"); ok {
			from, to, _ := strings.Cut(what, ">")
			e.CPU, e.Kind = unit.CPU(cpu[0]-'0'), Switch
			e.Prev, e.Thread = thread(from), thread(to)
		}
		events = append(events, e)
	}
	return events
}

func classByName(t Thread) Class {
	switch t.Comm[0] {
	case 'l':
		return LS
	case 'b':
		return BE
	}
	return Other
}

// oneCore is a core of two hardware threads.
var oneCore = map[unit.CPU]int{0: 0, 1: 0}

func one(d time.Duration) Quantiles {
	return Quantiles{Count: 1, P50: d, P90: d, P99: d, Max: d}
}

// TestTheReportHasTheTimesOfBothClasses checks every field of the report, so
// that a change of any field fails the test.
func TestTheReportHasTheTimesOfBothClasses(t *testing.T) {
	for name, c := range map[string]struct {
		trace string
		rules Rules
		want  Report
	}{
		"BE leaves 30 µs after LS began, and comes back when LS is gone": {
			trace: `
				0   cpu0 ->-
				0   cpu1 ->b
				100 cpu0 ->l
				130 cpu1 b>-
				200 cpu0 l>-
				200 cpu1 ->b
				300 cpu0 ->-`,
			want: Report{
				LSTime: 100 * µs, BETime: 230 * µs, IdleTime: 270 * µs, Bursts: 1,
				BesideTime: 30 * µs, BEStarts: 2, Expel: one(30 * µs), BEIdeal: 400 * µs,
			},
		},
		"BE that stays until LS ends counts with that time": {
			trace: `
				0   cpu1 ->b
				100 cpu0 ->l
				150 cpu0 l>-
				200 cpu1 b>-`,
			want: Report{
				LSTime: 50 * µs, BETime: 200 * µs, IdleTime: 150 * µs, Bursts: 1, BesideTime: 50 * µs,
				BEStarts: 1, Expel: one(50 * µs), Unexpelled: 1, BEIdeal: 300 * µs,
			},
		},
		"one BE thread after the other beside LS is one expel and one start": {
			trace: `
				0   cpu1 ->b
				100 cpu0 ->l
				140 cpu1 b>b2
				180 cpu1 b2>-
				200 cpu0 l>-`,
			want: Report{
				LSTime: 100 * µs, BETime: 180 * µs, IdleTime: 120 * µs, Bursts: 1, BesideTime: 80 * µs,
				BEStarts: 2, BEStartsBesideLS: 1, BEStartAfter: one(40 * µs), Expel: one(80 * µs), BEIdeal: 200 * µs,
			},
		},
		"a start within epsilon of LS is a race, one after it is not": {
			trace: `
				0   cpu0 ->l
				10  cpu1 ->b
				20  cpu1 b>-
				21  cpu1 ->b
				30  cpu1 b>-
				100 cpu0 l>-`,
			rules: Rules{Epsilon: 20 * µs},
			want: Report{
				LSTime: 100 * µs, BETime: 19 * µs, IdleTime: 81 * µs, Bursts: 1, BesideTime: 19 * µs,
				BEStarts: 2, BEStartsBesideLS: 1, BEStartAfter: Quantiles{Count: 2, P50: 10 * µs, P90: 21 * µs, P99: 21 * µs, Max: 21 * µs},
			},
		},
		"LS that goes on with another thread has run since the first": {
			trace: `
				0   cpu0 ->l
				50  cpu0 l>l2
				60  cpu1 ->b
				100 cpu1 b>-`,
			rules: Rules{Epsilon: 20 * µs},
			want: Report{
				LSTime: 100 * µs, BETime: 40 * µs, IdleTime: 60 * µs, Bursts: 1, BesideTime: 40 * µs,
				BEStarts: 1, BEStartsBesideLS: 1, BEStartAfter: one(60 * µs),
			},
		},
		"the hold of the sibling is not in BE's ideal": {
			trace: `
				0   cpu0 ->l
				0   cpu1 ->-
				100 cpu0 l>-
				150 cpu0 ->-
				400 cpu0 ->-`,
			rules: Rules{Hold: 200 * µs},
			want:  Report{LSTime: 100 * µs, IdleTime: 700 * µs, Bursts: 1, BEIdeal: 300*µs + 100*µs},
		},
		"two holds of one core": {
			trace: `
				0   cpu0 ->l
				0   cpu1 ->-
				100 cpu0 l>-
				150 cpu1 ->l
				200 cpu1 l>-
				500 cpu0 ->-`,
			rules: Rules{Hold: 200 * µs},
			want:  Report{LSTime: 150 * µs, IdleTime: 850 * µs, Bursts: 2, BEIdeal: 50*µs + 100*µs + 200*µs},
		},
		"two LS threads on one core are beside no BE": {
			trace: `
				0   cpu0 ->l
				0   cpu1 ->l2
				100 cpu0 l>-
				100 cpu1 l2>-`,
			want: Report{LSTime: 200 * µs, Bursts: 2},
		},
		"kernel threads are neither": {
			trace: `
				0   cpu0 ->o
				0   cpu1 ->b
				100 cpu0 o>l
				110 cpu1 b>o2
				200 cpu0 l>-`,
			want: Report{
				LSTime: 100 * µs, BETime: 110 * µs, OtherTime: 190 * µs, Bursts: 1, BesideTime: 10 * µs,
				BEStarts: 1, Expel: one(10 * µs), BEIdeal: 200 * µs,
			},
		},
		"a trace that starts in the middle: the first switch says who ran before": {
			trace: `
				0   wake o
				50  cpu0 l>-
				80  cpu1 b>-
				100 wake o`,
			want: Report{LSTime: 50 * µs, BETime: 80 * µs, IdleTime: 70 * µs, BesideTime: 50 * µs, BEIdeal: 100 * µs, LongestWait: 100 * µs},
		},
		"who ran at the end ran until the end": {
			trace: `
				0   cpu0 ->l
				0   cpu1 ->-
				100 wake o`,
			want: Report{LSTime: 100 * µs, IdleTime: 100 * µs, Bursts: 1},
		},
		"a CPU without a switch counts nowhere": {
			trace: `
				0   cpu0 ->b
				100 cpu0 b>-`,
			want: Report{BETime: 100 * µs, BEStarts: 1, BEIdeal: 100 * µs, Unseen: []unit.CPU{1}},
		},
		"a CPU that does not count is not looked at": {
			trace: `
				0   cpu0 ->b
				0   cpu1 ->-
				0   cpu3 ->l
				100 cpu0 b>-`,
			want: Report{BETime: 100 * µs, IdleTime: 100 * µs, BEStarts: 1, BEIdeal: 200 * µs},
		},
		"what lies outside the bounds only tells who runs": {
			trace: `
				0   cpu1 ->b
				10  cpu0 ->l
				20  cpu1 b>-
				30  cpu1 ->b
				40  cpu1 b>-
				150 cpu0 l>-
				250 cpu1 ->b
				300 cpu0 ->l`,
			rules: Rules{From: 100 * µs, To: 200 * µs},
			want:  Report{LSTime: 50 * µs, IdleTime: 150 * µs, BEIdeal: 100 * µs},
		},
		"from being woken to running": {
			trace: `
				0   cpu0 ->b
				0   cpu1 ->-
				0   wake l
				5   cpu0 b>l
				10  wake b2
				20  cpu0 l>b
				60  cpu1 ->b2
				100 cpu1 b2>-`,
			want: Report{
				LSTime: 15 * µs, BETime: 125 * µs, IdleTime: 60 * µs, Bursts: 1, BEStarts: 3,
				LSWake: one(5 * µs), BEWake: one(50 * µs), BEIdeal: 170 * µs,
			},
		},
		"a thread woken twice has waited since the first time": {
			trace: `
				0   cpu0 ->-
				0   wake l
				30  wake l
				50  cpu0 ->l
				100 cpu0 l>-`,
			rules: Rules{Epsilon: 1},
			want: Report{
				LSTime: 50 * µs, IdleTime: 50 * µs, Bursts: 1, LSWake: one(50 * µs), BEIdeal: 50 * µs,
				Unseen: []unit.CPU{1},
			},
		},
		"a thread woken while it runs does not wait": {
			trace: `
				0   cpu0 ->l
				30  wake l
				50  cpu0 l>o
				70  cpu0 o>l
				100 cpu0 l>-`,
			want: Report{
				LSTime: 80 * µs, OtherTime: 20 * µs, Bursts: 2, BEIdeal: 20 * µs,
				Unseen: []unit.CPU{1},
			},
		},
		"a thread that never came to run": {
			trace: `
				0   cpu0 ->o
				20  wake b
				100 cpu0 o>-`,
			want: Report{OtherTime: 100 * µs, LongestWait: 80 * µs, BEIdeal: 100 * µs, Unseen: []unit.CPU{1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules := c.rules
			rules.Cores, rules.ClassOf = oneCore, classByName
			got, err := Judge(script(t, c.trace), rules)
			if err != nil {
				t.Fatal(err)
			}
			got.From, got.To = 0, 0
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCoresAreJudgedApart(t *testing.T) {
	got, err := Judge(script(t, `
		0   cpu0 ->l
		0   cpu1 ->-
		0   cpu2 ->b
		0   cpu3 ->b2
		100 cpu0 l>-`), Rules{Cores: map[unit.CPU]int{0: 0, 1: 0, 2: 1, 3: 1}, ClassOf: classByName})
	if err != nil {
		t.Fatal(err)
	}
	if got.BesideTime != 0 || got.BEStartsBesideLS != 0 || got.BEIdeal != 200*µs || got.BEShare() != 1 || got.BesideRatio() != 0 {
		t.Errorf("BE on another core than LS: %+v", got)
	}
}

func TestTheOrderOfTheEventsDoesNotMatter(t *testing.T) {
	events := script(t, `
		0   cpu1 ->b
		100 cpu0 ->l
		130 cpu1 b>-
		200 cpu0 l>-`)
	rules := Rules{Cores: oneCore, ClassOf: classByName}
	want, err := Judge(events, rules)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(events)
	got, err := Judge(events, rules)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("backwards: %v (-want +got):\n%s", err, diff)
	}
}

func TestNothingIsNotJudged(t *testing.T) {
	for name, c := range map[string]struct {
		events []Event
		rules  Rules
	}{
		"no events":        {},
		"one moment":       {events: script(t, "5 cpu0 ->b")},
		"bounds reversed":  {events: script(t, "5 cpu0 ->b\n9 cpu0 b>-"), rules: Rules{From: 8, To: 7}},
		"no CPU of ours":   {events: script(t, "5 cpu7 ->b\n9 cpu7 b>-")},
		"wake-ups and all": {events: script(t, "5 wake b\n9 wake l")},
	} {
		t.Run(name, func(t *testing.T) {
			c.rules.Cores, c.rules.ClassOf = maps.Clone(oneCore), classByName
			if r, err := Judge(c.events, c.rules); !errors.Is(err, ErrVoid) {
				t.Errorf("judged as %+v, error %v; want ErrVoid", r, err)
			}
		})
	}
}

func TestQuantilesAreValuesOfTheSample(t *testing.T) {
	var sample []time.Duration
	for i := range 100 {
		sample = append(sample, time.Duration(100-i))
	}
	want := Quantiles{Count: 100, P50: 50, P90: 90, P99: 99, Max: 100}
	if got := quantilesOf(sample); got != want {
		t.Errorf("of 1 to 100: %+v, want %+v", got, want)
	}
}
