// Package load measures the latency of an HTTP/1.1 service under an open
// load: requests leave on a schedule that was fixed before the run, whatever
// the service does, and each latency counts from the moment the request was
// due, so a stall of the service shows in every request it delayed.
//
// A closed-loop client (wrk, ab) waits for a slow answer before it sends the
// next request, and so leaves out most of what a stall costs ("coordinated
// omission"; Schroeder et al., "Open versus closed", NSDI 2006). Saturate is
// such a client, kept for finding a service's capacity and for comparison;
// ParseWrk reads what the real wrk prints, to repeat experiments that were made with it.
//
// The client measures itself too: how late it sent (its lag) and how busy its
// own CPUs were. A run that the client spoiled says so in Result.Void.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// An Arrival is the law of the times between requests.
type Arrival string

const (
	// Poisson draws exponential gaps: what many independent users cause.
	Poisson Arrival = "poisson"
	// Constant spaces the requests of each thread evenly.
	Constant Arrival = "constant"
)

// Config is the requests to send, their target, and the limits of a valid run.
// URL, Rate and Duration are required; the zero value of every other field is a
// useful default.
type Config struct {
	// URL is fetched with GET over plain HTTP/1.1.
	URL string
	// If Pages is above 0, each request is for a random page: URL is followed
	// by its number, from 0 to Pages-1. Seed decides which.
	Pages int
	// Rate is the number of requests per second, over all threads. Saturate
	// ignores it.
	Rate float64
	// Duration is the length of the measured part.
	Duration time.Duration
	// Warmup comes before the measured part. Its requests are in the
	// Result's Intervals, and in nothing else.
	Warmup time.Duration
	// Arrival is Poisson by default.
	Arrival Arrival
	// Seed makes a Poisson schedule repeatable: the same seed, rate, duration
	// and number of threads give the same send times.
	Seed uint64
	// CPUs get one pinned thread each. Empty: every CPU that the calling
	// thread may run on.
	CPUs unit.CPUSet
	// Connections is the number of keep-alive connections over all threads;
	// 0: 256. Requests never share a connection at the same time: one that is
	// due while all are busy waits, and its latency goes on counting.
	Connections int
	// Timeout bounds one request, from its actual send; 0: 10 s.
	Timeout time.Duration
	// Spin is the time before the next send at which a thread stops sleeping
	// and watches the clock; 0: 50 µs. A thread also watches, without sleeping,
	// while it has an answer outstanding: a sleeper would add its own wake-up
	// to the latency. Time spent so does not count as busy. Negative: sleep
	// whenever possible, for clients that share their CPUs.
	Spin time.Duration
	// Limits void a run that exceeds them.
	Limits Limits
}

// Limits say from when on a client has spoiled its own measurement. The zero
// value stands for DefaultLimits, field by field.
type Limits struct {
	// LagRatio is the most of the measured P99 that may be the client's own:
	// the difference between P99 counted from the intended and from the
	// actual send.
	LagRatio float64 `json:"lag_ratio"`
	// SpoiledRatio is the most of the requests that stalls of the client may
	// spoil.
	SpoiledRatio float64 `json:"spoiled_ratio"`
	// LagFloor is a difference that never voids a run, however short its
	// latencies.
	LagFloor time.Duration `json:"lag_floor_ns"`
	// BusyRatio is the most of its CPUs that the client may be busy for: above
	// it requests begin to queue inside the client.
	BusyRatio float64 `json:"busy_ratio"`
	// AchievedRatio is the least share of the offered requests that must be
	// answered within the measured part.
	AchievedRatio float64 `json:"achieved_ratio"`
	// ErrorRatio is the most of the requests that may fail. 0 is its default:
	// any failed request voids the run.
	ErrorRatio float64 `json:"error_ratio"`
}

// DefaultLimits are the limits used where a Config names none.
//
// Requests that a stall of the client spoiled are left out one by one, so what
// is left of its lag is small, and the same in all modes of an experiment: it
// may be 5 % of P99. Were a run void at less, runs with a short P99 would be
// void more often than others, and the choice would favour the slow ones.
// The rule is about the part of P99, not about P99 of the lag itself: in a
// Poisson stream one request in ten or so is due while the thread still sends
// another (a send over loopback takes some µs, most of them to wake the
// server), but a late send and a slow answer seldom coincide, and only then is
// the result spoiled. Fifty microseconds are what sending a few other requests
// costs; with less, only the runs with the shortest P99 were void.
//
// At half load a single-server queue, which the client is, doubles the time
// that its customers take.
var DefaultLimits = Limits{SpoiledRatio: 0.25, LagRatio: 0.05, LagFloor: 50 * time.Microsecond, BusyRatio: 0.5, AchievedRatio: 0.99}

const (
	defaultConnections = 256
	defaultTimeout     = 10 * time.Second
	defaultSpin        = 50 * time.Microsecond

	mostPages = 1 << 20 // whose requests take some hundred bytes each
)

// Run sends requests at c.Rate, open loop, and returns what it measured. The
// error is about the set-up (URL, CPUs, no connection can be made); failures
// during the run are in Result.Errors and Result.Void. Cancelling ctx ends the
// run early with ctx's error.
//
// Run uses one operating system thread per CPU for itself and raises
// GOMAXPROCS by that many while it lasts. A garbage collection stops these
// threads: give Run a process of its own (`tenon lab load`), with the
// collector off.
func Run(ctx context.Context, c Config) (*Result, error) {
	return run(ctx, c, openLoop)
}

// Saturate is the closed-loop auxiliary: each connection sends its next
// request when the last one is answered, for c.Warmup + c.Duration, and
// latency counts from the actual send. It finds the capacity of a service; its
// latencies hide stalls and must not be compared with those of Run.
func Saturate(ctx context.Context, c Config) (*Result, error) {
	return run(ctx, c, closedLoop)
}

// orDefaults returns c with its zero fields filled in, and checks the rest.
func (c Config) orDefaults(l loop) (Config, error) {
	if l == openLoop && !(c.Rate > 0 && c.Rate <= 1e7) {
		return c, fmt.Errorf("load: rate %v requests per second: want more than 0 and at most 10 million", c.Rate)
	}
	if c.Duration <= 0 {
		return c, fmt.Errorf("load: duration %v: want more than 0", c.Duration)
	}
	if c.Pages < 0 || c.Pages > mostPages {
		return c, fmt.Errorf("load: %d pages: want 0 to %d", c.Pages, mostPages)
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

// A target is a URL made ready for sending: where to connect, what to write.
type target struct {
	addr     *net.TCPAddr
	requests [][]byte // one of them is drawn each time
}

func parseTarget(ctx context.Context, rawURL string, pages int) (target, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return target{}, fmt.Errorf("load: %w", err)
	}
	if u.Scheme != "http" || u.Hostname() == "" {
		return target{}, fmt.Errorf("load: url %q: want http://HOST[:PORT]/PATH", rawURL)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, u.Hostname())
	if err != nil {
		return target{}, fmt.Errorf("load: url %q: %w", rawURL, err)
	}
	if len(ips) == 0 {
		return target{}, errors.New("load: url " + rawURL + ": host has no address")
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return target{}, fmt.Errorf("load: url %q: %w", rawURL, err)
	}
	t := target{addr: &net.TCPAddr{IP: ips[0].IP, Port: number, Zone: ips[0].Zone}}
	request := func(page string) {
		text := "GET " + u.RequestURI() + page + " HTTP/1.1\r\nHost: " + u.Host + "\r\nUser-Agent: tenon\r\nAccept: */*\r\n\r\n"
		t.requests = append(t.requests, []byte(text))
	}
	if pages == 0 {
		request("")
	}
	for page := range pages {
		request(strconv.Itoa(page))
	}
	return t, nil
}
