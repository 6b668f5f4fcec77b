package run

import (
	"context"
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/testbed"
)

// wrk runs the program wrk for d and parses its output.
func (b *machine) wrk(ctx context.Context, d time.Duration) (*wrk.Result, error) {
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
