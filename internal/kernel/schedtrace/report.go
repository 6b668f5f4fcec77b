package schedtrace

import (
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Report describes what the scheduler did between two moments, according to
// the trace. CPU times are sums over the judged CPUs.
type Report struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`

	// LSTime, BETime, OtherTime and IdleTime are the CPU time of each class.
	LSTime    time.Duration `json:"ls_time_ns"`
	BETime    time.Duration `json:"be_time_ns"`
	OtherTime time.Duration `json:"other_time_ns"`
	IdleTime  time.Duration `json:"idle_time_ns"`
	// Bursts is the number of times that a CPU switched from another class to LS.
	Bursts int `json:"ls_bursts"`

	// BesideTime is the part of LSTime during which BE ran on the same core.
	BesideTime time.Duration `json:"be_beside_ls_ns"`
	// BEStarts is the number of switches to a BE thread. At BEStartsBesideLS of
	// them, LS had run on the same core for longer than Rules.Epsilon.
	BEStarts         int `json:"be_starts"`
	BEStartsBesideLS int `json:"be_starts_beside_ls"`
	// BEStartAfter describes how long LS had already run on the core when BE
	// started there.
	BEStartAfter Quantiles `json:"be_start_after_ls"`
	// Expel describes how long BE stayed on the sibling after LS had started.
	// Unexpelled is the number of cases, also part of Expel, in which LS ended
	// before BE left.
	Expel      Quantiles `json:"expel"`
	Unexpelled int       `json:"unexpelled"`

	// BEIdeal is the CPU time that BE was allowed to use. The time of a CPU
	// counts if LS does not run on it or on a sibling, and if no sibling has
	// run LS within the last Rules.Hold.
	BEIdeal time.Duration `json:"be_ideal_ns"`

	// LSWake and BEWake are the delays between wake-up and run.
	LSWake Quantiles `json:"ls_wake"`
	BEWake Quantiles `json:"be_wake"`
	// LongestWait is the longest wait that was not over at the end of the
	// record: its thread was woken but did not run.
	LongestWait time.Duration `json:"longest_wait_ns"`

	// Unseen are the CPUs that never switched. They are not judged, because
	// their threads are unknown.
	Unseen []unit.CPU `json:"unseen,omitempty"`
}

// BesideRatio is the fraction of LSTime, 0 to 1, in which BE ran on the same
// core. It is NaN if LS did not run.
func (r Report) BesideRatio() float64 { return float64(r.BesideTime) / float64(r.LSTime) }

// BEShare is BETime divided by BEIdeal. It is NaN if BEIdeal is 0.
func (r Report) BEShare() float64 { return float64(r.BETime) / float64(r.BEIdeal) }

// Quantiles describe a sample of durations; all are zero for an empty sample.
type Quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// quantilesOf sorts the sample and returns its quantiles. The quantile 0.9, for
// example, is the smallest value for which at least 90 % of the sample is not larger.
func quantilesOf(sample []time.Duration) Quantiles {
	if len(sample) == 0 {
		return Quantiles{}
	}
	slices.Sort(sample)
	at := func(q float64) time.Duration { return sample[int(math.Ceil(q*float64(len(sample))))-1] }
	return Quantiles{Count: len(sample), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: sample[len(sample)-1]}
}
