package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/testbed"
)

// selfKind is a service that generates its own load. StartSelf starts it.
var selfKind = Kind{Name: "self"}

// ServeSelf is the main function of a service that generates its own load. For
// each load.Config that it reads, it makes the requests and writes a
// load.Result. The threads stay until it reads the next load.Config, so that
// the lab can read their counters.
func ServeSelf(ctx context.Context, s load.Self, in io.Reader, out io.Writer) error {
	// A garbage collection would stop the threads. The process does not live
	// long, so it needs none.
	debug.SetGCPercent(-1)
	orders, results := json.NewDecoder(in), json.NewEncoder(out)
	release := func() {}
	defer func() { release() }()
	for {
		var c load.Config
		if err := orders.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the load to make: %w", err)
		}
		release()
		var r *load.Result
		var err error
		if r, release, err = s.Run(ctx, c); err != nil {
			return err
		}
		if err := results.Encode(r); err != nil {
			return err
		}
	}
}

// A SelfDriven is a running service that generates its own load.
type SelfDriven struct {
	orders  *json.Encoder
	results *json.Decoder
	in, out *io.PipeWriter
}

// StartSelf starts a service that generates its own load, as a child. c names
// its group, its CPUs and its session.
func StartSelf(s *testbed.Site, self load.Self, c testbed.Child) (*testbed.Process, *SelfDriven, error) {
	c.Name, c.Argv = "the service", s.Child("self", strconv.Itoa(self.Threads), self.Memory.String())
	stdin, in := io.Pipe()
	stdout, out := io.Pipe()
	c.Stdin, c.Stdout = stdin, out
	p, err := testbed.Start(s.Groups(), c)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-p.Done()
		_ = stdin.CloseWithError(io.ErrClosedPipe) // ends a write to a process that has ended
		_ = out.Close()
	}()
	return p, &SelfDriven{orders: json.NewEncoder(in), results: json.NewDecoder(bufio.NewReader(stdout)), in: in, out: out}, nil
}

// Load makes the service generate its load, and returns what the service
// measured.
func (d *SelfDriven) Load(ctx context.Context, c load.Config) (*load.Result, error) {
	defer context.AfterFunc(ctx, func() { _ = d.out.CloseWithError(ctx.Err()) })()
	if err := d.orders.Encode(c); err != nil {
		return nil, fmt.Errorf("order the load of the service: %w", err)
	}
	var r load.Result
	if err := d.results.Decode(&r); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("read the measurement of the service: %w", err)
	}
	return &r, nil
}

// Close ends the input of the service, and then the service ends.
func (d *SelfDriven) Close() {
	if d != nil {
		_ = d.in.Close()
	}
}
