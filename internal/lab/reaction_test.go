package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/site"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const ms = time.Millisecond

func TestStepsComeAfterPausesOfTheirRange(t *testing.T) {
	all := stepSchedule(7, 200, time.Second, 300*ms, 400*ms, time.Second)
	if diff := cmp.Diff(all, stepSchedule(7, 200, time.Second, 300*ms, 400*ms, time.Second)); diff != "" {
		t.Errorf("the same seed gives other steps:\n%s", diff)
	}
	if all[0].At == stepSchedule(8, 1, time.Second, 300*ms, 400*ms, time.Second)[0].At {
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
	if fixed := stepSchedule(1, 2, 0, ms, 5*ms, 5*ms); fixed[0].At != 5*ms || fixed[1].At != 11*ms {
		t.Errorf("pauses of equal length: %v", fixed)
	}
}

func TestEveryModeMakesItsStepsOverTheBlocks(t *testing.T) {
	for _, c := range []ReactionConfig{{Steps: 500, Contrast: 83, Blocks: 5}, {Steps: 7, Contrast: 3, Blocks: 3}, {Steps: 1, Contrast: 1, Blocks: 1}} {
		for _, m := range ReactionModes {
			sum := 0
			for block := 1; block <= c.Blocks; block++ {
				n := c.inBlock(m, block)
				if n == 0 {
					t.Errorf("%+v: no step of %s in block %d", c, m, block)
				}
				sum += n
			}
			if sum != c.steps(m) {
				t.Errorf("%+v: %d steps of %s, want %d", c, sum, m, c.steps(m))
			}
		}
	}
}

func TestFaultsOfTheReactionExperimentAreToldAtOnce(t *testing.T) {
	_, err := ReactionConfig{Steps: -1, Step: ms, LeastPause: time.Second, MostPause: ms, Objective: -1}.orDefaults()
	for _, want := range []string{"--steps -1", "--step 1ms", "--least-pause 1s", "--objective -1ns", "no tenond"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	c, err := ReactionConfig{Setting: site.Setting{Agent: "/bin/sh"}}.orDefaults()
	if err != nil || c.Steps != 500 || c.Contrast != 50 || c.Blocks != 5 {
		t.Errorf("%+v, %v", c, err)
	}
	if few, _ := (ReactionConfig{Setting: site.Setting{Agent: "/bin/sh"}, Steps: 3}).orDefaults(); few.Blocks != 1 {
		t.Errorf("three steps, one of each other mode, in %d blocks", few.Blocks)
	}
}

// TestTicksAreJoinedToTheirStep checks that the record of a step has exactly
// the ticks and events of that step.
func TestTicksAreJoinedToTheirStep(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	quota := func(mcpu unit.MilliCPU) node.CPUMax { return node.Limit(mcpu) }
	write := func(p node.CgroupPath, from, to node.Value, err error) tick.Outcome {
		return tick.Outcome{Step: plan.Step{Knob: node.Knob{Cgroup: p, File: node.FileCPUMax}, From: from, To: to}, Err: err}
	}
	turn := func(from, took time.Duration, events []tick.Event, done ...tick.Outcome) reply {
		return replyOf(tick.Tick{Begun: at(from), Sense: took, Events: events, Done: done})
	}
	delay := func(d time.Duration) []tick.Event {
		return []tick.Event{{At: at(d + ms), Kind: tick.EventCgroups}, {At: at(d), Kind: tick.EventDelay, Text: "3 waits"}}
	}
	turns := []reply{
		turn(-3*time.Second, ms, nil, write("batch", quota(300), quota(400), nil)),
		turn(-2*time.Second, ms, nil, write("batch", quota(400), quota(450), nil), write("other", quota(9), quota(8), nil)),
		turn(10*ms, 2*ms, delay(8*ms), write("batch", quota(450), quota(500), nil)),
		turn(40*ms, 3*ms, delay(39*ms), write("batch", quota(500), quota(20), nil), write("x", nil, nil, errors.New("gone"))),
		turn(295*ms, 10*ms, delay(294*ms), write("batch", quota(20), quota(10), nil)), // ends after the step
	}
	c := stepLatencies{Began: began, Due: []time.Duration{2 * ms, 0, ms}, Delays: []time.Duration{-5, 7 * ms, 8 * ms}, Undone: 4}
	got := stepOf(c, turns, "batch", 300*ms)
	d := func(v time.Duration) *time.Duration { return &v }
	want := reaction.Step{
		Began: began, Length: 300 * ms, Quota: 450,
		Events: []reaction.StepEvent{{At: 8 * ms, Kind: "delay", Text: "3 waits"}, {At: 39 * ms, Kind: "delay", Text: "3 waits"}, {At: 294 * ms, Kind: "delay", Text: "3 waits"}},
		Ticks: []reaction.StepTick{
			{Began: 10 * ms, Ended: 12 * ms, Woken: d(8 * ms), Writes: 1},
			{Began: 40 * ms, Ended: 43 * ms, Woken: d(39 * ms), Writes: 1, Failed: 1, Narrowed: true},
		},
		Due: []int64{0, 1000, 2000}, Delays: []int64{7000, 8000, 0}, Undone: 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
	p := stepPlan{CPUs: cpus, Period: 2 * ms, Work: 200 * time.Microsecond, Steps: []stepAt{{5 * ms, 10 * ms}, {25 * ms, 6 * ms}}}
	order, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	begun := time.Now()
	if err := runSteps(t.Context(), bytes.NewReader(order), &out); err != nil {
		t.Fatal(err)
	}
	courses, err := parseSteps(out.Bytes(), 2)
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
	if err := runSteps(t.Context(), bytes.NewReader(order), &out); err == nil {
		t.Error("work that fills its period is accepted")
	}
	if _, err := parseSteps(nil, 1); err == nil {
		t.Error("a missing step is accepted")
	}
}
