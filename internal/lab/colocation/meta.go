package colocation

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// A Meta is the joint analysis of several colocation experiments. It estimates
// the ratio of each mode to the mode Base by a random-effects model.
type Meta struct {
	Base     report.Mode  `json:"base"`
	Included []string     `json:"experiments"`
	Excluded []string     `json:"left_out"` // the excluded experiments, with reasons
	Notes    []string     `json:"notes"`    // what went wrong in experiments that count
	Unequal  []string     `json:"unequal"`  // in what the experiments that count differ
	Rows     []MetaRow    `json:"ratios"`
	Levels   []MetaLevels `json:"levels"`
}

// A MetaRow is the ratio of a measure in one mode to the same measure in the
// mode Base.
type MetaRow struct {
	Mode        report.Mode   `json:"mode"`
	Measure     string        `json:"measure"`
	Experiments int           `json:"experiments"`
	Blocks      int           `json:"blocks"`
	Ratio       report.Number `json:"ratio"`
	Low         report.Number `json:"low"` // 95 %
	High        report.Number `json:"high"`
	NextLow     report.Number `json:"next_experiment_low"` // prediction interval, 95 %
	NextHigh    report.Number `json:"next_experiment_high"`
	// Inconsistency is I²: the share of the variance of the ratios that comes
	// from true differences between experiments.
	Inconsistency report.Number `json:"inconsistency"`
}

// MetaLevels holds the medians of one mode in one experiment.
type MetaLevels struct {
	Experiment string        `json:"experiment"`
	Mode       report.Mode   `json:"mode"`
	P90        report.Number `json:"p90_us"`
	P99        report.Number `json:"p99_us"`
	Waiting    report.Number `json:"ls_waiting_us_per_second"`
	Frames     report.Number `json:"be_frames_per_second"`
	CPU        report.Number `json:"cpu_percent"`
}

// frames is the work rate of the batch work.
var frames = report.Measure{Key: "frames", Name: "BE frames", Of: func(r report.Run) float64 { return report.Positive(r.FramesPerS) }}

// A metaMeasure is a measure of the joint analysis.
type metaMeasure struct {
	report.Measure
	// everywhere is set if older versions did not record the measure. There is
	// no row about it unless every run has it, because a row about the newer
	// experiments alone would look like one about all.
	everywhere bool
}

var metaMeasures = []metaMeasure{
	{report.P90, false}, {report.Mean, false}, {report.P99, false},
	{ofAll("P90", func(l load.Latency) float64 { return l.P90 }), true},
	{ofAll("mean", func(l load.Latency) float64 { return l.Mean }), true},
	{ofAll("P99", func(l load.Latency) float64 { return l.P99 }), true},
	{report.WaitingTime, false}, {frames, false},
}

// ofAll returns a latency of all requests. The other latencies leave out the
// requests that were due while the client did not run. These may be a tenth of
// all requests, so a limit on the other P90 is no limit on this one.
func ofAll(name string, of func(load.Latency) float64) report.Measure {
	return report.Measure{Name: name + " of all requests", Of: func(r report.Run) float64 {
		if r.WithStalls == nil {
			return math.NaN()
		}
		return report.Positive(of(*r.WithStalls))
	}}
}

// missing reports whether a run that the ratio of the two modes uses does not
// have the measure.
func missing(m report.Measure, all []report.Evidence, mode, base report.Mode) bool {
	return slices.ContainsFunc(all, func(ev report.Evidence) bool {
		n := len(ev.Runs(mode))
		return n > 0 && (len(ev.Sample(mode, m.Of)) < n || len(ev.Sample(base, m.Of)) < len(ev.Runs(base)))
	})
}

// Combine analyses several experiments together. It leaves out an experiment
// that cannot be read, is of another kind, has no valid run of the base mode,
// or is the same as one before it. The result names such an experiment and the
// reason.
//
// check returns an error if a directory or submission must not be used.
func Combine(dirs []string, base report.Mode, check func(string) error) Meta {
	m := Meta{Base: base, Included: []string{}, Excluded: []string{}, Notes: []string{}, Unequal: []string{}, Rows: []MetaRow{}, Levels: []MetaLevels{}}
	var modes []report.Mode
	var all []report.Evidence
	var records []Experiment
	seen := map[identity]string{}
	for _, dir := range dirs {
		e, runs, err := report.Load[Experiment, Run](dir)
		err = errors.Join(check(dir), err)
		a := Analyse(e, runs)
		ev := a.Evidence()
		switch {
		case err != nil:
			m.Excluded = append(m.Excluded, fmt.Sprintf("%s: %v", dir, err))
			continue
		case e.Kind != Kind:
			m.Excluded = append(m.Excluded, fmt.Sprintf("%s: it is of kind %.80q", dir, e.Kind))
			continue
		case e.Design == DesignSwitch:
			m.Excluded = append(m.Excluded, fmt.Sprintf("%s: its modes were switched within each start, and only experiments in blocks are put together", dir))
			continue
		case len(ev.Runs(base)) == 0:
			m.Excluded = append(m.Excluded, fmt.Sprintf("%s: it has no valid run of mode %s%s", dir, base, otherBases(a)))
			continue
		case seen[identityOf(e, runs)] != "":
			m.Excluded = append(m.Excluded, fmt.Sprintf("%s: it is the same experiment as %s", dir, seen[identityOf(e, runs)]))
			continue
		}
		seen[identityOf(e, runs)] = dir
		records = append(records, e)
		m.Included, all = append(m.Included, dir), append(all, ev)
		m.Notes = append(m.Notes, notesOf(dir, a.Base)...)
		for _, mode := range a.Base.Order {
			r := a.Base.Modes[mode]
			m.Levels = append(m.Levels, MetaLevels{dir, mode, r.P90, r.P99, r.Waiting, r.FramesPerS, r.CPUPercent})
			if mode != base && !slices.Contains(modes, mode) {
				modes = append(modes, mode)
			}
		}
	}
	m.Unequal = append(m.Unequal, differences(m.Included, records)...)
	for _, mode := range modes {
		for _, measure := range metaMeasures {
			if measure.everywhere && missing(measure.Measure, all, mode, base) {
				continue
			}
			var logs [][]float64
			for _, ev := range all {
				l, _ := stat.Logs(ev.Sample(mode, measure.Of), ev.Sample(base, measure.Of))
				logs = append(logs, l)
			}
			if x := stat.MetaOf(logs); x.Campaigns > 0 {
				m.Rows = append(m.Rows, MetaRow{
					mode, measure.Name, x.Campaigns, x.Blocks, report.Number(x.Value), report.Number(x.Low), report.Number(x.High),
					report.Number(x.PredictLow), report.Number(x.PredictTop), report.Number(x.Inconsistency),
				})
			}
		}
	}
	return m
}

// otherBases names the modes of an experiment to which others can be compared.
func otherBases(a report.Analysis) string {
	var bases []string
	for _, mode := range a.Base.Order {
		if len(a.Evidence().Runs(mode)) > 0 && mode != report.Solo {
			bases = append(bases, string(mode))
		}
	}
	if len(bases) == 0 {
		return ""
	}
	return "; with one of its modes as --base it counts: " + strings.Join(bases, ", ")
}

// notesOf lists what went wrong in an experiment. The experiment still counts,
// because leaving it out would bias the results.
func notesOf(dir string, r report.Result) []string {
	var notes []string
	if r.Experiment.Ended != "" && !r.Experiment.Ended.Planned() {
		notes = append(notes, fmt.Sprintf("%s: it did not end as planned (%s)", dir, r.Experiment.Ended))
	}
	if r.Control != nil {
		if c := r.Control.Metrics[report.P90.Key]; !c.Resolves {
			notes = append(notes, fmt.Sprintf("%s: two equal modes differ in P90 by more than %s allows: %s", dir, report.Limit(r.Experiment.Margin), report.FormatRatio(c.Ratio)))
		}
	}
	if n := len(r.VoidRuns); n > 0 {
		notes = append(notes, fmt.Sprintf("%s: %s", dir, textlayout.Plural(n, "void run", "void runs")))
	}
	return notes
}

// Text prints the ratios as a table.
func (m Meta) Text() string {
	var b bytes.Buffer
	if len(m.Included) > 0 {
		m.writeRows(&b)
	}
	textlayout.List(&b, "Experiments", m.Included)
	textlayout.List(&b, "Left out", m.Excluded)
	textlayout.List(&b, "What went wrong (they count all the same)", m.Notes)
	textlayout.List(&b, "The experiments differ (they count all the same)", m.Unequal)
	return strings.TrimLeft(b.String(), "\n")
}

// writeRows prints the ratios.
func (m Meta) writeRows(b *bytes.Buffer) {
	textlayout.Paragraph(b, "", fmt.Sprintf("Ratios to %s over %s, random effects.", m.Base, textlayout.Plural(len(m.Included), "experiment", "experiments")))
	fmt.Fprintf(b, "\n%-15s %-21s %11s %7s  %7s  %-17s %-19s %s\n", "mode", "measure", "experiments", "blocks", "ratio", "95 % interval", "next experiment", "I²")
	for _, r := range m.Rows {
		fmt.Fprintf(b, "%-15s %-21s %11d %7d  %7s  %-17s %-19s %s %%\n", r.Mode, r.Measure, r.Experiments, r.Blocks,
			report.FormatNumber(r.Ratio, 3), ends(r.Low, r.High), ends(r.NextLow, r.NextHigh), report.Scaled(r.Inconsistency, 100, 0))
	}
}

func ends(low, high report.Number) string {
	if !high.Known() {
		return report.Unknown
	}
	return report.FormatNumber(low, 3) + " … " + report.FormatNumber(high, 3)
}
