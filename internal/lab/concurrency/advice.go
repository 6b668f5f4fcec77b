package concurrency

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// An Advice is the best of the measured ways to run jobs, for one goal.
type Advice struct {
	cell       jobs.Cell       // the way that is advised
	Goal       string          `json:"goal"`
	How        string          `json:"how"`
	Limit      unit.MilliCPU   `json:"limit_mcpu"`             // 0: no limit, or it is not known
	Request    unit.MilliCPU   `json:"request_mcpu,omitempty"` // of jobs whose CPU is no limit
	Memory     unit.Bytes      `json:"memory_bytes"`
	Jobs       int             `json:"jobs"` // at once on a node
	Seconds    report.Interval `json:"job_seconds"`
	Hourly     report.Interval `json:"jobs_per_hour"`
	CPUSeconds report.Number   `json:"cpu_seconds"`
	// Longest is the time of the slowest job. In a prediction it is the mean
	// time, multiplied by the largest ratio of both in the measured ways.
	Longest report.Number `json:"longest_job_seconds"`
	// Equal lists the other ways to run jobs that count as equal to this one in
	// the measurement. The advised way is the simplest of all these.
	Equal []string `json:"equal,omitempty"`
	// Duration is the time that one node needs for all jobs of the goal, round by
	// round (see jobs.Option.Finish). It is 0 if the goal has no number of jobs.
	Duration time.Duration `json:"duration_ns,omitempty"`
	// Price is the cost of one job, in the currency in which the price of a node
	// is given.
	Price report.Number `json:"price_per_job,omitzero"`
	// Warnings are facts about the measurement that limit the advice.
	Warnings []string `json:"warnings,omitempty"`
	// Patch is a patch for a Job, if the user wants one.
	Patch string `json:"patch,omitempty"`
}

// Advise returns the best measured way to run jobs for a goal. price is the
// cost of a node for an hour, or 0 if it is not known. If no measured way
// reaches the goal, Advise returns jobs.ErrNoOption: it never extrapolates.
func (r Result) Advise(g jobs.Goal, price float64) (Advice, error) {
	best, ties, err := r.Best(g)
	if err != nil {
		return Advice{}, err
	}
	a := adviceOf(best, ties, r.measured, g, price)
	a.Goal, a.Warnings = goalText(g, true), r.Warnings
	return a, nil
}

// Cell returns the advised way to run jobs.
func (a Advice) Cell() jobs.Cell { return a.cell }

// CPUs returns how many CPUs a job used on average.
func (a Advice) CPUs() float64 { return float64(a.CPUSeconds) / a.Seconds.Value }

// adviceOf makes an advice from the best of all options.
func adviceOf(best jobs.Option, ties, all []jobs.Option, g jobs.Goal, price float64) Advice {
	o := optionOf(best, all)
	a := Advice{
		cell: best.Cell, How: name(best.Cell), Limit: o.Limit, Request: o.Request, Memory: o.Memory, Jobs: o.Asked,
		Seconds: o.Seconds, Hourly: o.Hourly, CPUSeconds: o.CPUSeconds,
		Longest: report.Number(best.Longest),
	}
	for _, t := range ties {
		a.Equal = append(a.Equal, describe(t.Cell))
	}
	if g.Jobs > 0 {
		a.Duration = roundUp(time.Duration(best.Finish(g.Jobs) * float64(time.Second)))
	}
	if price > 0 {
		a.Price = report.Number(price / best.Hourly.Value)
	}
	return a
}

// roundUp rounds a time up to a second, and a short one up to a tenth of a second.
func roundUp(d time.Duration) time.Duration {
	step := time.Second
	if d < 100*time.Second {
		step = time.Second / 10
	}
	return (d - time.Microsecond + step).Truncate(step)
}

// goalText describes a goal. all is false if some ways to run jobs could not be
// predicted. It is then not known which way ends the most jobs.
func goalText(g jobs.Goal, all bool) string {
	best := "the most jobs an hour"
	switch {
	case g.Shortest && all:
		best = "the shortest job"
	case g.Shortest:
		best = "the best of the ways that can be predicted, by the time of a job"
	case !all:
		best = "the best of the ways that can be predicted, by jobs an hour"
	}
	parts := []string{best}
	if g.Deadline > 0 {
		parts = append(parts, "each within "+durationText(g.Deadline))
	}
	if g.Jobs > 0 {
		parts = append(parts, fmt.Sprintf("%s within %s", textlayout.Plural(g.Jobs, "job", "jobs"), durationText(g.Within)))
	}
	return strings.Join(parts, ", ")
}

// durationText prints a time without units that are 0: 2h, not 2h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if short, has := strings.CutSuffix(text, zero); has && strings.HasSuffix(short, map[string]string{"0s": "m", "0m": "h"}[zero]) {
			text = short
		}
	}
	return text
}

// Text prints the advice as sentences.
func (a Advice) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", a.describeAction(), a.what())
	if len(a.Equal) > 0 {
		fmt.Fprintf(&b, "This measurement cannot tell it from: %s.\n", strings.Join(a.Equal, "; "))
	}
	if a.Duration > 0 {
		fmt.Fprintf(&b, "All jobs end on one node after %s.\n", durationText(a.Duration))
	}
	if a.Price.Known() && a.Price > 0 {
		fmt.Fprintf(&b, "A job costs %s.\n", jobs.Figure(float64(a.Price)))
	}
	return b.String()
}

// describeAction returns the advised action in words. The method what returns
// its effect in words. The method line returns both.
func (a Advice) describeAction() string {
	limit := "without a CPU limit"
	switch {
	case a.Limit > 0:
		limit = fmt.Sprintf("with a limit of %s", cpusText(a.Limit))
	case a.Request > 0 && isBurst(a.cell):
		limit = fmt.Sprintf("with a request of %s and a higher limit that is not known", cpusText(a.Request))
	case a.Request > 0:
		limit += fmt.Sprintf(", with a request of %s", cpusText(a.Request))
	}
	return fmt.Sprintf("%s: %s at once on a node, %s (%s).", capital(a.Goal), textlayout.Plural(a.Jobs, "job", "jobs"), limit, a.How)
}

func (a Advice) what() string {
	used := "how much CPU time a job uses is not known"
	if a.CPUSeconds.Known() {
		used = fmt.Sprintf("a job uses %s CPU-s", figure(a.CPUSeconds))
	}
	return fmt.Sprintf("A job takes %s s%s, the slowest %s s; a node ends %s jobs an hour%s; %s.",
		figure(a.Seconds.Value), span(a.Seconds), figure(a.Longest), figure(a.Hourly.Value), span(a.Hourly), used)
}

func (a Advice) line() string {
	line := a.describeAction() + " " + a.what()
	if len(a.Equal) > 0 {
		line += fmt.Sprintf(" It is the simplest of %d ways between which this measurement cannot decide.", len(a.Equal)+1)
	}
	return line
}

// span prints an interval. It prints nothing if the value was measured only
// once.
func span(i report.Interval) string {
	switch {
	case i.Blocks < 2:
		return ""
	case i.IsVague():
		return fmt.Sprintf(" (%d runs differ too much for an interval)", i.Blocks)
	}
	return fmt.Sprintf(" (%s to %s)", figure(i.Low), figure(i.High))
}

func figure[F ~float64](n F) string {
	if !report.Number(n).Known() {
		return report.Unknown
	}
	return jobs.Figure(float64(n))
}
