package run

import (
	"context"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/testbed"
)

// wrk runs the program wrk for d and parses its output.
func (b *environment) wrk(ctx context.Context, d time.Duration) (*wrk.Result, error) {
	c := wrk.Config{
		URL:         b.service.URL,
		Threads:     b.Place.Client.Len(),
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

// connections returns the number of connections that the client opens.
func (b *environment) connections() int {
	switch {
	case b.Connections > 0:
		return b.Connections
	case b.Client == harness.ClientWrk:
		// The published experiment uses 54 connections on 104 CPUs. wrk needs
		// at least one connection for each of its threads.
		return max(54*b.Place.Tested.Len()/104, 2, b.Place.Client.Len())
	}
	return b.Workloads.Connections()
}

// spin starts the spinner, which keeps the tested CPUs busy. With leastWeight,
// the spinner is scheduled by the weight of its cgroup. Otherwise its policy is
// SCHED_IDLE.
func (b *environment) spin(p testbed.Pods, leastWeight bool) (*testbed.Process, error) {
	role := "spin"
	if leastWeight {
		role = "burn"
	}
	return testbed.Start(b.Host, testbed.Child{
		Name: "the spinner", Argv: b.Site.Child(role, p.Tested.String()),
		Group: p.Spinner(), CPUs: p.Tested,
	})
}
