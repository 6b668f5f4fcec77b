package colocation

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// workOf returns the median rate of each batch work of the user in a mode. It
// returns nil if the user brings no batch work, or if none runs in the mode.
func (c fullExperiment) workOf(ev report.Evidence, m report.Mode) []report.Number {
	if c.experiment.Own == nil || !m.Spec().Batch {
		return nil
	}
	var medians []report.Number
	for i := range c.experiment.Own.Batch {
		medians = append(medians, report.Number(stat.Median(ev.Sample(m, func(r report.Run) float64 {
			work := c.work[r.Index]
			return report.KnownOrNaN(slices.Concat(work, []float64{0})[min(i, len(work))], i < len(work))
		}))))
	}
	return medians
}

// rows returns the rows of the table. If the user brings other workloads, the
// amount of work replaces the frames.
func (c fullExperiment) rows() []report.Row {
	rows := slices.Clone(report.LatencyRows)
	if c.experiment.Own == nil {
		return rows
	}
	i := slices.IndexFunc(rows, func(r report.Row) bool { return r.Name == "BE frames/s" })
	rows[i] = report.Row{Name: "BE % of alone", Text: func(c report.InMode) string {
		if !c.Mode.Spec().Batch {
			return report.Unknown
		}
		return report.Scaled(c.Result.Modes[c.Mode].FramesPerS, 100, 1)
	}}
	for n, w := range c.experiment.Own.Batch {
		i++
		rows = slices.Insert(rows, i, report.Row{Name: fmt.Sprintf("  %.13s", w.Name), Unit: w.Unit + "/s", Text: func(in report.InMode) string {
			if n >= len(c.medians[in.Mode]) {
				return report.Unknown
			}
			return report.FormatNumber(c.medians[in.Mode][n], 2)
		}})
	}
	return rows
}

// workload returns the name of the service, and the names of the batch works
// with their rates without the service.
func (c fullExperiment) workload() (service, batch string) {
	own := c.experiment.Own
	if own == nil {
		return "nginx", "ffmpeg"
	}
	var names []string
	for _, w := range own.Batch {
		names = append(names, fmt.Sprintf("%s (alone %.3g %s/s)", w.Name, w.Solo, w.Unit))
	}
	return own.Service, strings.Join(names, " and ")
}
