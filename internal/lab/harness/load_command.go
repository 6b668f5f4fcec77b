package harness

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/testbed"
)

// commandStart is the longest time that a load command may take before it
// prints the first latency.
const commandStart = 20 * time.Second

// LoadCommand runs a shell command on the client's CPUs. The command puts a
// load on the service, and prints latencies (load.FromLines). LoadCommand stops
// the command at the end of the measured part.
func LoadCommand(ctx context.Context, s *testbed.Site, command string, order load.Config) (m Measurement, err error) {
	r, out := io.Pipe()
	p, err := testbed.Start(s.Groups(), testbed.Child{
		Name: "the load command", Argv: []string{"/bin/sh", "-c", command}, CPUs: s.Place.Client, Nice: ClientNice, Stdout: out,
	})
	if err != nil {
		return m, err
	}
	defer p.Kill()
	type result struct {
		measured *load.Result
		err      error
	}
	begun, read := make(chan struct{}), make(chan result, 1)
	go func() {
		first := true
		now := func() time.Time {
			if first {
				close(begun)
				first = false
			}
			return time.Now()
		}
		measured, err := load.FromLines(r, order.Warmup, order.Duration, now)
		read <- result{measured, err}
		_, _ = io.Copy(io.Discard, r)
	}()
	ended := func() error {
		out.Close()
		return errors.Join(p.Err(), p.EndedEarly(), (<-read).err)
	}
	select {
	case <-begun:
	case <-p.Done():
		return m, ended()
	case <-ctx.Done():
		return m, ctx.Err()
	case got := <-read: // before the end of the output: it is refused
		return m, got.err
	case <-time.After(commandStart):
		out.Close()
		return m, errors.Join(errors.New("the load command has printed no latency in "+commandStart.String()), (<-read).err)
	}
	select {
	case <-p.Done():
		return m, ended()
	case <-ctx.Done():
		return m, ctx.Err()
	case got := <-read:
		return m, got.err
	case <-time.After(order.Warmup + order.Duration):
	}
	p.Stop(syscall.SIGTERM, time.Second)
	out.Close()
	got := <-read
	if got.err != nil {
		return m, got.err
	}
	m.Client, m.Warmup = got.measured, got.measured.Warmup
	m.From = m.Client.Started.Add(m.Warmup)
	m.To = m.From.Add(m.Client.Length)
	return m, nil
}
