package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/fate"
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
	target, err := prepareTarget(ctx, c)
	if err != nil {
		return nil, socket.Explain(fmt.Errorf("load: %w", err))
	}
	addr := target.Addrs[0]
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
	setups := make([]error, len(cpus))
	begin := make(chan struct{})
	failed := make([]error, len(cpus))
	var prepared, done sync.WaitGroup
	prepared.Add(len(cpus))
	for i, cpu := range cpus {
		threads[i] = &thread{loop: l, target: target, addr: addr, cpu: cpu, total: total, timeout: c.Timeout, spin: c.Spin, cancelled: &cancelled}
		// The pinned thread is never unlocked, so it ends when its goroutine ends.
		done.Go(func() {
			t := threads[i]
			defer t.close()
			setups[i] = t.prepare(c, i, len(cpus))
			prepared.Done()
			<-begin
			if setups[i] == nil && !cancelled.Load() {
				failed[i] = t.run()
			}
		})
	}
	prepared.Wait()
	// The threads do the same, so they mostly fail for the same reason: one error says it.
	if err = cmp.Or(setups...); err != nil {
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
		Limits: c.Limits, Started: started, Address: addr.String(),
	}
	r.Intervals, r.Causes = intervals(threads, l, total)
	if l == openLoop {
		r.Arrival = c.Arrival
	}
	for _, t := range threads {
		r.Reconnects += t.record.reconnects
		r.GivenUp.All += t.givenUp.All
		r.GivenUp.Waiting += t.givenUp.Waiting
		r.GivenUp.Down += t.givenUp.Down
	}
	if err := r.Discard(c.Warmup); err != nil {
		return nil, err
	}
	return r, nil
}

// prepareTarget resolves the URL, selects an address of its host, and sends the
// requests that come before the run.
func prepareTarget(ctx context.Context, c Config) (protocol.Target, error) {
	t, err := protocol.Parse(ctx, c.URL, c.Pages)
	if err != nil {
		return t, err
	}
	addr, err := selectAddress(ctx, t, c.Timeout)
	if err != nil {
		return t, err
	}
	t.Addrs = []*net.TCPAddr{addr}
	if len(t.Fill) > 0 {
		if err := t.Ask(ctx, t.Fill, c.Timeout); err != nil {
			return t, fmt.Errorf("prepare %s: %w", c.URL, err)
		}
	}
	return t, nil
}

// selectAddress returns the first address of the target that accepts a connection.
// It does not try the only address of a host, because the run tries it next.
func selectAddress(ctx context.Context, t protocol.Target, timeout time.Duration) (*net.TCPAddr, error) {
	if len(t.Addrs) == 1 {
		return t.Addrs[0], nil
	}
	addr, c, err := t.Reach(ctx, min(timeout, 5*time.Second))
	if err != nil {
		return nil, err
	}
	return addr, c.Close()
}

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

// intervals makes the histograms of the intervals from the records of the threads. It
// also returns the causes of failures, by which the intervals count them.
func intervals(threads []*thread, l loop, total time.Duration) ([]Interval, fate.Causes) {
	n := int((total + IntervalLength - 1) / IntervalLength)
	list := make([]Interval, n)
	for i := range list {
		at := time.Duration(i) * IntervalLength
		list[i] = Interval{At: at, Length: min(IntervalLength, total-at), Latency: newPacked(LatencyUnit), Stalled: newPacked(LatencyUnit), FromSend: newPacked(LatencyUnit), Lag: newPacked(lagUnit)}
	}
	at := func(ns int64) *Interval {
		return &list[min(max(int(ns/int64(IntervalLength)), 0), n-1)]
	}
	var stalled, delayed []span
	if l == openLoop {
		stalled = stalls(threads)
		delayed = delays(threads, stalled)
	}
	var causes fate.Causes
	for _, t := range threads {
		for i, due := range t.record.due {
			interval := at(due)
			latency, lag := t.record.latency[i], int64(0)
			if l == openLoop {
				lag = int64(t.record.lag[i])
				switch {
				case lag != int64(noLag):
					interval.Lag.record(lag)
				case latency != unsent && latency != waiting:
					interval.WaitedForConnection++
					lag = 0
				}
			}
			_, spoiled := covering(stalled, due)
			interval.note(latency, spoiled)
			if latency >= noLatency && latency < pending {
				interval.fail(t.record.causes[latency-noLatency], &causes)
			}
			if _, in := covering(delayed, due); in {
				interval.DueInDelay++
				if spoiled {
					interval.SpoiledInDelay++
				}
			}
			if latency < noLatency {
				ns := int64(latency) * int64(LatencyUnit)
				if !spoiled {
					interval.FromSend.record((ns - lag + int64(LatencyUnit)/2) / int64(LatencyUnit))
				}
				if due+ns < int64(total) {
					at(due+ns).Answered++
				}
			}
		}
		for _, failed := range t.record.connect {
			at(failed.at).fail(t.record.causes[failed.fate-noLatency], &causes)
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
	return list, causes
}

// fail counts a failure, and adds its cause to the table of causes if it is new.
func (i *Interval) fail(c fate.Cause, causes *fate.Causes) {
	i.Errors.Count(c.Kind)
	cause := causes.Index(c)
	if k := slices.IndexFunc(i.Failures, func(f Failures) bool { return f.Cause == cause }); k >= 0 {
		i.Failures[k].Count++
		return
	}
	i.Failures = append(i.Failures, Failures{cause, 1})
}

// note adds one request. latency is in µs, or a value from noLatency on. Failures with
// a cause are counted by fail. Spoiled requests have their own histogram.
func (i *Interval) note(latency uint32, spoiled bool) {
	i.Scheduled++
	if spoiled {
		i.Spoiled++
	}
	if latency != unsent && latency != waiting {
		i.Sent++
	}
	switch {
	case latency == unsent || latency == waiting:
		i.Errors.Count(fate.Unsent)
	case latency == pending: // the run ended before the request timed out
		i.Errors.Count(fate.Timeout)
	case latency < noLatency:
		i.Completed++
		if spoiled {
			i.Stalled.record(int64(latency))
		} else {
			i.Latency.record(int64(latency))
		}
	}
}
