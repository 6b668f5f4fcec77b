package concurrency

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// A BelowOne judges a conclusion of the published experiment: below one CPU for each
// job, more jobs at once change the time of a job by less than 4 % on average.
type BelowOne struct {
	Cells   int           `json:"cells"` // with two jobs and more, and a limit below one CPU
	Mean    report.Number `json:"mean_change"`
	Largest report.Number `json:"largest_change"`
	Verdict string        `json:"verdict"` // supported, ruled out, cannot tell
}

// publishedChange is the change of a job's time that the published experiment calls no
// influence.
const publishedChange = 0.04

// A Crossing says from how many jobs on the jobs of one setup take at least as long as
// those of another one, which are slower with the fewest jobs.
type Crossing struct {
	Of      string        `json:"of"` // faster with the fewest jobs
	To      string        `json:"to"`
	Limit   unit.MilliCPU `json:"limit_mcpu"`
	Request unit.MilliCPU `json:"request_mcpu,omitempty"`
	Memory  unit.Bytes    `json:"memory_bytes"`
	Least   int           `json:"least_jobs"` // that were compared
	Most    int           `json:"most_jobs"`
	From    int           `json:"from_jobs,omitempty"` // 0: at no number of jobs that was compared
}

// belowOne judges limits below one CPU. It is nil if fewer than two cells have one.
func (r *Result) belowOne() *BelowOne {
	var sum, most float64
	n := 0
	for _, o := range r.Options {
		if o.Strategy != quotaStrategy || o.Limit == 0 || o.Limit >= unit.CPUs(1) || o.Asked < 2 || o.Penalty == 0 || !o.Penalty.Known() {
			continue
		}
		change := math.Abs(float64(o.Penalty) - 1)
		sum, most, n = sum+change, max(most, change), n+1
	}
	if n < 2 {
		return nil
	}
	b := &BelowOne{Cells: n, Mean: report.Number(sum / float64(n)), Largest: report.Number(most), Verdict: supported}
	switch {
	case float64(r.ControlHalf) > publishedChange || r.Control == nil && len(r.Experiment.Imported) == 0:
		b.Verdict = unclear // two equal cells differ by more
	case float64(b.Mean) >= publishedChange:
		b.Verdict = ruledOut
	}
	return b
}

// crossings finds where one setup ceases to be faster than another.
func (r *Result) crossings() (all []Crossing) {
	byPair := map[Crossing][]Comparison{}
	for _, c := range r.Comparisons {
		k := Crossing{Of: c.Of, To: c.To, Limit: c.Limit, Request: c.Request, Memory: c.Memory}
		byPair[k] = append(byPair[k], c)
	}
	for k, list := range byPair {
		list = slices.DeleteFunc(list, func(c Comparison) bool { return !c.Seconds.Known() })
		slices.SortFunc(list, func(a, b Comparison) int { return cmp.Compare(a.Jobs, b.Jobs) })
		if len(list) < 2 {
			continue
		}
		k.Least, k.Most = list[0].Jobs, list[len(list)-1].Jobs
		slower := list[0].Seconds >= 1
		if slower {
			k.Of, k.To = k.To, k.Of
		}
		for _, c := range slices.Backward(list) {
			if slower && c.Seconds > 1 || !slower && c.Seconds < 1 {
				break
			}
			k.From = c.Jobs
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Crossing) int {
		return cmp.Or(cmp.Compare(a.Limit+a.Request, b.Limit+b.Request), cmp.Compare(a.Of, b.Of), cmp.Compare(a.To, b.To), cmp.Compare(a.Memory, b.Memory))
	})
	return all
}

// text says where the crossing is.
func (c Crossing) text() string {
	limit := "without a limit"
	if c.Limit+c.Request > 0 {
		limit = "with " + limitOrRequest(c.Limit, c.Request) + " CPU each"
	}
	if c.Memory > 0 {
		limit += " and " + memoryText(c.Memory)
	}
	if c.From == 0 {
		return fmt.Sprintf("%s: %s is faster than %s with %d to %d jobs.", limit, c.Of, c.To, c.Least, c.Most)
	}
	return fmt.Sprintf("%s: %s is faster than %s with %s; from %d jobs on it is not.", limit, c.Of, c.To, textlayout.Plural(c.Least, "job", "jobs"), c.From)
}

// setupsHeld is the largest number of columns that fit into a terminal.
const setupsHeld = 8

// setupSections shows what more jobs cost in each setup, which the published experiment
// shows as a table, where setups cross, and what it says of limits below one CPU.
func (r Result) setupSections() []page.Section {
	columns := map[way][]Option{}
	counts := map[int]bool{}
	for _, o := range r.Options {
		if o.Penalty == 0 || !o.Penalty.Known() {
			continue
		}
		k := wayOf(o)
		columns[k] = append(columns[k], o)
		counts[o.Asked] = true
	}
	maps.DeleteFunc(columns, func(_ way, list []Option) bool { return len(list) < 2 })
	keys := slices.SortedFunc(maps.Keys(columns), func(a, b way) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.memory, b.memory))
	})
	t := page.Table{Heads: []page.Head{{Text: "jobs"}}}
	for _, k := range keys {
		t.Heads = append(t.Heads, page.Head{Text: k.text()})
	}
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		row := page.Row{Label: strconv.Itoa(n)}
		for _, k := range keys {
			cell := report.Unknown
			if i := slices.IndexFunc(columns[k], func(o Option) bool { return o.Asked == n }); i >= 0 {
				cell = fmt.Sprintf("%+.0f %%", 100*(float64(columns[k][i].Penalty)-1))
			}
			row.Cells = append(row.Cells, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	s := page.Section{
		Title: "What more jobs cost, by setup", Table: t,
		Legend: "The change of a job's time from that of a job alone in the same setup.",
	}
	if len(keys) == 0 {
		s = page.Section{}
	} else if len(keys) > setupsHeld {
		s.On = page.OnlyHTML
	}
	claims := page.Section{
		Title:  "Which setup is faster, and from how many jobs on it is not",
		Legend: "By the ratios of the times of a job. Their intervals stand in the table of one way beside another; within them a difference may be noise.",
	}
	if len(r.Crossings) == 0 {
		claims.Legend = ""
	}
	for _, c := range r.Crossings {
		claims.Items = append(claims.Items, c.text())
	}
	return []page.Section{s, claims, r.belowOneSection()}
}

func (r Result) belowOneSection() page.Section {
	b := r.BelowOne
	if b == nil {
		return page.Section{}
	}
	figure := fmt.Sprintf("Over %d cells with two jobs and more, the time of a job changes by %s %% on average and by %s %% at most.",
		b.Cells, report.Scaled(b.Mean, 100, 1), report.Scaled(b.Largest, 100, 1))
	if b.Verdict == unclear {
		figure += " Two equal cells are not known to be alike within 4 %, so this machine cannot tell."
	}
	return page.Section{Title: "What the published experiment concludes", Claims: []page.Claim{{
		Statement: "Below one CPU for each job, more jobs at once change the time of a job by less than 4 % on average", Verdict: b.Verdict, Explanation: figure,
	}}}
}

// A way is a setup: how jobs run, whatever their number.
type way struct {
	name   string
	cpu    unit.MilliCPU
	isAsk  bool
	memory unit.Bytes
}

func wayOf(o Option) way {
	return way{name(o.cell()), o.Limit + o.Request, o.Request > 0, o.Memory}
}

func (s way) text() string {
	text := s.name
	if s.cpu > 0 {
		limit, request := s.cpu, unit.MilliCPU(0)
		if s.isAsk {
			limit, request = 0, s.cpu
		}
		text += " " + limitOrRequest(limit, request)
	}
	if s.memory > 0 {
		text += " " + memoryText(s.memory)
	}
	return text
}
