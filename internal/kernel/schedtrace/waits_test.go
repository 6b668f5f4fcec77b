package schedtrace

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestForWhatAServiceWaited checks every field of the report.
func TestForWhatAServiceWaited(t *testing.T) {
	type times = By[time.Duration]
	for name, c := range map[string]struct {
		trace string
		want  Waits
	}{
		"an idle CPU": {
			trace: `
				0   cpu0 ->-
				100 wake0 l
				103 cpu0 ->l
				200 cpu0 l>-`,
			want: Waits{Wakes: 1, Found: By[int]{Idle: 1}, Waited: times{Idle: 3 * µs}, CPU: times{Idle: 103 * µs, Own: 97 * µs}},
		},
		"BE that gives way at once": {
			trace: `
				0   cpu0 ->b
				100 wake0 l
				105 cpu0 b>l
				200 cpu0 l>b`,
			want: Waits{Wakes: 1, Found: By[int]{BE: 1}, Waited: times{BE: 5 * µs}, CPU: times{BE: 105 * µs, Own: 95 * µs}},
		},
		"BE that keeps the CPU": {
			trace: `
				0   cpu0 ->b
				100 wake0 l
				160 cpu0 b>l
				200 cpu0 l>b`,
			want: Waits{Wakes: 1, Found: By[int]{BE: 1}, Late: By[int]{BE: 1}, Waited: times{BE: 60 * µs}, CPU: times{BE: 160 * µs, Own: 40 * µs}},
		},
		"a stray that comes first": {
			trace: `
				0   cpu0 ->b
				50  wake0 o
				100 wake0 l
				110 cpu0 b>o
				170 cpu0 o>l
				200 cpu0 l>b`,
			want: Waits{
				Wakes: 1, Found: By[int]{BE: 1}, Late: By[int]{Other: 1}, Waited: times{BE: 10 * µs, Other: 60 * µs},
				CPU: times{BE: 110 * µs, Other: 60 * µs, Own: 30 * µs}, OtherWakes: 1,
			},
		},
		"its own kind, on the CPU to which it was sent and not on that where it ran": {
			trace: `
				0   cpu0 ->l1
				0   cpu1 ->b
				100 wake0 l2
				180 cpu1 b>l2
				200 cpu1 l2>b
				200 cpu0 l1>-`,
			want: Waits{
				Wakes: 1, Found: By[int]{Own: 1}, Late: By[int]{Own: 1}, Waited: times{Own: 80 * µs},
				CPU: times{BE: 180 * µs, Own: 220 * µs},
			},
		},
		"a preempted thread waits, a thread that sleeps does not": {
			trace: `
				0   cpu0 ->l
				50  cpu0 l>b
				80  cpu0 b>l
				100 cpu0 l>b
				150 wake0 l
				152 cpu0 b>l
				200 cpu0 l>b`,
			want: Waits{
				Wakes: 1, Found: By[int]{BE: 1}, Preempted: 1, Waited: times{BE: 32 * µs}, CPU: times{BE: 82 * µs, Own: 118 * µs},
			},
		},
		"a second wake-up changes nothing": {
			trace: `
				0   cpu0 ->b
				100 wake0 l
				102 wake0 l
				105 cpu0 b>l
				110 wake0 l
				200 cpu0 l>b`,
			want: Waits{Wakes: 1, Found: By[int]{BE: 1}, Waited: times{BE: 5 * µs}, CPU: times{BE: 105 * µs, Own: 95 * µs}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.To = 200 * µs
			rules := Rules{Cores: oneCore, ClassOf: classByName, To: 200 * µs, Late: 50 * µs}
			got, err := JudgeWaits(script(t, c.trace), rules)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("error %v, (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestWaitsOutsideTheBoundsDoNotCount(t *testing.T) {
	trace := `
		0   cpu0 ->b
		90  wake0 l
		110 cpu0 b>l
		120 cpu0 l>b
		290 wake0 l
		310 cpu0 b>l`
	got, err := JudgeWaits(script(t, trace), Rules{Cores: oneCore, ClassOf: classByName, From: 100 * µs, To: 300 * µs})
	want := Waits{From: 100 * µs, To: 300 * µs, CPU: By[time.Duration]{BE: 190 * µs, Own: 10 * µs}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
	for name, c := range map[string]struct {
		trace string
		rules Rules
	}{
		"no events":      {rules: Rules{Cores: oneCore, To: µs}},
		"no time":        {trace: trace, rules: Rules{Cores: oneCore}},
		"no judged CPUs": {trace: trace, rules: Rules{To: 300 * µs}},
	} {
		t.Run(name, func(t *testing.T) {
			c.rules.ClassOf = classByName
			var events []Event
			if c.trace != "" {
				events = script(t, c.trace)
			}
			if got, err := JudgeWaits(events, c.rules); !errors.Is(err, ErrVoid) {
				t.Errorf("judged as %+v, error %v; want ErrVoid", got, err)
			}
		})
	}
}
