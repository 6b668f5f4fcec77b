package load

import (
	"time"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/model/unit"
)

// IntervalLength is the length of one Interval of a Result.
const IntervalLength = 100 * time.Millisecond

// A Result is the measurement of a run. It is sent as JSON if the run was made
// by a subprocess or on a second machine. The JSON keys are stable.
type Result struct {
	Schema      int           `json:"schema"` // 1
	URL         string        `json:"url"`
	Address     string        `json:"address,omitempty"` // the one of the host's addresses that was used
	Loop        string        `json:"loop"`              // "open" (Run) or "closed" (Saturate)
	Arrival     Arrival       `json:"arrival,omitempty"`
	Seed        uint64        `json:"seed"`
	CPUs        unit.CPUSet   `json:"cpus"` // one thread on each
	Connections int           `json:"connections"`
	Limits      Limits        `json:"limits"`
	Started     time.Time     `json:"started"`   // begin of the warm-up
	Warmup      time.Duration `json:"warmup_ns"` // whole intervals that the figures below leave out
	Length      time.Duration `json:"length_ns"` // length of the measured part, which the figures below describe

	// OfferedRate is the number of requests per second that were due in the
	// measured part. AchievedRate is the number of good answers per second that
	// arrived in that part.
	OfferedRate  float64 `json:"offered_requests_per_second"`
	AchievedRate float64 `json:"achieved_requests_per_second"`

	Counts
	// Causes are the reasons of all failures of the run and its warm-up. Their Count
	// is that of the measured part.
	Causes []fate.Cause `json:"causes,omitempty"`
	// GivenUp has the states of the connections when the client gave up the requests
	// that it had not sent.
	GivenUp fate.Connections `json:"connections_given_up,omitzero"`
	// Reconnects counts replaced connections of the run and its warm-up: the server
	// closed them while they were idle, or announced a close in an answer.
	Reconnects int64 `json:"reconnects"`

	// Latency is the time until the last byte of a good answer. It counts from the
	// intended send (Run) or the actual send (Saturate). Spoiled requests are left out.
	Latency Latency `json:"latency"`
	// WithStalls is the same as Latency, but includes the Spoiled requests. It is the
	// first row of the text: what is left out of Latency may be slow, or fast.
	WithStalls Latency `json:"latency_with_stalls"`
	// FromSend is the latency from the actual send. Latency minus FromSend is
	// the client's part.
	FromSend Latency `json:"latency_from_send"`
	// Lag is the time from the moment when a request was due until its send. It
	// covers only requests that found a free connection when they were due.
	Lag Latency `json:"client_lag"`
	// BusyRatio is the share of the time in which the client's CPUs were busy.
	// Time in which the client polled the clock and its sockets does not count.
	BusyRatio float64 `json:"client_busy_ratio"`

	// Void lists the reasons why the run must not be used. It is empty if the
	// run is valid.
	Void []string `json:"void,omitempty"`
	// Disturbed is true if one of the reasons is the client itself, and not the service.
	Disturbed bool `json:"disturbed,omitempty"`
	// Hints explain socket errors and how to prevent them on this machine.
	Hints []string `json:"hints,omitempty"`

	// Intervals follow each other and cover the whole run, including the
	// warm-up. Each is IntervalLength long. Only the last one may be shorter.
	Intervals []Interval `json:"intervals"`

	// LatencyHistogram (µs, 1 µs to 60 s, 3 digits) and LagHistogram (ns, up to
	// 60 s, 3 digits) describe the measured part.
	LatencyHistogram Histogram `json:"latency_histogram_us"`
	LagHistogram     Histogram `json:"client_lag_histogram_ns"`
}

// Counts has the number of requests for each outcome. A request belongs to the
// interval in which it was due.
type Counts struct {
	Scheduled int64 `json:"scheduled"`
	Sent      int64 `json:"sent"`
	Completed int64 `json:"completed"` // answered with a 2xx status, in this interval or later
	// WaitedForConnection counts requests that were due while all connections
	// were busy. They are not errors and have no lag.
	WaitedForConnection int64 `json:"waited_for_connection"`
	// Spoiled counts requests that were due while the client itself did not run,
	// or shortly after that (see function stalls). The counts above include
	// them. Latency and FromSend exclude them. WithStalls includes them.
	Spoiled int64 `json:"spoiled_by_client"`
	// DueInDelay counts requests that were due while the service had left another
	// one unanswered for more than 2 ms (see function delays). SpoiledInDelay
	// counts the Spoiled ones among them.
	DueInDelay     int64       `json:"due_in_service_delay"`
	SpoiledInDelay int64       `json:"spoiled_in_service_delay"`
	Errors         fate.Errors `json:"errors"`
}

// An Interval is a part of a Result. It covers the requests that were due in it.
type Interval struct {
	At     time.Duration `json:"at_ns"` // begin, since Result.Started
	Length time.Duration `json:"length_ns"`
	Counts
	Failures []Failures `json:"failures,omitempty"`
	// Answered counts good answers that arrived in this interval. Some of them
	// answer requests that were due in an earlier one.
	Answered int64 `json:"answered"`
	// Busy is the CPU time of the client's threads without polling.
	Busy time.Duration `json:"client_busy_ns"`
	// Mean and P50 are those of the histogram Latency. Callers use the series
	// of these values to find the end of the warm-up.
	Mean float64 `json:"mean_us"`
	P50  float64 `json:"p50_us"`

	Latency  Packed `json:"latency_histogram_us"`
	Stalled  Packed `json:"stalled_latency_histogram_us"` // of the Spoiled requests
	FromSend Packed `json:"latency_from_send_histogram_us"`
	Lag      Packed `json:"client_lag_histogram_ns"`
}

// Closed reports whether the latencies come from a closed loop (Saturate).
func (r *Result) Closed() bool { return r.Loop == closedLoop.String() }

// Failures is the number of failures with one cause.
type Failures struct {
	Cause int   `json:"cause"` // index in Result.Causes
	Count int64 `json:"count"`
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
