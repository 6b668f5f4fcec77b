package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Grid is a table with its figures, ready to be shown.
type Grid struct {
	Name    string   `json:"name"`
	Where   string   `json:"where,omitempty"`
	Columns []string `json:"columns"`
	Lines   []Line   `json:"lines"`
}

// A Line has the figures of one fact from one source.
type Line struct {
	Fact string `json:"fact"`
	From string `json:"from"`
	// Experiment is the folder of docs/experiments from which the figures come; empty:
	// the document, or the run that has just ended.
	Experiment string   `json:"experiment,omitempty"`
	Cells      []string `json:"cells"`
}

const (
	// noRun stands for a figure of a mode that did not run, or whose runs are all void.
	noRun = "no valid run"
	// notMeasured stands for the figures of a table that no mode has.
	notMeasured = "not measured"
)

// document is the source of a line that has published figures.
const document = "document"

// grid returns a table with its published figures. ours returns the lines of other
// sources for a row.
func (t Table) grid(ours func(Row) ([]Line, error)) (Grid, error) {
	g := Grid{Name: t.Name, Where: t.Where, Columns: t.Columns}
	var faults []error
	for i, r := range t.Rows {
		if r.IsPrinted() {
			g.Lines = append(g.Lines, Line{Fact: r.Name(), From: document, Cells: t.Theirs(i)})
		}
		lines, err := ours(r)
		faults = append(faults, err)
		for _, l := range lines {
			l.Fact = r.Name()
			g.Lines = append(g.Lines, l)
		}
	}
	return g, errors.Join(faults...)
}

// Published returns the table of the page: with the figures of its experiments.
// result reads the result of an experiment by the name of its folder.
func (t Table) Published(result func(experiment string) (any, error)) (Grid, error) {
	return t.grid(func(r Row) (lines []Line, err error) {
		if len(t.Runs) == 0 || r.Ours == "" && r.Refused == "" {
			if r.Absent != "" {
				lines = append(lines, Line{From: "here", Cells: slices.Repeat([]string{r.Absent}, len(t.Columns))})
			}
			return lines, nil
		}
		for _, from := range t.Runs {
			whole, e := result(from.Experiment)
			if e != nil {
				return nil, e
			}
			cells, e := r.Cells(from, whole)
			if e != nil {
				err = errors.Join(err, fmt.Errorf("%s, %s, %s: %w", t.Name, r.Fact, from.Experiment, e))
			}
			lines = append(lines, Line{From: fmt.Sprintf("%s, %s", from.Label, from.Experiment[:len("2026-11-22")]), Experiment: from.Experiment, Cells: cells})
		}
		return lines, err
	})
}

// Beside returns the tables of a document with the figures of an experiment that has
// just run. result is the content of its result.json, as Decode reads it. A cell
// that the experiment leaves empty says so.
func (d Dataset) Beside(doc Document, result any) (grids []Grid) {
	for _, t := range d.Of(doc) {
		if g := t.beside(result); len(g.Lines) > 0 {
			grids = append(grids, g)
		}
	}
	return grids
}

func (t Table) beside(result any) Grid {
	ways := t.ways(result)
	g, _ := t.grid(func(r Row) (lines []Line, _ error) { //nolint:errcheck // a cell without a figure says so
		for _, way := range ways {
			cells, _ := r.Cells(way, result) //nolint:errcheck // as above
			for i, c := range cells {
				if c == noFigure {
					cells[i] = noRun
				}
			}
			lines = append(lines, Line{From: way.Label, Cells: cells})
		}
		if len(ways) == 0 && len(t.Here) > 0 {
			lines = append(lines, Line{From: "this run", Cells: slices.Repeat([]string{notMeasured}, len(t.Columns))})
		}
		return lines, nil
	})
	return g
}

// ways returns those entries of Here that the experiment can fill: it has a figure in
// a column that the other entries do not have, or its lab refused all figures.
func (t Table) ways(result any) (fit []Run) {
	client, _ := Lookup(result, "experiment.client").(string)
	for i, way := range t.Here {
		if way.Client != "" && way.Client != client {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(way.Columns), func(column string) bool {
			for j, other := range t.Here {
				if i != j && slices.Contains(other.Columns, column) {
					return true
				}
			}
			return false
		})
		if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.speaks(own, result) }) {
			fit = append(fit, way)
		}
	}
	return fit
}

// speaks reports whether a result has a figure of the row in one of the columns, or
// says that its machine is too small for all.
func (r Row) speaks(columns []string, result any) bool {
	if claims, is := Lookup(result, r.Refused).(bool); is && r.Refused != "" && !claims {
		return true
	}
	return slices.ContainsFunc(columns, func(column string) bool {
		_, is := Lookup(result, strings.ReplaceAll(r.Ours, "{}", column)).(json.Number)
		return is
	})
}

// Markdown returns the table as the page has it. link returns the address of an
// experiment.
func (g Grid) Markdown(link func(experiment string) string) string {
	var b strings.Builder
	if g.Where != "" {
		b.WriteString("*In the document:* " + g.Where + ".\n\n")
	}
	line := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(append([]string{"figure", "from"}, g.Columns...)...)
	line(slices.Repeat([]string{"---"}, 2+len(g.Columns))...)
	for i, l := range g.Lines {
		fact, from := l.Fact, l.From
		if i > 0 && g.Lines[i-1].Fact == fact {
			fact = ""
		}
		if l.Experiment != "" {
			from = "[" + from + "](" + link(l.Experiment) + ")"
		}
		line(append([]string{fact, from}, l.Cells...)...)
	}
	return b.String()
}
