package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// tenon is the name under which the promises of package promise stand.
const tenon = "tenon"

// A share counts promises that were judged, and those that were kept.
type share struct{ judged, kept int }

// coverage returns the share that was kept. It is NaN if none was judged.
func (s share) coverage() float64 { return 100 * float64(s.kept) / float64(s.judged) }

func (s *share) count(kept bool) {
	s.judged++
	if kept {
		s.kept++
	}
}

func (s *share) add(o share) { s.judged, s.kept = s.judged+o.judged, s.kept+o.kept }

// A tally counts the promises of one rival, length and level.
type tally struct {
	rival          string
	hours, percent int
	share
	promised, free float64 // sums over the promises that were judged
	// The change of a promise from the hour before.
	changed, before float64 // sums
	steady, pairs   int     // pairs of hours, and those that differ by at most a tenth
	byHour          [24]share
}

// add counts the promises of a node. Only hours of the list usable count, so that
// all rivals are judged on the same ones.
func (t *tally) add(promises []float64, w windows, firstHour int64, usable []bool) {
	last := math.NaN()
	for s, p := range promises {
		if !usable[s] || math.IsNaN(p) || math.IsNaN(w.least[s]) {
			last = math.NaN()
			continue
		}
		kept := w.least[s] >= p
		t.count(kept)
		t.byHour[(firstHour+int64(s))%24].count(kept)
		t.promised, t.free = t.promised+p, t.free+w.least[s]
		if !math.IsNaN(last) {
			t.pairs++
			t.changed, t.before = t.changed+math.Abs(p-last), t.before+last
			if math.Abs(p-last) <= last/10 {
				t.steady++
			}
		}
		last = p
	}
}

// evaluate runs all rivals on the room of a node.
func evaluate(r room, stepMinutes int, others bool) []*tally {
	hourly, made := promises(r, stepMinutes)
	var out []*tally
	for h, hours := range promise.Hours {
		w := windowsOf(hourly, hours)
		for l, percent := range promise.Levels {
			ours := made[h*len(promise.Levels)+l]
			usable := make([]bool, len(hourly))
			for s, p := range ours {
				usable[s] = !math.IsNaN(p)
			}
			count := func(name string, promises []float64) {
				t := &tally{rival: name, hours: hours, percent: int(percent)}
				t.add(promises, w, r.hour, usable)
				out = append(out, t)
			}
			count(tenon, ours)
			for _, other := range rivals {
				if others || other.name == "history" {
					count(other.name, other.promise(w, 1-float64(percent)/100))
				}
			}
		}
	}
	return out
}

// promises feeds package promise with the room of a node, minute by minute. It
// returns the least room of each hour, and for each kind of promise what was
// promised at the start of each hour.
func promises(r room, stepMinutes int) (hourly []float64, made [][]float64) {
	perHour := 60 / stepMinutes
	made = make([][]float64, len(promise.Hours)*len(promise.Levels))
	var state promise.State
	for h := 0; (h+1)*perHour <= len(r.steps); h++ {
		low, seen, before := math.Inf(1), 0, int64(noValue)
		for i, v := range r.steps[h*perHour : (h+1)*perHour] {
			minute := (r.hour+int64(h))*60 + int64(i*stepMinutes)
			if v != noValue {
				low, seen = min(low, float64(v)), seen+1
				for m := range stepMinutes {
					state.Observe(minute+int64(m), promise.Room{CPU: node.Some(unit.MilliCPU(v))})
				}
				if before == noValue && i == 0 {
					before = minute
				}
			}
			if i > 0 {
				continue
			}
			for kind, p := range state.Promises(minute+int64(stepMinutes)-1, promise.Room{CPU: node.Some(unit.MilliCPU(v))}) {
				value := math.NaN()
				if before != noValue && p.CPU.Code == promise.Known {
					value = float64(p.CPU.Value)
				}
				made[kind] = append(made[kind], value)
			}
		}
		if 4*seen < 3*perHour {
			low = math.NaN()
		}
		hourly = append(hourly, low)
	}
	return hourly, made
}

// A result adds up the tallies of all nodes.
type result struct {
	totals []*tally
	nodes  []nodeTally
}

type nodeTally struct {
	node string
	*tally
}

func newResult() *result { return &result{} }

func (r *result) add(node string, all []*tally) {
	for i, t := range all {
		if i == len(r.totals) {
			r.totals = append(r.totals, &tally{rival: t.rival, hours: t.hours, percent: t.percent})
		}
		sum := r.totals[i]
		sum.share.add(t.share)
		sum.promised, sum.free = sum.promised+t.promised, sum.free+t.free
		sum.changed, sum.before = sum.changed+t.changed, sum.before+t.before
		sum.steady, sum.pairs = sum.steady+t.steady, sum.pairs+t.pairs
		for h := range t.byHour {
			sum.byHour[h].add(t.byHour[h])
		}
		r.nodes = append(r.nodes, nodeTally{node, t})
	}
}

// leastWindows is the number of windows that do not overlap, from which on a node
// is judged.
const leastWindows = 40

// A row is a line of the table: the sum of all nodes, and the figures of single ones.
type row struct {
	*tally
	nodes, near int // nodes with enough windows, and those within five points
	worst       float64
}

func (r *result) rows() []row {
	rows := make([]row, len(r.totals))
	for i, t := range r.totals {
		rows[i] = row{tally: t, worst: math.NaN()}
	}
	for i, n := range r.nodes {
		of := &rows[i%len(rows)]
		if n.judged < leastWindows*n.hours {
			continue
		}
		c := n.coverage()
		of.nodes++
		if math.Abs(c-float64(n.percent)) <= 5 {
			of.near++
		}
		if !(of.worst <= c) {
			of.worst = c
		}
	}
	return rows
}

// hourRange returns the least and the greatest coverage of an hour of the day.
func (t *tally) hourRange() (low, high float64) {
	var all []float64
	for _, h := range t.byHour {
		if h.judged > 0 {
			all = append(all, h.coverage())
		}
	}
	if len(all) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(all), slices.Max(all)
}

// figure prints a number with one digit, or a dash for one that is not known.
func figure(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}

var columns = []table.Column[row]{
	{Name: "HOURS", Text: func(r row) string { return fmt.Sprint(r.hours) }},
	{Name: "ASKED", Text: func(r row) string { return fmt.Sprint(r.percent) }},
	{Name: "RIVAL", Text: func(r row) string { return r.rival }},
	{Name: "KEPT", Text: func(r row) string { return figure(r.coverage()) }},
	{Name: "OF", Text: func(r row) string { return fmt.Sprint(r.judged) }},
	{Name: "NODES", Text: func(r row) string {
		if r.nodes == 0 {
			return "not judged"
		}
		return fmt.Sprintf("%d of %d", r.near, r.nodes)
	}},
	{Name: "WORST", Text: func(r row) string { return figure(r.worst) }},
	{Name: "PROMISED", Text: func(r row) string { return figure(100 * r.promised / r.free) }},
	{Name: "CHANGE", Text: func(r row) string { return figure(100 * r.changed / r.before) }},
	{Name: "STEADY", Text: func(r row) string { return figure(100 * float64(r.steady) / float64(r.pairs)) }},
	{Name: "BY-HOUR", Text: func(r row) string {
		low, high := r.hourRange()
		return figure(low) + " to " + figure(high)
	}},
}

func (r *result) text() string {
	var b strings.Builder
	table.Write(&b, "", columns, r.rows())
	b.WriteString("\nkept by hour of the day (UTC), in percent\n")
	var ours []row
	for _, row := range r.rows() {
		if row.rival == tenon {
			ours = append(ours, row)
		}
	}
	byHour := columns[:2:2]
	for h := range 24 {
		byHour = append(byHour, table.Column[row]{Name: fmt.Sprintf("%02d", h), Text: func(r row) string {
			return figure(r.byHour[h].coverage())
		}})
	}
	table.Write(&b, "", byHour, ours)
	return b.String()
}
