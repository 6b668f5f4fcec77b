package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/testbed"
)

// The load generators (report.Experiment.Client).
const (
	ClientTenon   = "tenon"   // our open-loop client
	ClientWrk     = "wrk"     // the closed-loop client of the published experiments
	ClientCommand = "command" // a command of the user that prints latencies
)

// sendLoad runs the client as a process on the client's CPUs, and returns its
// measurement. If ctx ends, it stops early.
func sendLoad(ctx context.Context, s *testbed.Site, c load.Config) (*load.Result, error) {
	c.CPUs = s.Place.Client
	order, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("configure the load: %w", err)
	}
	out, err := s.Await(ctx, testbed.Child{
		Name: "the load generator", Argv: s.Child("client"),
		CPUs: s.Place.Client, Nice: ClientNice, Stdin: bytes.NewReader(order),
	})
	if err != nil {
		return nil, err
	}
	var r load.Result
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("read the measurement of the load generator: %w", err)
	}
	return &r, nil
}

// ClientNice is the nice value of the client. The lab itself runs on the same
// CPUs with a higher nice value, so that it yields to the client.
const ClientNice = -10
