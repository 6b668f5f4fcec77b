package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// A measured is a measured cell: a row for each job, and the reasons why the cell is
// void.
type measured struct {
	Rows []jobs.Job
	Void []string
}

// A site is where the experiment runs, after its set-up: this machine, or nodes of
// a cluster. The experiment is the same on both.
type site interface {
	common() *bench
	// refuse returns the reason why the site cannot run a cell, or "".
	refuse(Cell) string
	// length is the expected length of a run.
	length() time.Duration
	// calibrate runs one job alone to choose how much work a job has. lines are for
	// the user.
	calibrate(ctx context.Context) (lines []string, err error)
	// describe adds the facts that only the site knows.
	describe(*concurrency.Experiment)
	// measure runs a cell once. Nothing of its work is left when it returns.
	measure(ctx context.Context, c Cell, index, block int) (measured, error)
}

// A bench is the part of the experiment that both sites have.
type bench struct {
	Config
	*testbed.Site
	whole    float64 // work of a whole job; 0: a job is one unit
	cells    []Cell
	refused  []string
	caveats  []string
	versions map[string]string
}

func (b *bench) common() *bench { return b }

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
	b.cells, b.refused = b.Config.cells(s.refuse)
	return (&harness.Series[Cell, measured]{
		Site: b.Site, Cells: b.cells, Refused: b.refused, Blocks: b.Blocks, Most: b.MaxTime, First: s.length(), InOrder: b.AsPublished,
		Calibrate: func(ctx context.Context, caveats []string) (report.Headed, []string, error) {
			b.caveats = caveats
			lines, err := s.calibrate(ctx)
			if err != nil {
				return nil, nil, err
			}
			lines = append(lines, fmt.Sprintf("%d cells in %d blocks, at most %v", len(b.cells), b.Blocks, b.MaxTime))
			return b.experiment(s), lines, nil
		},
		Run: func(ctx context.Context, cell Cell, index, block int) (measured, error) {
			r, err := s.measure(ctx, cell, index, block)
			if err != nil {
				err = fmt.Errorf("cell %v: %w", cell, err)
			}
			return r, err
		},
		Tell: tell, Open: concurrency.Open,
		Save: func(r measured) error { return concurrency.AddJobs(b.Out, r.Rows) },
		Void: func(r measured) []string { return r.Void },
	}).Conduct(ctx)
}

func (b *bench) experiment(s site) *concurrency.Experiment {
	e := &concurrency.Experiment{Header: b.Header(concurrency.Kind, nil, b.Blocks), Fill: string(b.Fill), JobWork: b.whole}
	s.describe(e)
	e.Versions, e.Caveats = b.versions, b.caveats
	return e
}

// tell describes a measured cell in one line.
func tell(r measured) string {
	if len(r.Rows) == 0 {
		return ""
	}
	seconds, cost, on := 0.0, 0.0, map[string]int{}
	for _, j := range r.Rows {
		seconds += j.Seconds() / float64(len(r.Rows))
		s, _ := j.CPUSeconds()
		cost += s / float64(len(r.Rows))
		on[j.Host]++
	}
	text := fmt.Sprintf("%7.2f s a job, %6s CPU-s", seconds, report.FormatNumber(cost, 2))
	if len(on) > 1 {
		var each []string
		for _, n := range slices.Sorted(maps.Keys(on)) {
			each = append(each, fmt.Sprintf("%d on %s", on[n], n))
		}
		text += ", " + strings.Join(each, ", ")
	}
	return text
}
