package stepservice

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
)

const ms = time.Millisecond

func TestStepsComeAfterPausesOfTheirRange(t *testing.T) {
	all := Schedule(7, 200, time.Second, 300*ms, 400*ms, time.Second)
	if diff := cmp.Diff(all, Schedule(7, 200, time.Second, 300*ms, 400*ms, time.Second)); diff != "" {
		t.Errorf("the same seed gives other steps:\n%s", diff)
	}
	if all[0].At == Schedule(8, 1, time.Second, 300*ms, 400*ms, time.Second)[0].At {
		t.Error("another seed gives the same first step")
	}
	end, short, long := time.Second, 0, 0
	for i, s := range all {
		pause := s.At - end
		if pause < 400*ms || pause > time.Second || s.Length != 300*ms {
			t.Errorf("step %d comes %v after the last and lasts %v", i, pause, s.Length)
		}
		if pause < 550*ms {
			short++
		}
		if pause > 850*ms {
			long++
		}
		end = s.At + s.Length
	}
	if short < 25 || long < 25 {
		t.Errorf("%d short and %d long pauses of 200: not at random", short, long)
	}
	if fixed := Schedule(1, 2, 0, ms, 5*ms, 5*ms); fixed[0].At != 5*ms || fixed[1].At != 11*ms {
		t.Errorf("pauses of equal length: %v", fixed)
	}
}

func TestServiceMakesEveryCycleOfEveryStep(t *testing.T) {
	allowed, err := task.Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	var cpus unit.CPUSet
	for c := range allowed.All() {
		cpus = unit.CPUSetOf(c)
		break
	}
	p := Plan{CPUs: cpus, Period: 2 * ms, Work: 200 * time.Microsecond, Steps: []At{{5 * ms, 10 * ms}, {25 * ms, 6 * ms}}}
	order, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	begun := time.Now()
	if err := Run(t.Context(), bytes.NewReader(order), &out); err != nil {
		t.Fatal(err)
	}
	courses, err := Parse(out.Bytes(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{5, 3} {
		c := courses[i]
		if len(c.Delays)+c.Undone != want || len(c.Due) != len(c.Delays) {
			t.Errorf("step %d: %d cycles done, %d cycles not begun, want a sum of %d", i, len(c.Delays), c.Undone, want)
		}
		if after := c.Began.Sub(begun); after < p.Steps[i].At {
			t.Errorf("step %d began after %v, want %v or more", i, after, p.Steps[i].At)
		}
		for k, d := range c.Delays {
			if d < -p.Work/2 {
				t.Errorf("step %d: cycle %d ended %v before its work could have ended", i, k, -d)
			}
		}
	}
	p.Work = p.Period
	order, _ = json.Marshal(p)
	if err := Run(t.Context(), bytes.NewReader(order), &out); err == nil {
		t.Error("work that fills its period is accepted")
	}
	if _, err := Parse(nil, 1); err == nil {
		t.Error("a missing step is accepted")
	}
}
