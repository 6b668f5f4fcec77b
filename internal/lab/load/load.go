// Package load measures the latency of a service under an open load. Package protocol
// has the protocols of services. Requests leave on a schedule that is fixed before the
// run and does not depend on the service. Each latency counts from the time at which the
// request was due, so a stall of the service shows in every request that it delayed.
//
// A closed-loop client (wrk, ab) waits for a slow answer before it sends the next
// request. It therefore misses most of the delay that a stall causes ("coordinated
// omission"; Schroeder et al., "Open versus closed", NSDI 2006). Saturate is a
// closed-loop client that finds the capacity of a service.
//
// The client also measures itself: how late it sent requests (its lag) and how busy its
// CPUs were. If the client disturbed the run too much, Result.Void gives the reason.
package load

import (
	"context"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// An Arrival is the distribution of the times between requests.
type Arrival string

const (
	// Poisson draws exponential gaps, as between the requests of many
	// independent users.
	Poisson Arrival = "poisson"
	// Constant spaces the requests of each thread evenly.
	Constant Arrival = "constant"
)

// Config defines the requests, their target, and the limits of a valid run. URL, Rate
// and Duration are required. For every other field, the zero value selects the default.
type Config struct {
	// URL names the service and its protocol, which has the requests.
	URL string
	// If Pages is above 0, each request is for a random page. The client
	// appends the number of the page, from 0 to Pages-1, to URL. See Seed.
	Pages int
	// Rate is the number of requests per second of all threads. Saturate ignores it.
	Rate float64
	// Duration is the length of the measured part.
	Duration time.Duration
	// Warmup is the duration of the part of the run before the measured part. Its
	// requests appear only in the Intervals of the Result.
	Warmup time.Duration
	// Arrival is Poisson if it is not set.
	Arrival Arrival
	// Seed makes a Poisson schedule repeatable. The same seed, rate, duration
	// and number of threads give the same send times.
	Seed uint64
	// CPUs is the set of CPUs of the client. One thread runs on each of them.
	// An empty set means all CPUs on which the calling thread may run.
	CPUs unit.CPUSet
	// Connections is the number of keep-alive connections of all threads
	// together. 0 means 256. Each carries one request at a time. If all
	// connections are busy when a request is due, the request waits, and this
	// time is part of its latency.
	Connections int
	// Timeout bounds the time from the actual send to the answer. 0 means 10 s.
	Timeout time.Duration
	// Spin is the time before a send in which the thread polls the clock and
	// does not sleep. 0 means 50 µs. A thread also polls while it waits for an
	// answer, because sleeping would add a wake-up to the latency. Polling does
	// not count as busy time. If Spin is negative, a thread sleeps whenever
	// possible, which suits clients that share their CPUs.
	Spin time.Duration
	// A run that exceeds Limits is void.
	Limits Limits
}

// Limits define when a run is void because of its client. A field that is zero
// has the value of DefaultLimits.
type Limits struct {
	// LagRatio is the largest share of the measured P99 that the client may cause. Two
	// latencies are measured: one from the intended send, and one from the actual send.
	// The client's part is the difference between their P99.
	LagRatio float64 `json:"lag_ratio"`
	// SpoiledRatio is the largest share of requests that stalls of the client may
	// spoil.
	SpoiledRatio float64 `json:"spoiled_ratio"`
	// P90Ratio is the largest ratio between the P90 of all requests and that without
	// the spoiled ones, whichever is larger. Above it, the result depends on which
	// requests a stall hit: slow ones, or fast ones.
	P90Ratio float64 `json:"p90_ratio"`
	// LagFloor is the part of P99 that the client may always cause, however
	// short the latencies are.
	LagFloor time.Duration `json:"lag_floor_ns"`
	// BusyRatio is the largest share of time for which the client's CPUs may be
	// busy. Above it, requests begin to queue inside the client.
	BusyRatio float64 `json:"busy_ratio"`
	// AchievedRatio is the smallest share of the offered requests that must be
	// answered within the measured part, apart from those that any service has
	// in work at its end (Result.Overloaded).
	AchievedRatio float64 `json:"achieved_ratio"`
	// ErrorRatio is the largest share of requests that may fail. By default it
	// is 0: any failed request makes the run void.
	ErrorRatio float64 `json:"error_ratio"`
}

// DefaultLimits are the limits for those fields of Config.Limits that are zero.
//
// Requests that a stall of the client spoiled are left out one by one. The remaining
// lag of the client is small and the same in all modes of an experiment, so it may be 5
// % of P99. With a lower limit, runs with a short P99 would be void more often than
// others, and the remaining runs would be the slow ones. The limit applies to the
// client's part of P99, and not to the P99 of the lag. In a Poisson stream, about one
// request in ten is due while the thread still sends another one. (A send over loopback
// takes some µs, mostly to wake the server.) A late send rarely coincides with a slow
// answer, and only then does it change P99. LagFloor is the cost of sending a few other
// requests. With a lower value, only the runs with the shortest P99 were void.
//
// BusyRatio follows from queueing. The client is a single-server queue, and at half
// load the time in such a queue doubles.
var DefaultLimits = Limits{SpoiledRatio: 0.05, P90Ratio: 1.10, LagRatio: 0.05, LagFloor: 50 * time.Microsecond, BusyRatio: 0.5, AchievedRatio: 0.99}

const (
	defaultConnections = 256
	defaultTimeout     = 10 * time.Second
	defaultSpin        = 50 * time.Microsecond

	maxPages = 1 << 20 // each request takes some hundred bytes
)

// Run sends requests at c.Rate in open loop and returns the measurement. If the set-up
// fails (URL, CPUs, no connection), it returns an error. Failures during the run are in
// Result.Errors and Result.Void. If ctx is cancelled, the run ends early with the error
// of ctx.
//
// Run uses one operating system thread per CPU and raises GOMAXPROCS by that number
// during the run. A garbage collection stops these threads, so Run should be called in
// a separate process (`tenon lab load`) without garbage collection.
func Run(ctx context.Context, c Config) (*Result, error) {
	return run(ctx, c, openLoop)
}

// Saturate is a closed-loop client. It finds the capacity of a service. For
// c.Warmup + c.Duration, each connection sends its next request when the last
// one has been answered. A latency counts from the actual send. The latencies
// hide stalls, and must not be compared with latencies from Run.
func Saturate(ctx context.Context, c Config) (*Result, error) {
	return run(ctx, c, closedLoop)
}

// withDefaults returns c with its defaults. It checks the fields that are set.
func (c Config) withDefaults(l loop) (Config, error) {
	if l == openLoop && !(c.Rate > 0 && c.Rate <= 1e7) {
		return c, fmt.Errorf("load: rate %v requests per second: want more than 0 and at most 10 million", c.Rate)
	}
	if c.Duration <= 0 {
		return c, fmt.Errorf("load: duration %v: want more than 0", c.Duration)
	}
	if c.Pages < 0 || c.Pages > maxPages {
		return c, fmt.Errorf("load: %d pages: want 0 to %d", c.Pages, maxPages)
	}
	if c.Warmup < 0 {
		return c, fmt.Errorf("load: warm-up %v: want 0 or more", c.Warmup)
	}
	switch c.Arrival {
	case "":
		c.Arrival = Poisson
	case Poisson, Constant:
	default:
		return c, fmt.Errorf("load: arrival %q: want %q or %q", c.Arrival, Poisson, Constant)
	}
	if c.Connections < 0 {
		return c, fmt.Errorf("load: %d connections: want 1 or more", c.Connections)
	}
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Spin == 0 {
		c.Spin = defaultSpin
	}
	if c.Limits.LagRatio == 0 {
		c.Limits.LagRatio = DefaultLimits.LagRatio
	}
	if c.Limits.SpoiledRatio == 0 {
		c.Limits.SpoiledRatio = DefaultLimits.SpoiledRatio
	}
	if c.Limits.P90Ratio == 0 {
		c.Limits.P90Ratio = DefaultLimits.P90Ratio
	}
	if c.Limits.LagFloor == 0 {
		c.Limits.LagFloor = DefaultLimits.LagFloor
	}
	if c.Limits.BusyRatio == 0 {
		c.Limits.BusyRatio = DefaultLimits.BusyRatio
	}
	if c.Limits.AchievedRatio == 0 {
		c.Limits.AchievedRatio = DefaultLimits.AchievedRatio
	}
	return c, nil
}
