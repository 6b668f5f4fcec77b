package concurrency

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/layout"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// An Advice is the best of the measured ways to run jobs, for one goal.
type Advice struct {
	Goal       string          `json:"goal"`
	How        string          `json:"how"`
	Limit      unit.MilliCPU   `json:"limit_mcpu"` // 0: no limit
	Memory     unit.Bytes      `json:"memory_bytes"`
	Jobs       int             `json:"jobs"` // at once on a node
	Seconds    report.Interval `json:"job_seconds"`
	Hourly     report.Interval `json:"jobs_per_hour"`
	CPUSeconds report.Number   `json:"cpu_seconds"`
	// Longest is the time of the slowest job. For a prediction it is as much longer
	// than the mean as in the measured way with the largest such ratio.
	Longest report.Number `json:"longest_job_seconds"`
	// Equal lists the other ways to run jobs that this measurement cannot tell
	// from the advice. The advice is the simplest of them all.
	Equal []string `json:"equal,omitempty"`
	// Duration is the time that one node needs for all jobs of the goal, round by
	// round (see jobs.Option.Finish). It is 0 if the goal has no number of jobs.
	Duration time.Duration `json:"duration_ns,omitempty"`
	// Price is the cost of one job, in the currency in which the price of a node
	// is given.
	Price report.Number `json:"price_per_job,omitzero"`
}

// Advise returns the best measured way to run jobs for a goal. price is the
// cost of a node for an hour, or 0 if it is not known. If no measured way
// reaches the goal, it returns jobs.ErrNoOption: advice never extrapolates.
func (r Result) Advise(g jobs.Goal, price float64) (Advice, error) {
	best, ties, err := r.Best(g)
	if err != nil {
		return Advice{}, err
	}
	return adviceOf(best, ties, r.measured, g, price), nil
}

// adviceOf makes an advice from the best of all options.
func adviceOf(best jobs.Option, ties, all []jobs.Option, g jobs.Goal, price float64) Advice {
	o := optionOf(best, all)
	a := Advice{
		Goal: goalText(g), How: name(best.Cell), Limit: o.Limit, Memory: o.Memory, Jobs: o.Asked,
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

func goalText(g jobs.Goal) string {
	var parts []string
	if g.Shortest {
		parts = append(parts, "the shortest job")
	} else {
		parts = append(parts, "the most jobs an hour")
	}
	if g.Deadline > 0 {
		parts = append(parts, "each within "+g.Deadline.String())
	}
	if g.Jobs > 0 {
		parts = append(parts, fmt.Sprintf("%d jobs within %v", g.Jobs, g.Within))
	}
	return strings.Join(parts, ", ")
}

// Text prints the advice as sentences.
func (a Advice) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", a.describeAction(), a.what())
	if len(a.Equal) > 0 {
		fmt.Fprintf(&b, "This measurement cannot tell it from: %s.\n", strings.Join(a.Equal, "; "))
	}
	if a.Duration > 0 {
		fmt.Fprintf(&b, "All jobs end on one node after %v.\n", a.Duration)
	}
	if a.Price.Known() && a.Price > 0 {
		fmt.Fprintf(&b, "A job costs %s.\n", strconv.FormatFloat(float64(a.Price), 'g', 3, 64))
	}
	return b.String()
}

// describeAction returns a text about what to do. Method what returns a text
// about the effect of that, and method line returns both.
func (a Advice) describeAction() string {
	limit := "without a CPU limit"
	if a.Limit > 0 {
		limit = fmt.Sprintf("with a CPU limit of %s", limitText(a.Limit))
	}
	return fmt.Sprintf("%s: %s at once on a node, %s (%s).", capital(a.Goal), layout.Plural(a.Jobs, "job", "jobs"), limit, a.How)
}

func (a Advice) what() string {
	return fmt.Sprintf("A job takes %s s%s, the slowest %s s; a node ends %s jobs an hour%s; a job uses %s CPU-s.",
		seconds(float64(a.Seconds.Estimate)), span(a.Seconds), seconds(float64(a.Longest)), report.FormatNumber(a.Hourly.Estimate, 1), span(a.Hourly), costText(float64(a.CPUSeconds)))
}

func (a Advice) line() string {
	line := a.describeAction() + " " + a.what()
	if len(a.Equal) > 0 {
		line += fmt.Sprintf(" It is the simplest of %d ways between which this measurement cannot decide.", len(a.Equal)+1)
	}
	return line
}

// span prints an interval. If the value was measured only once, it prints
// nothing.
func span(i report.Interval) string { return spanOf(i, 1) }

func spanOf(i report.Interval, digits int) string {
	if i.Blocks < 2 {
		return ""
	}
	if i.IsVague() {
		return fmt.Sprintf(" (%d runs differ too much for an interval)", i.Blocks)
	}
	return fmt.Sprintf(" (%s to %s)", report.FormatNumber(i.Low, digits), report.FormatNumber(i.High, digits))
}

// Patch prints the advice as a strategic merge patch for a Job of Kubernetes.
// The name of the Job's container is the argument.
func (a Advice) Patch(container string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: for one node\nspec:\n  parallelism: %d\n  template:\n    spec:\n      containers:\n      - name: %s\n        resources:\n", a.Goal, a.Jobs, strconv.Quote(container))
	request := strconv.Quote(fmt.Sprintf("%dm", int(math.Ceil(a.cpus()*1000))))
	fmt.Fprintf(&b, "          requests:\n            cpu: %s\n", request)
	if a.Memory > 0 {
		fmt.Fprintf(&b, "            memory: \"%d\"\n", a.Memory)
	}
	b.WriteString("          limits:\n")
	if a.Limit > 0 {
		fmt.Fprintf(&b, "            cpu: \"%dm\"\n", a.Limit)
	} else {
		b.WriteString("            cpu: null\n")
	}
	if a.Memory > 0 {
		fmt.Fprintf(&b, "            memory: \"%d\"\n", a.Memory)
	}
	return b.String()
}

// cpus returns how many CPUs a job used on average. A job should request as
// many.
func (a Advice) cpus() float64 { return float64(a.CPUSeconds / a.Seconds.Estimate) }
