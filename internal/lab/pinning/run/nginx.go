package run

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/meter"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
)

// prepareServers finds the programs, and gives each server a directory and a
// port.
func (b *machine) prepareServers(ctx context.Context) error {
	var n work.NGINX
	var err error
	if n.Path, err = work.NGINXProgram.Find(); err != nil {
		return err
	}
	if n.Version, b.versions["nginx"], err = work.NGINXProgram.Ask(ctx, n.Path); err != nil {
		return err
	}
	if b.wrk, err = work.WrkProgram.Find(); err != nil {
		return err
	}
	n.Workers = b.each
	for range b.division.servers {
		one, err := work.PrepareNGINX(b.Site, n, 0, connections)
		if err != nil {
			return err
		}
		b.servers = append(b.servers, one)
	}
	return nil
}

// runNGINX starts the servers. First it sends the closed-loop load, and then
// the open-loop load.
func (b *machine) runNGINX(ctx context.Context, list []testbed.Bounds, r *pinning.Run) error {
	var meters []*meter.Meter
	for i, n := range b.servers {
		m := b.meter()
		m.Group = b.piece(i)
		defer m.Close()
		meters = append(meters, m)
		n.Before = func(pid int) error { m.Follow(pid); return nil }
		p, err := n.Start(ctx, b.Host, m.Group, list[i].CPUs)
		if err != nil {
			return err
		}
		defer n.Stop(p)
	}
	watch, err := b.watch()
	if err != nil {
		return err
	}
	results := make([]*wrk.Result, len(b.servers))
	from, to, err := meter.During(ctx, meters, func(ctx context.Context) error {
		return b.everyServer(func(i int) (err error) {
			each := wrk.Config{URL: b.servers[i].URL(), Threads: max(b.client.Len()/len(b.servers), 1), Connections: connections / len(b.servers), Duration: b.Duration}
			if results[i], err = b.closedLoop(ctx, each, b.client); err == nil {
				results[i].Explain()
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	fill(r, from, to)
	closed := sum(results)
	r.Closed = &closed
	for _, one := range results {
		r.Void = append(r.Void, one.Void...)
	}
	if b.rate > 0 {
		if err := b.openLoop(ctx, r); err != nil {
			return err
		}
	}
	why, err := watch()
	r.Void = append(r.Void, why...)
	return err
}

// everyServer calls f for all servers at the same time.
func (b *machine) everyServer(f func(i int) error) error {
	errs := make([]error, len(b.servers))
	var all sync.WaitGroup
	for i := range b.servers {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sum combines the results of the servers.
func sum(all []*wrk.Result) pinning.ClosedLoop {
	var s pinning.ClosedLoop
	for _, w := range all {
		c := pinning.ClosedLoopOf(w)
		s.Rate += c.Rate
		s.Mean += c.Mean * c.Rate
		s.Stdev, s.Max = max(s.Stdev, c.Stdev), max(s.Max, c.Max)
		s.P50, s.P75, s.P90, s.P99 = max(s.P50, c.P50), max(s.P75, c.P75), max(s.P90, c.P90), max(s.P99, c.P99)
	}
	if s.Rate > 0 {
		s.Mean /= s.Rate
	}
	return s
}

// openLoop sends an open-loop load, with the same rate in each mode.
func (b *machine) openLoop(ctx context.Context, r *pinning.Run) error {
	var mu sync.Mutex
	o := pinning.OpenLoop{Rate: b.rate * float64(len(b.servers))}
	err := b.everyServer(func(i int) error {
		client, order := b.openLoad(i, r.Block)
		m, err := harness.LoadOpen(ctx, client, order)
		if err != nil {
			return fmt.Errorf("open loop: %w", err)
		}
		l := m.Client.Latency
		mu.Lock()
		defer mu.Unlock()
		o.Mean += l.Mean / float64(len(b.servers))
		o.P50, o.P99 = max(o.P50, l.P50), max(o.P99, l.P99)
		r.Void = append(r.Void, m.Client.Void...)
		return nil
	})
	if err == nil {
		r.Open = &o
	}
	return err
}

// openLoad returns the site and the load of the client of server i. The site
// has CPUs of its own. The load has a schedule of its own.
func (b *machine) openLoad(i, block int) (*testbed.Site, load.Config) {
	client := *b.Site
	client.Place.Client = b.pollers[i]
	spec := harness.LoadSpec{
		URL: b.servers[i].URL(), Duration: b.Duration, Warmup: 500 * time.Millisecond, Seed: b.Seed + uint64(i), Connections: connections / len(b.servers), Rate: b.rate,
		Limits: load.Limits{AchievedRatio: 0.01, ErrorRatio: 0.5}, // late answers are a result
	}
	return &client, spec.InBlock(block)
}
