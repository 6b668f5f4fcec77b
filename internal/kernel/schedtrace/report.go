package schedtrace

import (
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Report is what the scheduler did between two moments, by its own record.
// Times of CPUs are summed over the CPUs that count.
type Report struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`

	// LSTime, BETime, OtherTime and IdleTime are the CPU time of each class.
	LSTime    time.Duration `json:"ls_time_ns"`
	BETime    time.Duration `json:"be_time_ns"`
	OtherTime time.Duration `json:"other_time_ns"`
	IdleTime  time.Duration `json:"idle_time_ns"`
	// Bursts counts how often LS came to a CPU that had not run LS.
	Bursts int `json:"ls_bursts"`

	// BesideTime is the part of LSTime in which BE ran on the same core.
	BesideTime time.Duration `json:"be_beside_ls_ns"`
	// BEStarts counts the switches to a BE thread. BEStartsBesideLS are those
	// made when LS had run on the same core for longer than Rules.Epsilon.
	BEStarts         int `json:"be_starts"`
	BEStartsBesideLS int `json:"be_starts_beside_ls"`
	// BEStartAfter is how long LS had run, of all starts beside it.
	BEStartAfter Quantiles `json:"be_start_after_ls"`
	// Expel is how long BE stayed on the sibling after LS had begun. Unexpelled
	// of them stayed until LS ended, and count with that time.
	Expel      Quantiles `json:"expel"`
	Unexpelled int       `json:"unexpelled"`

	// BEIdeal is the CPU time that was legal for BE: of all CPUs, while neither
	// they nor their siblings ran LS, nor the siblings within Rules.Hold before.
	BEIdeal time.Duration `json:"be_ideal_ns"`

	// LSWake and BEWake are the delays from being woken to running.
	LSWake Quantiles `json:"ls_wake"`
	BEWake Quantiles `json:"be_wake"`
	// LongestWait is of those that were woken and had not run at the end.
	LongestWait time.Duration `json:"longest_wait_ns"`

	// Unseen are CPUs that never switched: who runs there is unknown, and they
	// count nowhere.
	Unseen []unit.CPU `json:"unseen,omitempty"`
}

// BesideRatio is the part of the LS time with BE on the same core, from 0 to
// 1; not a number without LS.
func (r Report) BesideRatio() float64 { return float64(r.BesideTime) / float64(r.LSTime) }

// BEShare is the part that BE got of its ideal; not a number if that is 0.
func (r Report) BEShare() float64 { return float64(r.BETime) / float64(r.BEIdeal) }

// Quantiles describe a sample of durations; all zero if there are none.
type Quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// quantilesOf sorts the sample. A quantile is the smallest value with at least
// that part of the sample at or below it.
func quantilesOf(sample []time.Duration) Quantiles {
	if len(sample) == 0 {
		return Quantiles{}
	}
	slices.Sort(sample)
	at := func(q float64) time.Duration { return sample[int(math.Ceil(q*float64(len(sample))))-1] }
	return Quantiles{Count: len(sample), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: sample[len(sample)-1]}
}
