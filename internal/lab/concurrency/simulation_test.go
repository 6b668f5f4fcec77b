package concurrency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/capacity"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A world is a simulated machine with a kind of job. Its true effects are known.
type world struct {
	node Node
	// cpu is the time, in seconds, of one job alone on one CPU. A busy sibling
	// reduces the rate by the share sibling, and busy cores by the share clock.
	// serial is the part of a job that is not parallel.
	cpu, sibling, clock, serial float64
	block, noise                float64 // standard deviations of log times, of a block and of a run
	rng                         *rand.Rand
}

// drawWorld draws machines like those of the lab and of the published clusters.
func drawWorld(rng *rand.Rand) world {
	nodes := []Node{{2, 2}, {4, 2}, {4, 4}, {8, 4}, {8, 8}, {16, 8}}
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	return world{
		node: nodes[rng.IntN(len(nodes))], cpu: between(1, 200), sibling: between(0.2, 0.45), clock: between(0, 0.3), serial: between(0, 0.05),
		block: between(0.01, 0.1), noise: between(0.005, 0.02), rng: rng,
	}
}

// seconds returns the true mean time of a job, on the machine of the world or
// on another one. This code follows the description of the model, and does not
// call the code of the model.
func (w world) seconds(c jobs.Cell, on Node) float64 {
	n, all, cores := float64(c.Concurrency), float64(on.CPUs), float64(on.Cores)
	cpus := all / n
	if c.CPU > 0 {
		cpus = math.Min(cpus, c.CPU.Cores())
	}
	running := all // threads of all jobs, on all CPUs at once
	if c.Strategy == "pinned" {
		running = cpus * n
	}
	beside := 0.0
	if running > cores {
		beside = 2 * (running - cores) / running
	}
	used := math.Min(running, cores) / cores * (cpus * n / running)
	rate := (1 - w.sibling*beside) * (1 - w.clock*used)
	return w.cpu / rate * (1 + w.serial*math.Max(0, cpus-1)) / cpus
}

func (w world) hourly(c jobs.Cell, on Node) float64 {
	return 3600 * float64(c.Concurrency) / w.seconds(c, on)
}

// cells returns the cells of the preset quick, for the size of the machine.
func (w world) cells() []jobs.Cell {
	var all []jobs.Cell
	add := func(how string, limit unit.MilliCPU) {
		for _, n := range []int{1, 2, 4} {
			if limit*unit.MilliCPU(n) <= unit.CPUs(w.node.CPUs) {
				all = append(all, jobs.Cell{Type: how, Strategy: how, Concurrency: n, CPU: limit})
			}
		}
	}
	one := unit.CPUs(w.node.CPUs) / 4
	for _, limit := range []unit.MilliCPU{one / 2, one, 2 * one, 4 * one} {
		add("quota", limit)
	}
	add("pinned", one)
	add("pinned", 2*one)
	add("unbounded", 0)
	return append(all, jobs.Cell{Type: Control, Strategy: Control, Concurrency: 1})
}

// measure runs the experiment. Each cell runs once in each block.
func (w world) measure(blocks int) Result {
	at := time.Unix(1e9, 0).UTC()
	var all []jobs.Job
	run := 0
	for block := 1; block <= blocks; block++ {
		drift := w.block * w.rng.NormFloat64()
		for _, c := range w.cells() {
			run++
			s := w.seconds(c, w.node) * math.Exp(drift+w.noise*w.rng.NormFloat64())
			for i := range c.Concurrency {
				all = append(all, jobs.Job{
					Host: "n", Type: c.Type, Concurrency: c.Concurrency, CPU: c.CPU, Index: i, In: at, Out: at.Add(time.Duration(s * float64(time.Second))), Precision: time.Nanosecond,
					Extra: jobs.Extra{Strategy: c.Strategy, Block: block, Run: run, LocalJobs: node.Some(float64(c.Concurrency)), CPUSeconds: node.Some(s)},
				})
			}
			at = at.Add(time.Hour)
		}
	}
	return Analyse(Experiment{Node: w.node, Header: report.Header{Blocks: blocks}}, all)
}

// scores count the simulated experiments in which each promise was kept.
type scores struct {
	experiments                    int
	covered, predictions           int // intervals of predictions that contain the truth, and all such intervals
	parameters, determined         int // intervals of parameters that contain the truth, and all such intervals
	best, bestElsewhere, elsewhere int // advice within the A/A half-width of the true optimum
	refused, beyond                int // predictions that were refused, among those beyond the bounds
	unfit                          int // experiments for which there was no model
}

func simulateCapacity(experiments int) scores {
	rng := rand.New(rand.NewPCG(3, 4))
	var sc scores
	for range experiments {
		w := drawWorld(rng)
		r := w.measure(4)
		sc.experiments++
		sc.advice(w, r)
		m, err := r.capacity()
		if err != nil {
			sc.unfit++
			continue
		}
		sc.predict(w, m)
		sc.refuse(w, m)
		sc.forecast(w, r)
	}
	return sc
}

// advice compares the advised way to run jobs with the measured way that is best
// by the true times.
func (sc *scores) advice(w world, r Result) {
	best, _, err := r.Best(jobs.Goal{})
	if err != nil {
		return
	}
	top := 0.0
	for _, c := range w.cells() {
		top = max(top, w.hourly(c, w.node))
	}
	if w.hourly(best.Cell, w.node)*(1+float64(r.ControlHalf)) >= top {
		sc.best++
	}
}

// predict checks the intervals of the parameters, and the intervals of
// predictions for a machine of another size within the bounds.
func (sc *scores) predict(w world, m *capacity.Model) {
	on := Node{2 * w.node.CPUs, 2 * w.node.Cores}
	for _, c := range w.cells() {
		cell, known := cellOf(c)
		if !known {
			continue
		}
		e, err := m.Predict(capacity.Machine(on), cell)
		if err != nil {
			continue
		}
		sc.predictions++
		truth := w.seconds(c, on)
		if e.Low <= truth && truth <= e.High {
			sc.covered++
		}
	}
	for _, p := range m.Parameters() {
		truth, known := map[string]float64{"CPU-s of a job alone": w.cpu, "taken by a busy sibling": w.sibling, "taken by busy cores": w.clock, "serial part": w.serial, "coherence": 0}[p.Name]
		if known {
			sc.determined++
			if p.Value.Low <= truth && truth <= p.Value.High {
				sc.parameters++
			}
		}
	}
}

// refuse asks the model for cells that are beyond the bounds.
func (sc *scores) refuse(w world, m *capacity.Model) {
	n := w.node
	for _, c := range []struct {
		on Node
		of capacity.Cell
	}{
		{Node{5 * n.CPUs, 5 * n.Cores}, capacity.Cell{Jobs: 1, Limit: float64(n.CPUs) / 4}},
		{Node{4 * n.CPUs, 4 * n.Cores}, capacity.Cell{Jobs: 1}},
		{Node{4 * n.CPUs, 4 * n.Cores}, capacity.Cell{Jobs: 9, Limit: float64(n.CPUs) / 8}},
		{Node{4 * n.CPUs, 4 * n.Cores}, capacity.Cell{Jobs: 4, Limit: float64(n.CPUs) * 0.6}},
		{n, capacity.Cell{Jobs: 1, Limit: float64(n.CPUs) / 40}},
	} {
		sc.beyond++
		if _, err := m.Predict(capacity.Machine(c.on), c.of); errors.Is(err, capacity.ErrBeyond) {
			sc.refused++
		}
	}
}

// forecast asks for advice for a machine of twice the size. It compares the
// advised way with the best way by the true times.
func (sc *scores) forecast(w world, r Result) {
	on := Node{2 * w.node.CPUs, 2 * w.node.Cores}
	f, err := r.Forecast(on, jobs.Goal{}, 0)
	if err != nil {
		return
	}
	m, _ := r.capacity()
	all, _, _ := r.predict(m, on)
	top := 0.0
	for _, o := range all {
		top = max(top, w.hourly(o.Cell, on))
	}
	sc.elsewhere++
	how, _, _ := strings.Cut(f.How, ",")
	got := w.hourly(jobs.Cell{Strategy: how, Concurrency: f.Jobs, CPU: f.Limit}, on)
	if got*(1+float64(r.ControlHalf)) >= top {
		sc.bestElsewhere++
	}
}

// A promise is a row of the table in docs/lab-statistics.md.
type promise struct {
	what     string
	kept, of int
	least    float64 // per cent
}

func (sc scores) promises() []promise {
	return []promise{
		{what: "the interval of a prediction for a machine of twice the size contains the true time", kept: sc.covered, of: sc.predictions, least: 93},
		{what: "the interval of a parameter of the model contains the true one", kept: sc.parameters, of: sc.determined, least: 93},
		{what: "the advice of the measured ways is the best of them, or within the A/A half-width of it", kept: sc.best, of: sc.experiments, least: 95},
		{what: "the advice for a machine of twice the size is the best that can be predicted, or within the A/A half-width of it", kept: sc.bestElsewhere, of: sc.elsewhere, least: 95},
		{what: "a prediction beyond the bounds is refused", kept: sc.refused, of: sc.beyond, least: 100},
		{what: "the model describes jobs that follow it, so that it predicts", kept: sc.experiments - sc.unfit, of: sc.experiments, least: 99},
	}
}

// TestCapacityModelsKeepTheirPromises simulates experiments of four blocks. The
// true effects of the machines and jobs are known. TENON_TEST_LONG=1 runs 1,000
// experiments. With -update, it then writes the table in
// docs/lab-statistics.md.
func TestCapacityModelsKeepTheirPromises(t *testing.T) {
	experiments, long := 50, os.Getenv("TENON_TEST_LONG") != ""
	if long {
		experiments = 1000
	}
	var table strings.Builder
	for _, p := range simulateCapacity(experiments).promises() {
		if p.of == 0 {
			t.Errorf("%s: never tried", p.what)
			continue
		}
		// With few experiments, a share may differ by up to three standard
		// deviations by chance.
		share, slack := 100*float64(p.kept)/float64(p.of), 0.0
		if !long && p.least < 100 {
			slack = 300 * math.Sqrt(p.least/100*(1-p.least/100)/float64(experiments))
		}
		if share < p.least-slack {
			t.Errorf("%s: in %.1f %% of %d cases, want at least %.0f %%", p.what, share, p.of, p.least)
		}
		fmt.Fprintf(&table, "| %s | %d | %.1f | %.0f |\n", p.what, p.of, share, p.least)
	}
	if long {
		synthetic.CheckTable(t, filepath.Join("..", "..", "..", "docs", "lab-statistics.md"), "capacity", table.String())
	}
}

// TestAdviceComparesWithinBlocks makes the machine slower in one block. All
// cells are slower in this block, so the block must not change the advice.
func TestAdviceComparesWithinBlocks(t *testing.T) {
	w := world{node: Node{4, 4}, cpu: 10, clock: 0.1, noise: 1e-4, block: 0.5, rng: rand.New(rand.NewPCG(1, 1))}
	r := w.measure(4)
	best, ties, err := r.Best(jobs.Goal{})
	if err != nil {
		t.Fatal(err)
	}
	top := w.hourly(best.Cell, w.node)
	for _, c := range w.cells() {
		if got := w.hourly(c, w.node); got > top*1.001 {
			t.Errorf("%s is advised, and %s does %.3f times as much", describe(best.Cell), describe(c), got/top)
		}
	}
	for _, o := range ties {
		if w.hourly(o.Cell, w.node) < top*0.99 {
			t.Errorf("%s counts as equal to %s", describe(o.Cell), describe(best.Cell))
		}
	}
}

// TestAForecastContainsItsErrorAndParameters checks that a forecast contains
// the error of the model, the parameters of the model, and what the model
// refuses. It checks the text, the JSON and the patch.
func TestAForecastContainsItsErrorAndParameters(t *testing.T) {
	w := world{node: Node{8, 4}, cpu: 20, sibling: 0.3, clock: 0.1, serial: 0.01, noise: 0.01, block: 0.05, rng: rand.New(rand.NewPCG(1, 1))}
	r := w.measure(4)
	f, err := r.Forecast(Node{32, 16}, jobs.Goal{Deadline: time.Minute}, 0.8)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Predicted for a machine of 32 CPUs and 16 cores", "The best of the ways that can be predicted, by jobs an hour, each within 1m: ", "when it knows only the others",
		"CPU time of a job alone: 1", " CPU-s (", "speed that a CPU loses to a busy sibling: ", " % (",
		"Not predicted: unbounded, 1 job, no limit; unbounded, 2 jobs, no limit: the jobs would use 32 CPUs, more than twice the 8", "A job costs ",
	} {
		if !strings.Contains(f.Text(), want) {
			t.Errorf("%q is missing from\n%s", want, f.Text())
		}
	}
	data, err := json.Marshal(f)
	if bytes.Contains(data, []byte(`_bound":0`)) || bytes.Contains(data, []byte(`"median":0`)) || !bytes.Contains(data, []byte(`"median":null`)) {
		t.Errorf("bounds that are not known are given as 0: %s", data)
	}
	if strings.Contains(f.Goal, "most jobs") {
		t.Errorf("the goal %q, although ways are not predicted", f.Goal)
	}
	if err != nil || !bytes.Contains(data, []byte(`"held_out_error"`)) || !bytes.Contains(data, []byte(`"jobs_per_hour"`)) {
		t.Errorf("%s, %v", data, err)
	}
	want := "predict for a machine of 64 CPUs and 32 cores: not predicted: 32 cores are more than 4 times the 4 that were measured (at most 16)"
	if _, err := r.Forecast(Node{64, 32}, jobs.Goal{}, 0); !errors.Is(err, capacity.ErrBeyond) || err.Error() != want {
		t.Errorf("a far larger machine: %v", err)
	}
	if _, err := r.Forecast(Node{16, 8}, jobs.Goal{Deadline: time.Millisecond}, 0); !errors.Is(err, jobs.ErrNoOption) {
		t.Errorf("a deadline that nothing reaches: %v", err)
	}
	r.Experiment.Node = Node{}
	if _, err := r.Forecast(Node{16, 8}, jobs.Goal{}, 0); err == nil || !strings.Contains(err.Error(), "size of the measured machine is not known") {
		t.Errorf("a machine of unknown size: %v", err)
	}
	if _, err := Analyse(Experiment{}, nil).Forecast(Node{2, 2}, jobs.Goal{}, 0); err == nil || !strings.Contains(err.Error(), "no job ran in a way that the model knows") || !strings.Contains(err.Error(), "import --strategy") {
		t.Errorf("no jobs: %v", err)
	}
}

// TestStrategiesWithoutAModelAreNamed also runs jobs under Tenon. The model
// cannot predict these jobs, and they may be better.
func TestStrategiesWithoutAModelAreNamed(t *testing.T) {
	w := world{node: Node{8, 4}, cpu: 20, sibling: 0.3, clock: 0.1, noise: 0.01, block: 0.05, rng: rand.New(rand.NewPCG(1, 1))}
	r := w.measure(4)
	o := r.measured[0]
	o.Cell.Type, o.Cell.Strategy = "tenon", "tenon"
	r.measured = append(r.measured, o)
	f, err := r.Forecast(w.node, jobs.Goal{Shortest: true}, 0)
	if err != nil || !strings.Contains(f.Text(), "Not predicted: tenon: the model does not know this strategy.") || !strings.HasPrefix(f.Goal, "the best of the ways that can be predicted, by the time of a job") {
		t.Errorf("%s, %v", f.Text(), err)
	}
}

func TestTimesHaveNoUnitsThatAreZero(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Hour: "2h", time.Minute: "1m", 90 * time.Second: "1m30s", 30 * time.Second: "30s", 2*time.Hour + time.Minute: "2h1m", 2*time.Hour + time.Second: "2h0m1s", 1500 * time.Millisecond: "1.5s"} {
		if got := durationText(d); got != want {
			t.Errorf("%v is printed as %s, want %s", d, got, want)
		}
	}
	if got := goalText(jobs.Goal{Jobs: 1, Within: 2 * time.Hour}, true); got != "the most jobs an hour, 1 job within 2h" {
		t.Error(got)
	}
}
