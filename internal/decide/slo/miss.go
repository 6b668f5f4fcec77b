package slo

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Miss is a window in which a workload missed its objective.
type Miss struct {
	Workload node.WorkloadID `json:"workload,omitempty"`
	At       time.Time       `json:"at,omitzero"` // end of the window
	// Objective is the time within which 99 of 100 waits should end, and Tail is a
	// time that 99 of 100 waits did not exceed. Mean is the mean wait if only that
	// was measured, so that Tail is an estimate; otherwise it is 0.
	Objective time.Duration `json:"objective_ns,omitempty"`
	Tail      time.Duration `json:"tail_ns,omitempty"`
	Mean      time.Duration `json:"mean_ns,omitempty"`
	// Percentile is the name of the percentile of requests that is missed, such as
	// p99. Then Objective and Tail are times of requests. It is empty for waits.
	// Longer says that the percentile is longer than Tail, where the buckets end.
	Percentile string `json:"percentile,omitempty"`
	Longer     bool   `json:"longer,omitempty"`
	// Helpless says that BE caused hardly any of the waits.
	Helpless bool `json:"helpless,omitempty"`
	// Quota says what the workload's own quota has to do with the miss.
	Quota QuotaPart `json:"quota,omitempty"`
}

// A QuotaPart says what a workload's own quota has to do with a miss.
type QuotaPart string

// Without one of these, the quota did not throttle the workload in the window.
const (
	// Adds: it throttled the workload, which would have missed its objective all
	// the same.
	Adds QuotaPart = "adds"
	// Explains: the workload would meet its objective without its quota.
	Explains QuotaPart = "explains"
)

func missOf(at time.Time, id node.WorkloadID, want time.Duration, d spread) Miss {
	m := Miss{Workload: id, At: at, Objective: want, Tail: d.tail()}
	if d.after == nil {
		m.Mean = d.sum / time.Duration(max(d.waits, 1))
	}
	return m
}

// Happened reports whether there was a miss.
func (m Miss) Happened() bool { return !m.At.IsZero() }

// Percent returns the tail in percent of the objective.
func (m Miss) Percent() int64 {
	want := max(m.Objective, 1)
	return int64(m.Tail/want*100 + m.Tail%want*100/want) // a bucket may end after centuries
}

// Text says in one sentence how long the workload waited, and why.
func (m Miss) Text() string {
	waits := fmt.Sprintf("up to %v (p99)", roundTime(m.Tail))
	if m.Mean > 0 {
		waits = fmt.Sprintf("%v on average, so some %v (p99)", roundTime(m.Mean), roundTime(m.Tail))
	}
	text := fmt.Sprintf("%s waits %s, wants %v", m.Workload, waits, m.Objective)
	if m.Percentile != "" {
		more := ""
		if m.Longer {
			more = "more than "
		}
		text = fmt.Sprintf("%s answers requests in %s%v (%s), wants %v", m.Workload, more, roundTime(m.Tail), m.Percentile, m.Objective)
	}
	switch {
	case m.Quota == Explains:
		return text + ", because its own quota throttles it"
	case m.Quota == Adds:
		text += ", not only because its own quota throttles it"
	}
	if m.Helpless {
		text += ", hardly for BE"
	}
	return text
}

// roundTime rounds a time so that it is easy to read in a text.
func roundTime(t time.Duration) time.Duration {
	switch {
	case t >= 100*time.Millisecond:
		return t.Round(time.Millisecond)
	case t >= time.Millisecond:
		return t.Round(100 * time.Microsecond)
	}
	return t.Round(time.Microsecond)
}
