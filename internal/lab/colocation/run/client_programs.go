package run

import (
	"context"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/testbed"
)

// loadWrk runs wrk twice, because wrk has no warm-up: first to warm up, and
// then to measure.
func (b *bench) loadWrk(ctx context.Context, order load.Config) (m harness.Measurement, err error) {
	m.Warmup = max(order.Warmup.Round(time.Second), time.Second)
	if _, err := b.wrk(ctx, order.URL, m.Warmup); err != nil {
		return m, err
	}
	m.From = time.Now()
	if m.Wrk, err = b.wrk(ctx, order.URL, max(order.Duration, time.Second)); err != nil {
		return m, err
	}
	m.To = time.Now()
	return m, nil
}

// wrk runs the program wrk for d and parses its output.
func (b *bench) wrk(ctx context.Context, url string, d time.Duration) (*wrk.Result, error) {
	c := wrk.Config{
		URL:         url,
		Threads:     b.wrkThreads(),
		Connections: b.connections(),
		Duration:    d.Round(time.Second),
	}
	argv := append([]string{b.wrkPath}, c.Args()...)
	out, err := b.Await(ctx, testbed.Child{Name: "wrk", Argv: argv, CPUs: b.Place.Client, Nice: harness.ClientNice})
	if err != nil {
		return nil, err
	}
	r, err := wrk.Parse(string(out))
	if err == nil {
		r.Command = argv
		r.Explain()
	}
	return r, err
}

// wrkThreads returns the number of threads of wrk: one for each CPU of the client, and to
// a node of a cluster as many as published.
func (b *bench) wrkThreads() int {
	if b.Pods != nil {
		return min(publishedThreads, b.connections())
	}
	return b.Place.Client.Len()
}

// The published experiment runs wrk -t6 -c54, on 104 CPUs.
const (
	publishedThreads     = 6
	publishedConnections = 54
)

// closedLoop is what a reader of the latencies of wrk has to know.
const closedLoop = "wrk is a closed-loop client: a stall hides the requests that it delays, so its percentiles are too low"

// spin starts the spinner, which keeps the tested CPUs busy. With leastWeight,
// the spinner is scheduled by the weight of its cgroup. Otherwise its policy is
// SCHED_IDLE.
func (b *machine) spin(p testbed.Pods, leastWeight bool) (*testbed.Process, error) {
	role := "spin"
	if leastWeight {
		role = "burn"
	}
	return testbed.Start(b.Host, testbed.Child{
		Name: "the spinner", Argv: b.Site.Child(role, p.Tested.String()),
		Group: p.Spinner(), CPUs: p.Tested,
	})
}
