package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// A cell is one part in one mode.
type cell struct {
	part string
	mode pinning.Mode
}

func (c cell) String() string { return c.part + " " + string(c.mode) }

// A site is where the experiment runs, after its set-up: this machine, or a node
// of a cluster. The experiment is the same on both.
type site interface {
	common() *bench
	// refuse returns the reason why the site cannot run a cell, or "".
	refuse(cell) string
	// length is the expected length of a run.
	length() time.Duration
	// calibrate chooses how much work the runs have. lines are for the user.
	calibrate(ctx context.Context) (lines []string, err error)
	// describe adds the facts that only the site knows.
	describe(*pinning.Experiment)
	// measure fills a run. Nothing of its work is left when it returns.
	measure(ctx context.Context, c cell, r *pinning.Run) error
}

// A bench is the part of the experiment that both sites have.
type bench struct {
	Config
	*testbed.Site
	wrk      string // path of wrk
	cells    []cell
	refused  []string
	versions map[string]string
}

func (b *bench) common() *bench { return b }

// loop is the length of a loop on the web servers, and 0 if none runs.
func (b *bench) loop() time.Duration {
	if !slices.Contains(b.Parts, pinning.NGINX) {
		return 0
	}
	return b.Duration
}

// Run runs the experiment. When it returns, even with an error, no process, cgroup
// or object of the experiment is left. If it returns both an Outcome and an error,
// the Outcome has the runs that had ended before the error.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.OrDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	s, err := harness.Enter(ctx, c, c.Pods != nil, enterMachine, enterPods)
	if err != nil {
		return harness.Outcome{}, err
	}
	b := s.common()
	b.choose(s.refuse)
	return (&harness.Series[cell, pinning.Run]{
		Site: b.Site, Cells: b.cells, Refused: b.refused, Blocks: b.Blocks, Most: b.MaxTime, First: s.length(),
		Calibrate: func(ctx context.Context, caveats []string) (report.Headed, []string, error) {
			lines, err := s.calibrate(ctx)
			return b.experiment(s, caveats), lines, err
		},
		Run: func(ctx context.Context, c cell, index, block int) (pinning.Run, error) {
			r := pinning.Run{Index: index, Block: block, Part: c.part, Mode: c.mode, Started: time.Now()}
			err := s.measure(ctx, c, &r)
			if err != nil {
				err = fmt.Errorf("%v: %w", c, err)
			}
			return r, err
		},
		Tell: tell, Open: pinning.Open,
		Save:    func(r pinning.Run) error { return pinning.AddRun(b.Out, r) },
		Void:    func(r pinning.Run) []string { return r.Void },
		Decides: pinning.Decides,
	}).Conduct(ctx)
}

// choose takes the cells that the site can run.
func (b *bench) choose(refuse func(cell) string) {
	var all []cell
	for _, p := range b.Parts {
		for _, m := range b.Modes {
			all = append(all, cell{p, m})
		}
	}
	cells, refused := harness.Choose(all, func(c cell) (any, string) { return c, refuse(c) })
	b.cells, b.refused = cells, append(b.refused, refused...)
}

func (b *bench) experiment(s site, caveats []string) *pinning.Experiment {
	e := &pinning.Experiment{
		Header: b.Header(pinning.Kind, b.Modes, b.Blocks), Parts: b.Parts,
		Threads: b.Threads, Digits: b.Digits, Rounds: b.Rounds,
	}
	e.Versions, e.Caveats = b.versions, caveats
	s.describe(e)
	if slices.Contains(b.Parts, pinning.NGINX) {
		e.Caveats = append(e.Caveats, "the closed loop waits for answers before it asks again: its average follows from its requests per second")
	}
	return e
}

func tell(r pinning.Run) string {
	switch {
	case r.Closed != nil:
		return fmt.Sprintf("%8.0f requests/s  average %6.0f µs", r.Closed.Rate, r.Closed.Mean)
	case r.PiResult != nil && r.CPU > 0:
		return fmt.Sprintf("%6.2f s  %6.2f CPU-s", r.Seconds, r.CPU)
	case r.PiResult != nil:
		return fmt.Sprintf("%6.2f s", r.PiResult.Seconds)
	}
	return ""
}

// connections is the number of connections to all servers together, as
// published.
const connections = 100

// closedLoop sends as many requests as the servers can answer.
func (b *bench) closedLoop(ctx context.Context, c wrk.Config, cpus unit.CPUSet) (*wrk.Result, error) {
	out, err := b.Await(ctx, testbed.Child{Name: "wrk", Argv: append([]string{b.wrk}, c.Args()...), CPUs: cpus})
	if err != nil {
		return nil, err
	}
	return wrk.Parse(string(out))
}
