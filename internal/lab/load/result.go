package load

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// IntervalLength is the length of one Interval of a Result.
const IntervalLength = 100 * time.Millisecond

// A Result is what a run measured. It travels as JSON from a subprocess or a
// second machine; the JSON keys are stable.
type Result struct {
	Schema      int           `json:"schema"` // 1
	URL         string        `json:"url"`
	Loop        string        `json:"loop"` // "open" (Run) or "closed" (Saturate)
	Arrival     Arrival       `json:"arrival,omitempty"`
	Seed        uint64        `json:"seed"`
	CPUs        unit.CPUSet   `json:"cpus"` // one thread on each
	Connections int           `json:"connections"`
	Limits      Limits        `json:"limits"`
	Started     time.Time     `json:"started"`   // when the warm-up began
	Warmup      time.Duration `json:"warmup_ns"` // left out of the figures below, in whole intervals
	Length      time.Duration `json:"length_ns"` // of the measured part, which the figures below are about

	// OfferedRate counts the requests that were due in the measured part,
	// AchievedRate those that were answered well within it, per second.
	OfferedRate  float64 `json:"offered_requests_per_second"`
	AchievedRate float64 `json:"achieved_requests_per_second"`

	Counts
	// Reconnects over the whole run, warm-up included: the server closed an
	// idle connection or announced that it would close.
	Reconnects int64 `json:"reconnects"`

	// Latency is from the intended send (Run) or the actual send (Saturate)
	// to the last byte of a good answer, without the Spoiled requests.
	Latency Latency `json:"latency"`
	// FromSend is Latency without Lag: what it would be had the client sent
	// each request when it was due. The difference is the client's own part.
	FromSend Latency `json:"latency_from_send"`
	// Lag is how late the client sent requests for which a connection was
	// free when they were due.
	Lag Latency `json:"client_lag"`
	// BusyRatio is the share of its CPUs that the client used, without the
	// time in which it only watched the clock and its sockets.
	BusyRatio float64 `json:"client_busy_ratio"`

	// Void says why the run must not be used; empty: it may.
	Void []string `json:"void,omitempty"`
	// Hints explain socket errors and how to avoid them on this machine.
	Hints []string `json:"hints,omitempty"`

	// Intervals cover the run from Started on, warm-up included, one after
	// the other, each IntervalLength long (the last one may be shorter).
	Intervals []Interval `json:"intervals"`

	// LatencyHistogram (µs, 1 µs to 60 s, 3 digits) and LagHistogram (ns, to
	// 60 s, 3 digits) are those of the measured part.
	LatencyHistogram Histogram `json:"latency_histogram_us"`
	LagHistogram     Histogram `json:"client_lag_histogram_ns"`
}

// Counts are the fates of requests. A request belongs to the interval in
// which it was due.
type Counts struct {
	Scheduled int64 `json:"scheduled"`
	Sent      int64 `json:"sent"`
	Completed int64 `json:"completed"` // answered with a 2xx status, whenever that was
	// WaitedForConnection counts the requests that were due when all
	// connections were busy. They are no errors and have no lag.
	WaitedForConnection int64 `json:"waited_for_connection"`
	// Spoiled counts the requests that were due while the client itself did
	// not run, or right after (see stalls). They are counted above, and left
	// out of Latency and FromSend.
	Spoiled int64  `json:"spoiled_by_client"`
	Errors  Errors `json:"errors"`
}

// Errors counts failed requests (and, under Connect, failed attempts to
// connect) by kind.
type Errors struct {
	Connect int64 `json:"connect"`
	Write   int64 `json:"write"`
	Read    int64 `json:"read"`   // connection lost before the answer was complete, or the answer was not HTTP
	Status  int64 `json:"status"` // complete, but not 2xx
	Timeout int64 `json:"timeout"`
	// Unsent requests were still waiting for a connection when the run had
	// to end, Config.Timeout after its schedule.
	Unsent int64 `json:"unsent"`
}

// An Interval is the part of a Result that was due in one stretch of time.
type Interval struct {
	At     time.Duration `json:"at_ns"` // its begin, since Result.Started
	Length time.Duration `json:"length_ns"`
	Counts
	// Answered counts the good answers that arrived in this interval,
	// whenever they were due.
	Answered int64 `json:"answered"`
	// Busy is the client's CPU time without watching, over all its threads.
	Busy time.Duration `json:"client_busy_ns"`
	// Mean and P50 are those of Latency: the series on which a caller finds
	// the end of the warm-up.
	Mean float64 `json:"mean_us"`
	P50  float64 `json:"p50_us"`

	Latency  Packed `json:"latency_histogram_us"`
	FromSend Packed `json:"latency_from_send_histogram_us"`
	Lag      Packed `json:"client_lag_histogram_ns"`
}

// Latency is a distribution in microseconds.
type Latency struct {
	P50  float64 `json:"p50_us"`
	P75  float64 `json:"p75_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Mean float64 `json:"mean_us"`
}
