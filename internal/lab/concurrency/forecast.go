package concurrency

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/lab/capacity"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// A Forecast is advice for a machine that was not measured, computed with the
// model of a machine that was measured.
type Forecast struct {
	Advice
	Node Node `json:"node"`
	// HeldOut is the largest relative error of a test. In this test, the model
	// predicts the cells with the most jobs from all other cells. HeldOutCells
	// is the number of predicted cells.
	HeldOut      report.Number    `json:"held_out_error"`
	HeldOutCells int              `json:"held_out_cells"`
	Model        []ModelParameter `json:"model"`
	// NotPredicted lists the ways to run jobs that the model cannot predict,
	// with the reasons. Some of them may be better than the advice.
	NotPredicted []string `json:"not_predicted,omitempty"`
}

// A ModelParameter is a parameter of the model that the measurement determines.
type ModelParameter struct {
	Name  string          `json:"name"`
	Value report.Interval `json:"value"`
}

// modelledStrategies has the strategies that the model can predict as keys. The
// value is true if the strategy gives each job its own CPUs.
var modelledStrategies = map[string]bool{"pinned": true, "static": true, quotaStrategy: false, "matched": false, unlimited: false}

// cellOf converts a cell to the form of the model. It returns false if the
// model cannot predict the strategy.
func cellOf(c jobs.Cell) (cell capacity.Cell, known bool) {
	apart, known := modelledStrategies[cmp.Or(c.Strategy, c.Type)]
	cell = capacity.Cell{Jobs: c.Concurrency, Limit: c.CPU.Cores(), Threads: c.Threads, Apart: apart}
	if c.IsRequest() {
		cell.Limit = 0
	}
	return cell, known
}

// capacity fits the model to the measured ways to run jobs.
func (r Result) capacity() (*capacity.Model, error) {
	var all []capacity.Observation
	for _, o := range r.measured {
		if cell, known := cellOf(o.Cell); known {
			all = append(all, capacity.Observation{Cell: cell, Seconds: o.SecondsBy})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no job ran in a way that the model knows: quota, matched, pinned, static or unbounded, as its strategy or else its type: name the strategy with tenon lab concurrency import --strategy")
	}
	return capacity.Fit(capacity.Machine(r.Experiment.Node), all)
}

// Forecast returns the best predicted way to run jobs on a machine for a goal.
// It considers the strategies and limits that were measured. If no predicted
// way reaches the goal, it returns jobs.ErrNoOption. If no way can be
// predicted, it returns capacity.ErrBeyond.
func (r Result) Forecast(n Node, g jobs.Goal, price float64) (Forecast, error) {
	f := Forecast{Node: n}
	m, err := r.capacity()
	if err != nil {
		return f, fmt.Errorf("predict for %s: %w", n, err)
	}
	all, refused, err := r.predict(m, n)
	if err != nil {
		return f, fmt.Errorf("predict for %s: %w", n, err)
	}
	best, ties, err := jobs.Best(all, g, r.tie())
	if err != nil {
		return f, fmt.Errorf("predict for %s: %w", n, err)
	}
	f.Advice = adviceOf(best, ties, all, g, price)
	f.NotPredicted, f.Warnings = refusals(refused, false), r.Warnings
	f.Goal = goalText(g, len(refused) == 0)
	f.HeldOut, f.HeldOutCells = report.Number(m.HeldOut-1), m.Held
	for _, p := range m.Parameters() {
		f.Model = append(f.Model, ModelParameter{p.Name, p.Value})
	}
	return f, nil
}

// predict predicts each measured strategy and limit on machine n, with 1, 2 and more
// jobs at once. refused has the ways that cannot be predicted, with the reasons.
func (r Result) predict(m *capacity.Model, n Node) (all []jobs.Option, refused []refusal, err error) {
	most, slowest := 0, 1.0
	seen := map[jobs.Cell]bool{}
	var ways []jobs.Cell
	for _, o := range r.measured {
		most = max(most, o.Cell.Concurrency)
		way := o.Cell
		way.Concurrency = 0
		if _, known := cellOf(way); !known {
			if !seen[jobs.Cell{Type: name(way)}] {
				seen[jobs.Cell{Type: name(way)}] = true
				refused = append(refused, refusal{name(way), unknownStrategy})
			}
		} else {
			slowest = max(slowest, o.Longest/o.Seconds.Value)
			if !seen[way] {
				seen[way] = true
				ways = append(ways, way)
			}
		}
	}
	for _, way := range ways {
		for way.Concurrency = 1; way.Concurrency <= 2*most; way.Concurrency++ {
			var beyond capacity.Beyond
			cell, _ := cellOf(way)
			if way.Concurrency > 1 && cell.Limit*float64(cell.Jobs) > float64(n.CPUs) {
				break // such jobs need more CPUs than the machine has, so the lab would not run them either
			}
			e, err := m.Predict(capacity.Machine(n), cell)
			switch {
			case errors.As(err, &beyond):
				refused = append(refused, refusal{describe(way), beyond})
			case err != nil:
				return nil, nil, err
			default:
				all = append(all, optionFrom(way, e, cell.CPUs(capacity.Machine(n)), slowest))
				continue
			}
			if way.Concurrency > 1 {
				break // with more jobs, the cell is even further from the observations
			}
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%w: %s", capacity.ErrBeyond, strings.Join(refusals(refused, true), "; "))
	}
	return all, refused, nil
}

// unknownStrategy stands for the reason that the model does not know the strategy.
var unknownStrategy = capacity.Beyond{Bound: -1}

// A refusal is a way to run jobs that is not predicted, with the reason.
type refusal struct {
	way string
	why capacity.Beyond
}

// refusals returns one text for each reason, with the ways to run jobs that
// have it. If all is true, nothing was predicted. A reason for several ways is
// then printed without them, and unknown strategies are left out.
func refusals(refused []refusal, all bool) []string {
	var reasons []capacity.Beyond
	ways := map[capacity.Beyond][]string{}
	for _, r := range refused {
		if len(ways[r.why]) == 0 {
			reasons = append(reasons, r.why)
		}
		ways[r.why] = append(ways[r.why], r.way)
	}
	var texts []string
	for _, why := range reasons {
		text := why.Text()
		switch {
		case why != unknownStrategy:
		case all:
			continue
		default:
			text = "the model does not know this strategy"
		}
		if !all || len(ways[why]) == 1 {
			text = strings.Join(ways[why], "; ") + ": " + text
		}
		texts = append(texts, text)
	}
	return texts
}

// optionFrom makes an option from a predicted way to run jobs. cpus is the
// number of CPUs that a job uses. slowest is the time of the slowest job
// divided by the mean time.
func optionFrom(way jobs.Cell, seconds stat.Estimate, cpus, slowest float64) jobs.Option {
	rate := 3600 * float64(way.Concurrency)
	return jobs.Option{
		Cell: way, Beside: float64(way.Concurrency), Seconds: seconds, CPUSeconds: cpus * seconds.Value, Waves: 1, Longest: seconds.Value * slowest,
		Hourly: capacity.Estimate(rate/seconds.Value, rate/seconds.High, rate/seconds.Low, seconds.Blocks),
	}
}

// String describes the size of a machine.
func (n Node) String() string {
	return fmt.Sprintf("a machine of %s and %s", textlayout.Plural(n.CPUs, "CPU", "CPUs"), textlayout.Plural(n.Cores, "core", "cores"))
}

// Text prints the forecast as sentences. After the advice it lists the ways
// that are not predicted, because one of them may be better.
func (f Forecast) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Predicted for %s of the kind that was measured, with as many sockets:\n%s", f.Node, strings.Replace(f.Advice.Text(), "This measurement", "This prediction", 1))
	for _, text := range f.NotPredicted {
		fmt.Fprintf(&b, "Not predicted: %s.\n", text)
	}
	b.WriteString(f.errorText())
	for _, p := range f.Model {
		b.WriteString("  " + p.text() + "\n")
	}
	return b.String()
}

// errorText says how well the model predicts what was measured.
func (f Forecast) errorText() string {
	return fmt.Sprintf("The model misses the %s with the most jobs by up to %s %% when it knows only the others.\n",
		textlayout.Plural(f.HeldOutCells, "cell", "cells"), report.Scaled(f.HeldOut, 100, 1))
}

// text prints a parameter with its unit. All parameters but the first are
// shares. A share of 0 means no effect.
func (p ModelParameter) text() string {
	what, isShare := map[string]string{
		"taken by a busy sibling": "speed that a CPU loses to a busy sibling",
		"taken by busy cores":     "speed that a CPU loses while all cores are busy",
		"serial part":             "part of a job that runs on one CPU at a time",
		"coherence":               "time that CPUs of a job wait for each other, for each pair of them",
	}[p.Name]
	v := p.Value
	if !isShare {
		return fmt.Sprintf("%s: %s CPU-s%s", "CPU time of a job alone", figure(v.Value), span(v))
	}
	text := fmt.Sprintf("%s: %s %%", what, report.Scaled(v.Value, 100, 1))
	if v.Blocks > 1 {
		text += fmt.Sprintf(" (%s to %s)", report.Scaled(v.Low, 100, 1), report.Scaled(v.High, 100, 1))
		if v.Low <= 0 && v.High >= 0 {
			text += ", perhaps none"
		}
	}
	return text
}
