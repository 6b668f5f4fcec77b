package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// Measured is a measured cell: a row for each job, and the reasons why the cell is
// void.
type Measured struct {
	Rows []jobs.Job
	Void []string
}

// Series returns the experiment as a series of blocks, on this machine or on nodes
// of a cluster. measure runs a cell there once. The caller adds what differs.
func (c Config) Series(site *testbed.Site, cells []Cell, measure func(ctx context.Context, cell Cell, index, block int) (Measured, error)) *harness.Series[Cell, Measured] {
	return &harness.Series[Cell, Measured]{
		Site: site, Cells: cells, Blocks: c.Blocks, Most: c.MaxTime, InOrder: c.AsPublished, Tell: tell, Open: concurrency.Open,
		Run: func(ctx context.Context, cell Cell, index, block int) (Measured, error) {
			r, err := measure(ctx, cell, index, block)
			if err != nil {
				return r, fmt.Errorf("cell %v: %w", cell, err)
			}
			return r, nil
		},
		Save: func(r Measured) error { return concurrency.AddJobs(site.Given.Out, r.Rows) },
		Void: func(r Measured) []string { return r.Void },
	}
}

// tell describes a measured cell in one line.
func tell(r Measured) string {
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
