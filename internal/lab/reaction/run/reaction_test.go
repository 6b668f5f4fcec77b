package run

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/stepservice"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const ms = time.Millisecond

func TestEveryModeMakesItsStepsOverTheBlocks(t *testing.T) {
	for _, c := range []Config{{Steps: 500, Contrast: 83, Setting: testbed.Setting{Blocks: 5}}, {Steps: 7, Contrast: 3, Setting: testbed.Setting{Blocks: 3}}, {Steps: 1, Contrast: 1, Setting: testbed.Setting{Blocks: 1}}} {
		for _, m := range Modes {
			sum := 0
			for block := 1; block <= c.Blocks; block++ {
				n := c.stepsInBlock(m, block)
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
	_, err := Config{Steps: -1, Step: ms, LeastPause: time.Second, MostPause: ms, Objective: -1, Setting: testbed.Setting{StealPercent: math.NaN()}}.orDefaults()
	for _, want := range []string{"--steps -1", "--step 1ms", "--min-pause 1s", "--objective -1ns", "--max-steal NaN", "no tenond"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	c, err := Config{Setting: testbed.Setting{Agent: "/bin/sh"}}.orDefaults()
	if err != nil || c.Steps != 500 || c.Contrast != 50 || c.Blocks != 12 {
		t.Errorf("%+v, %v", c, err)
	}
	if few, _ := (Config{Setting: testbed.Setting{Agent: "/bin/sh"}, Steps: 3}).orDefaults(); few.Blocks != 1 {
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
	c := stepservice.Latencies{Began: began, Due: []time.Duration{2 * ms, 0, ms}, Delays: []time.Duration{-5, 7 * ms, 8 * ms}, Undone: 4}
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

func TestDefaultsSufficeForAVerdict(t *testing.T) {
	c, err := Config{Setting: testbed.Setting{Agent: "/bin/sh"}}.orDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c.Modes = Modes
	labtest.Suffices(t, "reaction", c.Blocks, c.estimate())
}

func TestTenondUnderstandsWhatTheLabTellsIt(t *testing.T) {
	b := &environment{
		Config: Config{Setting: testbed.Setting{Root: "lab"}, Objective: time.Millisecond},
		Site:   &testbed.Site{Place: testbed.Placement{Tested: unit.CPUSetOf(0)}},
	}
	for _, m := range Modes {
		labtest.Understands(t, string(m), b.tenondConfig(m))
	}
}
