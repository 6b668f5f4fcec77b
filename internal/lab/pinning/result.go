package pinning

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// A Result is the result of an experiment (result.json).
type Result struct {
	Experiment Experiment `json:"experiment"`
	Parts      []Part     `json:"parts"`
	Void       []string   `json:"void_runs,omitempty"`
	Warnings   []string   `json:"warnings,omitempty"`
}

// Result returns the content of result.json.
func (r Result) Result() any { return r }

// A Part is the result of the job, or of the web servers.
type Part struct {
	Name  string `json:"part"`
	Modes []Row  `json:"modes"`
	// Factors divide the change from shared to pinned into single differences.
	Factors []Factor `json:"factors"`
	// Claims is false if the speeds of this part must not be compared: the
	// machine is too small, or the client ran on the tested node.
	Claims bool `json:"claims_speed"`

	speeds bool // the tables show the speeds
}

// A Row has the figures of one mode.
type Row struct {
	Mode Mode `json:"mode"`
	Runs int  `json:"runs"`
	// Values holds the figures of the mode as means over blocks, by their key.
	Values map[string]report.Interval `json:"values"`
	// Change holds the same figures relative to shared, within blocks.
	Change map[string]report.Interval `json:"change_from_shared"`
	speed  stat.Sample                // of the figure by which the part is judged
}

// A Factor compares two modes that differ in one thing. It shows the effect of
// this thing.
type Factor struct {
	Of     string          `json:"of"` // the step that the comparison belongs to, see steps
	From   Mode            `json:"from"`
	To     Mode            `json:"to"`
	Change report.Interval `json:"change"` // relative change: of the time of the job, or of the requests per second of the servers
}

// A figure is a column of the tables.
type figure struct {
	key, head string
	parts     []string
	digits    int
	of        func(Run) (float64, bool)
}

// showsFigure reports whether the tables of a part show a figure. They show it if at
// least one mode has it. But on a small machine, the part with web servers shows no
// speed. On a node of a cluster, it always shows the columns of wrk, as published.
func (f figure) showsFigure(p Part) bool {
	known := slices.ContainsFunc(p.Modes, func(r Row) bool { _, ok := r.Values[f.key]; return ok })
	return known && (p.speeds || slices.Contains(f.parts, Pi))
}

var figures = []figure{
	{"seconds", "seconds", []string{Pi}, 2, func(r Run) (float64, bool) { return r.PiResult.Seconds, true }},
	{"requests_per_second", "requests/s", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.Rate, true }},
	{"mean_us", "average", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.Mean, true }},
	{"stdev_us", "deviation", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.Stdev, true }},
	{"max_us", "max", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.Max, true }},
	{"p50_us", "50 %", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.P50, true }},
	{"p75_us", "75 %", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.P75, true }},
	{"p90_us", "90 %", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.P90, true }},
	{"p99_us", "99 %", []string{NGINX}, 0, func(r Run) (float64, bool) { return r.Closed.P99, true }},
	{"open_mean_us", "open average", []string{NGINX}, 0, func(r Run) (float64, bool) { return openOf(r).Mean, r.Open != nil }},
	{"open_p50_us", "open 50 %", []string{NGINX}, 0, func(r Run) (float64, bool) { return openOf(r).P50, r.Open != nil }},
	{"open_p99_us", "open 99 %", []string{NGINX}, 0, func(r Run) (float64, bool) { return openOf(r).P99, r.Open != nil }},
	{"cpu_seconds", "CPU-s", []string{Pi, NGINX}, 2, func(r Run) (float64, bool) { return r.CPU, r.CPU > 0 }},
	{"throttled_percent", "held %", []string{Pi, NGINX}, 0, func(r Run) (float64, bool) {
		return 100 * float64(r.Throttled) / float64(max(r.Periods, 1)), r.CPU > 0
	}},
	{"waiting_per_second", "waits s/s", []string{Pi, NGINX}, 2, func(r Run) (float64, bool) { return r.Waiting / r.Seconds, r.Seconds > 0 && r.CPU > 0 }},
	{"migrations_per_cpu_second", "moves/CPU-s", []string{Pi, NGINX}, 1, perCPU(func(r Run) *float64 { return r.Moves })},
	{"switches_per_cpu_second", "switches/CPU-s", []string{Pi, NGINX}, 0, perCPU(func(r Run) *float64 { return r.Switches })},
}

func openOf(r Run) OpenLoop {
	if r.Open == nil {
		return OpenLoop{}
	}
	return *r.Open
}

func perCPU(of func(Run) *float64) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		n := of(r)
		if n == nil || r.CPU <= 0 {
			return 0, false
		}
		return *n / r.CPU, true
	}
}

// speed is the figure by which each part is judged.
var speed = map[string]string{Pi: "seconds", NGINX: "requests_per_second"}

// A step is a pair of modes whose difference a part shows. A Factor is the
// measured difference.
type step struct {
	of       string
	from, to Mode
}

// steps lists the pairs of modes that a part compares. In mode shared-free the
// job may use more CPUs than its limit. Therefore this mode differs from other
// modes in more than one thing, and Pi has no step with it. A web server has as
// many workers as its limit has CPUs.
var steps = map[string][]step{
	Pi: {
		{"the same again", Shared, SharedAA},
		{"own CPUs under the quota", Shared, PinnedQuota},
		{"no quota on own CPUs", PinnedQuota, Pinned},
		{"both", Shared, Pinned},
		{"warm CPUs", Shared, SharedWarm},
		{"the worst CPUs", Pinned, PinnedWorst},
		{"a pool", Shared, StaticBurst},
	},
	NGINX: {
		{"the same again", Shared, SharedAA},
		{"no quota", Shared, SharedFree},
		{"own CPUs", SharedFree, Pinned},
		{"both", Shared, Pinned},
		{"own CPUs under the quota", Shared, PinnedQuota},
		{"warm CPUs", Shared, SharedWarm},
		{"the worst CPUs", Pinned, PinnedWorst},
		{"a pool", Shared, StaticBurst},
	},
}

// Analyse turns the runs of an experiment into its result.
func Analyse(e Experiment, runs []Run) Result {
	r := Result{Experiment: e}
	for _, run := range runs {
		for _, why := range run.Void {
			r.Void = append(r.Void, fmt.Sprintf("run %d, %s, %s: %s", run.Index, run.Part, run.Mode, why))
		}
		if run.PiResult != nil && run.PiResult.Right < run.PiResult.Digits {
			r.Warnings = append(r.Warnings, fmt.Sprintf("run %d: only %d of %d digits are right", run.Index, run.PiResult.Right, run.PiResult.Digits))
		}
	}
	if e.Blocks < 2 {
		r.Warnings = append(r.Warnings, "Each mode ran once: there are no intervals.")
	}
	for _, name := range e.Parts {
		r.Parts = append(r.Parts, part(name, e, runs))
	}
	return r
}

func part(name string, e Experiment, runs []Run) Part {
	p := Part{Name: name, Claims: name == Pi || e.Servers > 1 && !e.ClientOnNode}
	p.speeds = p.Claims || e.Node != ""
	rows := map[Mode]Row{}
	samples := map[Mode]map[string]stat.Sample{}
	for _, m := range e.Modes {
		row := Row{Mode: m, Values: map[string]report.Interval{}, Change: map[string]report.Interval{}}
		samples[m] = map[string]stat.Sample{}
		for _, run := range runs {
			if run.Part != name || run.Mode != m || len(run.Void) > 0 {
				continue
			}
			row.Runs++
			for _, f := range figures {
				if !slices.Contains(f.parts, name) {
					continue
				}
				if v, known := f.of(run); known {
					if samples[m][f.key] == nil {
						samples[m][f.key] = stat.Sample{}
					}
					samples[m][f.key][run.Block] = v
				}
			}
		}
		for key, s := range samples[m] {
			row.Values[key] = stat.Describe(s)
			if base := samples[Shared][key]; base != nil {
				row.Change[key] = stat.Ratio(s, base, paired.Rule{})
			}
		}
		row.speed = samples[m][speed[name]]
		if row.Runs > 0 {
			p.Modes, rows[m] = append(p.Modes, row), row
		}
	}
	for _, s := range steps[name] {
		from, to := rows[s.from], rows[s.to]
		if from.Runs == 0 || to.Runs == 0 {
			continue
		}
		p.Factors = append(p.Factors, Factor{s.of, s.from, s.to, stat.Ratio(to.speed, from.speed, paired.Rule{})})
	}
	return p
}
