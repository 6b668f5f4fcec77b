package report

import (
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/stat"
)

// A Result is the result of an experiment: result.json. Its keys are stable:
// later versions only add keys. A number that is not known is null.
//
//	modes.MODE.p50_us …          percentile of each run; median over the blocks
//	modes.MODE.pooled.p50_us …   percentile of all requests of all valid runs together
//	ratios.MODE.p99 …            to exclusive: estimate, 95 % interval low to high
//	ratios_warm.MODE.p99 …       to exclusive-warm
//	runqueue_delay_ratios.MODE   to_exclusive, to_exclusive_warm
//	claims[], void_runs[]
//
// A ratio compares the runs of one block (stat.Ratio). It is not the quotient
// of the medians in modes.
type Result = ResultOf[Experiment, ModeResult]

// ResultOf is a Result for one kind of experiment. E is the type of the
// experiment, and M is the type of a mode's result.
type ResultOf[E, M any] struct {
	Schema     int                 `json:"schema"` // 1
	Experiment E                   `json:"experiment"`
	Blocks     int                 `json:"blocks"` // with at least one valid run
	Order      []Mode              `json:"mode_order"`
	Modes      map[Mode]M          `json:"modes"`
	Ratios     map[Mode]Ratios     `json:"ratios"`
	RatiosWarm map[Mode]Ratios     `json:"ratios_warm"`
	RunDelay   map[Mode]DelayRatio `json:"runqueue_delay_ratios"`
	Waiting    map[Mode]DelayRatio `json:"waiting_ratios"`
	Control    *Control            `json:"aa_control"` // null without mode exclusive-aa
	Claims     []Claim             `json:"claims"`
	VoidRuns   []VoidRun           `json:"void_runs"`
	Warnings   []string            `json:"warnings"`
}

// Extend makes the result of one kind of experiment from the common result.
func Extend[E, M any](r Result, e E, mode func(Mode, ModeResult) M) ResultOf[E, M] {
	out := ResultOf[E, M]{
		Schema: r.Schema, Experiment: e, Blocks: r.Blocks, Order: r.Order, Modes: map[Mode]M{},
		Ratios: r.Ratios, RatiosWarm: r.RatiosWarm, RunDelay: r.RunDelay, Waiting: r.Waiting, Control: r.Control,
		Claims: r.Claims, VoidRuns: r.VoidRuns, Warnings: r.Warnings,
	}
	for m, result := range r.Modes {
		out.Modes[m] = mode(m, result)
	}
	return out
}

// A ModeResult is the result of one mode. Its fields are medians over the
// blocks with a valid run, except Pooled, Runs, Void, Requests and Errors.
type ModeResult struct {
	Runs int `json:"runs"`      // number of used runs: one per block
	Void int `json:"void_runs"` // number of runs that are not used
	// Failed is the number of those void runs that are void only because the
	// service failed beside the batch work (Evidence.Failures).
	Failed   int   `json:"failed_runs,omitempty"`
	Requests int64 `json:"requests"`
	// Answered is null with an open loop, whose rate is the offered one.
	Answered Number         `json:"answered_per_second,omitzero"`
	Errors   map[string]int `json:"errors,omitempty"`

	P50  Number `json:"p50_us"`
	P75  Number `json:"p75_us"`
	P90  Number `json:"p90_us"`
	P99  Number `json:"p99_us"`
	P999 Number `json:"p999_us"`
	Max  Number `json:"max_us"`
	Mean Number `json:"mean_us"`
	// Pooled is computed from the sum of the histograms of all valid runs. It
	// is null if the client has no histograms.
	Pooled *load.Latency `json:"pooled"`

	// WithStalls is nil if no run stored the requests that were left out.
	WithStalls *WithStalls `json:"with_client_stalls,omitempty"`

	CPUPercent Number `json:"cpu_percent"` // of the tested CPUs
	LSCPU      Number `json:"ls_cpus_used"`
	BECPU      Number `json:"be_cpus_used"`
	OtherCPU   Number `json:"other_cpus_used"`
	// NodeMetricsCPU is the amount of CPU that the whole node used, according to
	// the metrics API of the cluster, or to the counter of its kubelet.
	NodeMetricsCPU Number `json:"node_metrics_cpus_used"`
	FramesPerS     Number `json:"be_frames_per_second"`
	FramesPerCPU   Number `json:"be_frames_per_cpu_second"`
	// Goodput is BE's frame rate divided by a possible rate. BE would reach
	// that rate on the CPU that mode exclusive leaves idle, with as many frames
	// per CPU as BE makes alone.
	Goodput     Number `json:"be_goodput_ratio"`
	DelayPerRun Number `json:"ls_runqueue_delay_us"` // per timeslice
	Waiting     Number `json:"ls_waiting_us_per_second"`
	LSThrottled Number `json:"ls_throttled_ratio"` // throttled time as a share of time; may exceed 1 with several CPUs
	BEThrottled Number `json:"be_throttled_ratio"`
	PSICPU      Number `json:"psi_cpu_some_ratio"`
	Steal       Number `json:"steal_ratio"`
	ClientLag   Number `json:"client_lag_p99_us"`
	ClientCPU   Number `json:"client_cpu_ratio"`
}

// WithStalls has the latencies of all requests, even of those that were left out
// because a stall of the client delayed them. They are medians over the blocks.
type WithStalls struct {
	LeftOut Number `json:"left_out_ratio"` // share of the requests
	P50     Number `json:"p50_us"`
	P90     Number `json:"p90_us"`
	P99     Number `json:"p99_us"`
	P999    Number `json:"p999_us"`
	Mean    Number `json:"mean_us"`
}

// Ratios has each percentile of a mode, divided by the same percentile of a
// baseline. The keys are p50, p75, p90, p99, p999, max and mean.
type Ratios map[string]Interval

// A DelayRatio compares run-queue delays, either their mean per timeslice or
// their sum per second.
type DelayRatio struct {
	ToExclusive     Interval `json:"to_exclusive"`
	ToExclusiveWarm Interval `json:"to_exclusive_warm"`
}

// An Interval is an estimate with its confidence interval.
type Interval = stat.Estimate

// A Number is a measured value. NaN and the infinities are null in JSON.
type Number = stat.Number

// A Control compares exclusive-aa with exclusive, which are two names for the
// same mode. A claim about a smaller difference than half the width of this
// comparison's interval cannot be trusted on this machine.
type Control struct {
	P99       Interval `json:"p99"`
	RunDelay  Interval `json:"runqueue_delay"`
	HalfWidth Number   `json:"p99_half_width"`
	Bias      Number   `json:"p99_significant_bias"`
	Resolves  bool     `json:"resolves_margin"`
	// Metrics are the controls of all measures that have claims: p90, mean,
	// p99, waiting.
	Metrics map[string]Resolved `json:"metrics"`
}

// Resolved is the comparison of the two equal modes, for one measure.
type Resolved struct {
	Ratio     Interval `json:"ratio"`
	HalfWidth Number   `json:"half_width"`
	Bias      Number   `json:"significant_bias"`
	Resolves  bool     `json:"resolves_margin"`
}

// A Claim is a statement that the experiment tests, with its verdict.
type Claim struct {
	Name        string              `json:"name"`
	Statement   string              `json:"statement"`
	Verdict     stat.Verdict        `json:"verdict"`
	Final       bool                `json:"final"` // the verdict stands: given at a planned look or at a planned end
	Numbers     map[string]Interval `json:"numbers"`
	Explanation string              `json:"explanation"`
	// About lists the modes whose runs decide the verdict. Favours lists those
	// of them for which the verdicts met, tie and differs speak.
	About   []Mode `json:"-"`
	Favours []Mode `json:"-"`
}

// A VoidRun is a run that the analysis does not use, and the reasons for that.
type VoidRun struct {
	Index   int      `json:"index"`
	Block   int      `json:"block"`
	Mode    Mode     `json:"mode"`
	Reasons []string `json:"reasons"`
}
