package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/load/socket"
	"tenon.sh/tenon/internal/model/unit"
)

// headStart is the time between the last connection set-up and the first send.
const headStart = 20 * time.Millisecond

// maxRequests is the maximum number of requests of a run. It bounds the memory
// that the run needs, 16 bytes for each request.
const maxRequests = 200e6

func run(ctx context.Context, c Config, l loop) (*Result, error) {
	c, err := c.withDefaults(l)
	if err != nil {
		return nil, err
	}
	total := c.Warmup + c.Duration
	if n := c.Rate * total.Seconds(); l == openLoop && n > maxRequests {
		return nil, fmt.Errorf("load: %.0f requests: want at most %.0f in one run", n, maxRequests)
	}
	if c.CPUs.Empty() {
		if c.CPUs, err = ownCPUs(); err != nil {
			return nil, err
		}
	}
	target, err := protocol.Parse(ctx, c.URL, c.Pages)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if len(target.Fill) > 0 {
		if err := target.Ask(ctx, target.Fill, c.Timeout); err != nil {
			return nil, socket.Explain(fmt.Errorf("load: prepare %s: %w", c.URL, err))
		}
	}
	cpus := slices.Collect(c.CPUs.All())
	cpus = cpus[:min(len(cpus), c.Connections)]
	c.CPUs = unit.CPUSetOf(cpus...)

	// A client thread that sleeps keeps its processor of the Go scheduler (P),
	// so the other goroutines of the program need more processors.
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + len(cpus))
	defer runtime.GOMAXPROCS(procs)

	var cancelled atomic.Bool
	defer context.AfterFunc(ctx, func() { cancelled.Store(true) })()

	threads := make([]*thread, len(cpus))
	prepared := make(chan error, len(cpus))
	begin := make(chan struct{})
	failed := make([]error, len(cpus))
	var done sync.WaitGroup
	for i, cpu := range cpus {
		threads[i] = &thread{loop: l, target: target, cpu: cpu, total: total, timeout: c.Timeout, spin: c.Spin, cancelled: &cancelled}
		// The pinned thread is never unlocked, so it ends when its goroutine ends.
		done.Go(func() {
			t := threads[i]
			defer t.close()
			err := t.prepare(c, i, len(cpus), share(c.Connections, i, len(cpus)))
			prepared <- err
			<-begin
			if err == nil && !cancelled.Load() {
				failed[i] = t.run()
			}
		})
	}
	var setup []error
	for range threads {
		setup = append(setup, <-prepared)
	}
	err = errors.Join(setup...)
	if err != nil {
		cancelled.Store(true)
	}
	started := time.Now().Add(headStart)
	for _, t := range threads {
		t.start = started
	}
	close(begin)
	done.Wait()
	if err != nil {
		return nil, socket.Explain(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}

	r := &Result{
		Schema: 1, URL: c.URL, Loop: l.String(), Seed: c.Seed, CPUs: c.CPUs, Connections: c.Connections,
		Limits: c.Limits, Started: started, Intervals: intervals(threads, l, total),
	}
	if l == openLoop {
		r.Arrival = c.Arrival
	}
	for _, t := range threads {
		r.Reconnects += t.record.reconnects
	}
	if err := r.Discard(c.Warmup); err != nil {
		return nil, err
	}
	return r, nil
}

// share divides an amount (whole) into n nearly equal parts and returns the size of the i-th.
func share(whole, i, n int) int { return whole*(i+1)/n - whole*i/n }

// ownCPUs returns the CPUs on which the calling thread may run.
func ownCPUs() (unit.CPUSet, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return unit.CPUSet{}, fmt.Errorf("load: read the CPU affinity of this process: %w", err)
	}
	var own unit.CPUSet
	for c := range unit.CPU(unit.MaxCPUs) {
		if set.IsSet(int(c)) {
			own = own.With(c)
		}
	}
	return own, nil
}

// intervals makes the histograms of the intervals from the records of the threads.
func intervals(threads []*thread, l loop, total time.Duration) []Interval {
	n := int((total + IntervalLength - 1) / IntervalLength)
	list := make([]Interval, n)
	for i := range list {
		at := time.Duration(i) * IntervalLength
		list[i] = Interval{At: at, Length: min(IntervalLength, total-at), Latency: newPacked(latencyUnit), Stalled: newPacked(latencyUnit), FromSend: newPacked(latencyUnit), Lag: newPacked(lagUnit)}
	}
	at := func(ns int64) *Interval {
		return &list[min(max(int(ns/int64(IntervalLength)), 0), n-1)]
	}
	var stalled, delayed []span
	if l == openLoop {
		stalled = stalls(threads)
		delayed = delays(threads, stalled)
	}
	for _, t := range threads {
		for i, due := range t.record.due {
			interval := at(due)
			fate, lag := t.record.latency[i], int64(0)
			if l == openLoop {
				lag = int64(t.record.lag[i])
				switch {
				case lag != int64(noLag):
					interval.Lag.record(lag)
				case fate != unsent && fate != waiting:
					interval.WaitedForConnection++
					lag = 0
				}
			}
			_, spoiled := covering(stalled, due)
			interval.note(fate, spoiled)
			if _, in := covering(delayed, due); in {
				interval.DueInDelay++
				if spoiled {
					interval.SpoiledInDelay++
				}
			}
			if fate < failedTimeout {
				latency := int64(fate) * int64(latencyUnit)
				if !spoiled {
					interval.FromSend.record((latency - lag + int64(latencyUnit)/2) / int64(latencyUnit))
				}
				if due+latency < int64(total) {
					at(due+latency).Answered++
				}
			}
		}
		for _, failed := range t.record.connect {
			at(failed).Errors.Connect++
		}
		for i := 1; i < len(t.record.usage); i++ {
			from, to := t.record.usage[i-1], t.record.usage[i]
			if from.at < int64(total) {
				at(from.at).Busy += time.Duration(max((to.cpu-from.cpu)-(to.watching-from.watching), 0))
			}
		}
	}
	for i := range list {
		if h := list[i].Latency; h.TotalCount() > 0 {
			list[i].Mean = h.Mean()
			list[i].P50 = float64(h.ValueAtPercentile(50))
		}
	}
	return list
}

// note adds one request. latency is in µs. If the request has no latency, it is a
// constant with the reason, such as unsent. Spoiled requests have their own histogram.
func (i *Interval) note(latency uint32, spoiled bool) {
	i.Scheduled++
	if spoiled {
		i.Spoiled++
	}
	if latency != unsent && latency != waiting {
		i.Sent++
	}
	switch latency {
	case unsent, waiting:
		i.Errors.Unsent++
	case pending, failedTimeout: // pending: the run ended before the request timed out
		i.Errors.Timeout++
	case failedWrite:
		i.Errors.Write++
	case failedRead:
		i.Errors.Read++
	case failedStatus:
		i.Errors.Status++
	default:
		i.Completed++
		if spoiled {
			i.Stalled.record(int64(latency))
		} else {
			i.Latency.record(int64(latency))
		}
	}
}
