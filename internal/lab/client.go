package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/unit"
)

// clientNice puts the client before the lab itself, which shares its CPUs.
const clientNice = -10

// Child is the other side of Config.Self: the parts of the lab that must be
// processes of their own. args are what follows Self.
//
//	client      reads a load.Config from in, writes a load.Result to out
//	spin CPUS   keeps CPUS busy at the lowest priority
//	burn CPUS   keeps CPUS busy at the usual priority
//	step        reads a stepPlan from in, writes a line of its course for each step to out
//	hog FILE N  goes through FILE and holds N bytes of it; writes its progress to out
//	warm DIR    reads the files of DIR
func Child(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "client":
		var c load.Config
		if err := json.NewDecoder(in).Decode(&c); err != nil {
			return fmt.Errorf("read the load to make: %w", err)
		}
		// A collection stops the sending threads; the process is short-lived.
		debug.SetGCPercent(-1)
		r, err := load.Run(ctx, c)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(r)
	case len(args) == 2 && (args[0] == "spin" || args[0] == "burn"):
		cpus, err := unit.ParseCPUSet(args[1])
		if err != nil {
			return err
		}
		return Spin(ctx, cpus, args[0] == "spin")
	case len(args) == 1 && args[0] == "step":
		return runSteps(ctx, in, out)
	case len(args) == 3 && args[0] == "hog":
		held, err := unit.ParseBytes(args[2])
		if err != nil {
			return err
		}
		return Hog(ctx, args[1], held, out)
	case len(args) == 2 && args[0] == "warm":
		return Warm(args[1])
	}
	return fmt.Errorf("lab child %q: want client, spin CPUS, burn CPUS, step, hog FILE BYTES or warm DIR", args)
}

// load runs the client as a process on the client's CPUs and returns what it
// measured. It ends early if ctx does.
func (s *site) load(ctx context.Context, c load.Config) (*load.Result, error) {
	c.CPUs = s.place.Client
	order, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("order the load: %w", err)
	}
	out, err := s.await(ctx, child{
		name: "the load generator", argv: s.child("client"),
		cpus: s.place.Client, nice: clientNice, stdin: bytes.NewReader(order),
	})
	if err != nil {
		return nil, err
	}
	var r load.Result
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("read what the load generator measured: %w", err)
	}
	return &r, nil
}

// wrk runs the real wrk for d.
func (b *bench) wrk(ctx context.Context, d time.Duration) (*load.WrkResult, error) {
	c := load.WrkConfig{
		URL:         b.nginx.URL(),
		Threads:     b.place.Client.Len(),
		Connections: b.connections(),
		Duration:    d.Round(time.Second),
	}
	argv := append([]string{b.wrkPath}, c.Args()...)
	out, err := b.await(ctx, child{name: "wrk", argv: argv, cpus: b.place.Client, nice: clientNice})
	if err != nil {
		return nil, err
	}
	r, err := load.ParseWrk(string(out))
	if err == nil {
		r.Command = argv
		r.Explain()
	}
	return r, err
}

// connections is how many the client opens.
func (b *bench) connections() int {
	switch {
	case b.Connections > 0:
		return b.Connections
	case b.Client == ClientWrk:
		// -c54 on 104 CPUs, and at least one for each of wrk's threads.
		return max(54*b.place.Tested.Len()/104, 2, b.place.Client.Len())
	}
	return 256
}

// await starts c and returns its output when it has ended.
func (s *site) await(ctx context.Context, c child) ([]byte, error) {
	var out bytes.Buffer
	c.stdout = &out
	p, err := start(s.groups(), c)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	select {
	case <-ctx.Done():
		p.Stop(syscall.SIGTERM, time.Second)
		return nil, ctx.Err()
	case <-p.Done():
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// self is the argv prefix of Child by default.
func self() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{path, "lab", "child"}, nil
}

// spin starts the spinner.
func (b *bench) spin(p pods) (*Process, error) {
	return start(b.host, child{
		name: "the spinner", argv: b.site.child("spin", p.tested.String()),
		group: p.spinner(), cpus: p.tested,
	})
}

func percent(ratio float64) string { return strconv.FormatFloat(100*ratio, 'f', 1, 64) + " %" }
