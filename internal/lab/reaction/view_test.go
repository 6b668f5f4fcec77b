package reaction

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

const ms = time.Millisecond

// cycles returns the cycles of a step. Before the time raised, every cycle is
// late.
func cycles(length, raised time.Duration) (due, delays []int64) {
	for at := time.Duration(0); at < length; at += 2 * ms {
		due = append(due, at.Microseconds())
		delay := int64(20)
		if at < raised {
			delay = 3000
		}
		delays = append(delays, delay)
	}
	return due, delays
}

// inventExperiment invents an experiment. None of its values was measured.
func inventExperiment(steps int) (Experiment, []Step) {
	e := Experiment{
		Header: report.Header{
			Schema: report.Schema, Kind: Kind, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: "synthetic",
			Command: []string{"tenon", "lab", "reaction"}, Modes: []report.Mode{report.Events, report.Ticks, report.IdleBE}, Blocks: 6, Seed: 1,
			TestedCPUs: unit.CPUSetOf(0), ClientCPUs: unit.CPUSetOf(1),
			Machine: report.Machine{Kernel: "6.18.0-synthetic", OS: "Synthetic Linux 1", CPUModel: "Invented CPU <1>", CPUs: 2, CgroupVersion: 1, MemoryBytes: 8 << 30},
			Tenond:  map[report.Mode]string{report.Events: "tenond --config tenon.yaml\n\nkind: NodeConfig"},
			Ended:   report.EndPlanned,
			Caveats: []string{"These data are synthetic: invented for a test, measured nowhere."},
		},
		Steps: map[report.Mode]int{report.Events: steps, report.Ticks: steps, report.IdleBE: steps}, Lengths: map[report.Mode]time.Duration{report.Events: 300 * ms, report.Ticks: 1300 * ms, report.IdleBE: 300 * ms},
		LeastPause: 400 * ms, MostPause: time.Second,
		CyclePeriod: 2 * ms, CycleWork: 1200 * time.Microsecond, Threshold: 32, Objective: ms,
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var all []Step
	for i := range steps {
		for _, m := range e.Modes {
			s := Step{Index: len(all) + 1, Block: 1 + i%6, Mode: m, Began: e.Started.Add(time.Duration(len(all)) * time.Second), Length: e.Lengths[m], Quota: 180}
			event := 6*ms + time.Duration(rng.Int64N(int64(8*ms)))
			took := 2*ms + time.Duration(rng.ExpFloat64()*float64(ms))
			raised := event + took
			switch m {
			case report.Ticks:
				raised = time.Duration(rng.Int64N(int64(time.Second)))
				s.Ticks = []StepTick{{Began: raised - took, Ended: raised, Writes: 1, Narrowed: true}}
			case report.IdleBE:
				raised = 0
			default:
				s.Events = []StepEvent{{At: event, Kind: "delay", Text: "3 waits"}}
				s.Ticks = []StepTick{{Began: event + ms, Ended: event + took, Woken: &event, Writes: 1, Narrowed: true}}
			}
			s.Due, s.Delays = cycles(s.Length, raised)
			all = append(all, s)
		}
	}
	return e, all
}

func TestReactionTableReadsAsTheGoldenFiles(t *testing.T) {
	for name, steps := range map[string]int{"reaction": 500, "reaction-short": 12, "reaction-empty": 0} {
		e, all := inventExperiment(steps)
		var b bytes.Buffer
		if err := Analyse(e, all).Page().WriteText(&b); err != nil {
			t.Fatal(err)
		}
		synthetic.CheckGolden(t, name+".table.txt", b.Bytes())
		for l := range strings.Lines(b.String()) {
			if n := textlayout.Columns(strings.TrimSuffix(l, "\n")); n > textlayout.Width {
				t.Errorf("%s: line of %d characters, want at most %d:\n%s", name, n, textlayout.Width, l)
			}
		}
	}
}

func TestHistogramIsDrawnTheSameEachTime(t *testing.T) {
	values := make([]float64, 100)
	for i := range values {
		values[i] = 0.1 * float64(i+1)
	}
	first := drawHistogram(report.Events, values)
	for range 20 {
		if again := drawHistogram(report.Events, values); again != first {
			t.Fatalf("the same values gave another picture:\n%s\nand\n%s", first, again)
		}
	}
}

func TestRaisedEndsWithTheFirstCalm(t *testing.T) {
	stray := func(at time.Duration, due, delays []int64) ([]int64, []int64) {
		delays[at/(2*ms)] = 4000
		return due, delays
	}
	for name, c := range map[string]struct {
		raised time.Duration
		change func(due, delays []int64) ([]int64, []int64)
		undone int
		want   time.Duration
	}{
		"never late":              {0, nil, 0, 0},
		"late at the beginning":   {50 * ms, nil, 0, 51 * ms}, // the cycle due at 48 ms ends 3 ms late
		"late all the time":       {300 * ms, nil, 0, 300 * ms},
		"a stray after a calm":    {20 * ms, func(d, l []int64) ([]int64, []int64) { return stray(250*ms, d, l) }, 0, 21 * ms},
		"a gap shorter than calm": {20 * ms, func(d, l []int64) ([]int64, []int64) { return stray(80*ms, d, l) }, 0, 84 * ms},
		"never done":              {10 * ms, func(d, l []int64) ([]int64, []int64) { return d[:6], l[:6] }, 144, 300 * ms},
	} {
		due, delays := cycles(300*ms, c.raised)
		if c.change != nil {
			due, delays = c.change(due, delays)
		}
		s := Step{Length: 300 * ms, Due: due, Delays: delays, Undone: c.undone}
		if got := s.raisedTime(); got != c.want {
			t.Errorf("%s: raised for %v, want %v", name, got, c.want)
		}
	}
}

func TestOnlyATickThatAnEventOfTheStepWokeIsAnAnswer(t *testing.T) {
	at := func(d time.Duration) *time.Duration { return &d }
	s := Step{Ticks: []StepTick{
		{Ended: 5 * ms, Woken: at(-2 * ms), Writes: 1},  // an event from before the step
		{Ended: 10 * ms, Writes: 1, Narrowed: true},     // an event from before the step
		{Ended: 20 * ms, Woken: at(15 * ms)},            // a periodic tick
		{Ended: 40 * ms, Woken: at(30 * ms), Writes: 2}, // the answer
		{Ended: 90 * ms, Woken: at(50 * ms), Writes: 1},
	}}
	if got, ok := s.answer(); !ok || got.Ended != 40*ms {
		t.Errorf("answer %+v, %v", got, ok)
	}
	if got := s.narrowedAfter(); got != 10 {
		t.Errorf("narrowed after %v ms, want 10", got)
	}
	s.Length, s.Events = 300*ms, []StepEvent{{At: 12 * ms}}
	if got, ok := s.yieldTime(); !ok || !math.IsInf(got, 1) {
		t.Errorf("a step that was narrowed only before its event: yielded returns %v, %v", got, ok)
	}
	s.Ticks[4].Narrowed = true
	if got, ok := s.yieldTime(); !ok || got != 78 {
		t.Errorf("narrowed %v ms after the event, want 78", got)
	}
	s.Events[0].At = 250 * ms
	if _, ok := s.yieldTime(); ok {
		t.Error("an event at the end of the step is counted")
	}
}

func TestVoidStepsAreNotUsed(t *testing.T) {
	e, all := inventExperiment(60)
	for i := range all {
		if i%3 == 0 {
			all[i].Void = []string{"steal"}
		}
	}
	r := Analyse(e, all)
	if f := r.Modes[report.Events]; f.Steps != 0 || f.Void != 60 || f.EventToWrite.Steps != 0 {
		t.Errorf("%+v", f)
	}
	if len(r.Claims) == 0 || r.Claims[0].Verdict != stat.Undecided {
		t.Errorf("claims %+v", r.Claims)
	}
}

func TestReactionSurvivesTheDiskAndATornLine(t *testing.T) {
	e, all := inventExperiment(4)
	dir := t.TempDir()
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(all); i += 6 {
		if err := AddSteps(dir, all[i:i+6]); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, stepsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, `{"index":13,"mo`...), 0o644); err != nil {
		t.Fatal(err)
	}
	_, steps, err := Load(dir)
	if err != nil || len(steps) != 12 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	if !reflect.DeepEqual(steps, all) {
		t.Error("the steps differ from those that were saved")
	}
	if _, err := report.Build(dir, Open); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("{\"length_ns\":1,\"mode\":\"tick\",\"due_us\":[1]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a step with a cycle without a delay gives error %v", err)
	}
}

func TestReactionPageNeedsNothingElse(t *testing.T) {
	for _, steps := range []int{0, 12, 200} {
		e, all := inventExperiment(steps)
		var b bytes.Buffer
		if err := Analyse(e, all).Page().WriteHTML(&b); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if found := regexp.MustCompile(`(?i)(src|href|action|data|xlink:href)\s*=|url\(|@import|<(script|link|iframe|object|embed|img)\b|https?://`).FindString(page); found != "" {
			t.Errorf("%d steps: the page contains %q", steps, found)
		}
		if strings.Contains(page, "NaN") || !strings.HasSuffix(strings.TrimSpace(page), "</html>") || strings.Contains(page, "<1>") {
			t.Errorf("%d steps: the page is cut short, shows NaN or does not escape", steps)
		}
		if steps > 0 && (!strings.Contains(page, "Histogram of the time") || !strings.Contains(page, "Mean delay of cycles")) {
			t.Errorf("%d steps: pictures are missing", steps)
		}
	}
}

// TestEveryKeyOfTheReactionIsDocumented checks that docs/lab.md names every
// key.
func TestEveryKeyOfTheReactionIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{Result{}, Figure{}, Spread{}, Step{}, StepEvent{}, StepTick{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(page), "`"+key+"`") {
				t.Errorf("docs/lab.md does not name the key %s of %s", key, typ.Name())
			}
		}
	}
}
