package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// noFigure stands for a figure that a document does not print, or a run has not.
const noFigure = "–"

// Name returns the fact with its unit.
func (r Row) Name() string {
	if r.Unit == "" {
		return r.Fact
	}
	return r.Fact + " (" + r.Unit + ")"
}

// IsPrinted reports whether the document prints a figure of the row.
func (r Row) IsPrinted() bool {
	return slices.ContainsFunc(r.Theirs, func(n *json.Number) bool { return n != nil })
}

// ChangeOf returns the change of a published figure in per cent, if the figure and
// that to which it relates are printed.
func (r Row) ChangeOf(column int) (percent float64, is bool) {
	if r.Theirs[column] == nil || r.Theirs[r.Base] == nil {
		return 0, false
	}
	return 100 * (value(*r.Theirs[column])/value(*r.Theirs[r.Base]) - 1), true
}

// Theirs returns the published figures of row i, with their changes.
func (t Table) Theirs(i int) []string {
	r := t.Rows[i]
	cells := make([]string, len(r.Theirs))
	for j, n := range r.Theirs {
		switch {
		case n == nil:
			cells[j] = noFigure
		case t.Down:
			cells[j] = n.String()
			if first := t.FirstOf(j); first != n {
				cells[j] += fmt.Sprintf(" (×%.2f)", value(*n)/value(*first))
			}
		default:
			cells[j] = n.String()
			if change, is := r.ChangeOf(j); is && j != r.Base && r.Change != "" {
				cells[j] += " (" + signed(change) + " %)"
			}
		}
	}
	return cells
}

// FirstOf returns the first published figure of a column.
func (t Table) FirstOf(column int) *json.Number {
	for _, r := range t.Rows {
		if r.Theirs[column] != nil {
			return r.Theirs[column]
		}
	}
	return nil
}

// Cells returns the figures of one run. result is the content of its result.json, as
// Decode reads it. A figure that the run has not is the reason of the row; without a
// reason, the error names it.
func (r Row) Cells(from Run, result any) (cells []string, err error) {
	cells = make([]string, len(from.Columns))
	if r.Refused != "" {
		if speaks, _ := Lookup(result, r.Refused).(bool); !speaks {
			return slices.Repeat([]string{"refused"}, len(cells)), nil
		}
	}
	for i, column := range from.Columns {
		var e error
		cells[i], e = r.cell(column, i > 0, result)
		err = errors.Join(err, e)
	}
	return cells, err
}

// cell returns the figure of one column, with its change if it is not the first one.
func (r Row) cell(column string, changes bool, result any) (string, error) {
	at := func(path string) any { return Lookup(result, strings.ReplaceAll(path, "{}", column)) }
	v, is := at(r.Ours).(json.Number)
	if !is {
		if r.Missing == "" {
			return noFigure, fmt.Errorf("there is no %s for %s, and the data give no reason", r.Ours, column)
		}
		return r.Missing, nil
	}
	f := value(v)
	if r.Times != 0 {
		f *= r.Times
	}
	if whole, is := at(r.Of).(json.Number); is {
		f /= value(whole)
	} else if r.Of != "" {
		return noFigure, fmt.Errorf("there is no %s", r.Of)
	}
	text := strconv.FormatFloat(f, 'f', r.Digits, 64)
	if r.Ratio != "" {
		ratio, is := at(r.Ratio).(json.Number)
		if !is {
			return text, fmt.Errorf("there is no %s for %s", r.Ratio, column)
		}
		text += fmt.Sprintf(" (×%.2f)", value(ratio))
	}
	if !changes || r.Change == "" {
		return text, nil
	}
	change, err := interval(at(r.Change))
	return text + " (" + change + ")", err
}

// interval returns a ratio with its 95 % interval: as a change in per cent, or from
// a factor of 2 on as a multiple. One block gives no interval.
func interval(ratio any) (string, error) {
	at := func(key string) float64 {
		n, is := Lookup(ratio, key).(json.Number)
		if !is {
			return math.NaN()
		}
		return value(n)
	}
	estimate, low, high := at("estimate"), at("low"), at("high")
	bound := func(format func(float64) string, unit string) string {
		if math.IsNaN(low) || math.IsNaN(high) {
			return format(estimate) + unit + "; one block"
		}
		return format(estimate) + unit + "; " + format(low) + " to " + format(high)
	}
	switch {
	case math.IsNaN(estimate):
		return noFigure, errors.New("a ratio has no estimate")
	case estimate >= 2:
		return "×" + bound(func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }, ""), nil
	}
	return bound(func(f float64) string { return signed(100 * (f - 1)) }, " %"), nil
}

// signed prints a number of per cent with its sign and one digit.
func signed(percent float64) string {
	return strings.Replace(fmt.Sprintf("%+.1f", percent), "-", "−", 1)
}

// value returns a number of JSON. The syntax of JSON makes an error impossible, but
// for a number beyond all floating-point numbers, which is infinite.
func value(n json.Number) float64 {
	f, _ := n.Float64() //nolint:errcheck // see above
	return f
}
