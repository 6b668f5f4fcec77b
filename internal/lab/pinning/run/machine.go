package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/perf"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/meter"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// machine is the experiment on this machine, after its set-up.
type machine struct {
	bench
	division
	servers []work.NGINX
	rate    float64 // requests per second of the open loop on each server
}

// enterMachine prepares the experiment on this machine.
func enterMachine(ctx context.Context, c Config) (_ site, err error) {
	b := &machine{bench: bench{Config: c, versions: map[string]string{}}}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.division, err = c.divide(b.Topology, b.Place.Tested); err != nil {
		return nil, err
	}
	b.bench.refused = b.division.refused
	if b.each == 0 {
		b.Parts = slices.DeleteFunc(slices.Clone(b.Parts), func(p string) bool { return p == pinning.NGINX })
	}
	if slices.Contains(b.Parts, pinning.NGINX) {
		err = b.prepareServers(ctx)
	}
	return b, err
}

func (b *machine) length() time.Duration { return b.Work + 2*b.loop() }

func (b *machine) refuse(c cell) string {
	n, limit, all := b.pieces(c.part)
	return whyUseless(c.mode, b.Topology, all, n, limit)
}

// pieces returns the number of pieces of work of a part, the CPU limit of each
// piece, and the CPUs that the pieces may use.
func (b *machine) pieces(part string) (n, limit int, all unit.CPUSet) {
	if part == pinning.NGINX {
		return b.division.servers, b.each, b.service
	}
	return 1, b.limit, b.Place.Tested
}

// calibrate chooses the number of rounds of the job, and the rate of the open
// loop.
func (b *machine) calibrate(ctx context.Context) (lines []string, err error) {
	if slices.Contains(b.Parts, pinning.Pi) && b.Rounds == 0 {
		b.Status.Now("calibrating: the job alone")
		b.Rounds = 1
		var r pinning.Run
		if err := b.measure(ctx, cell{pinning.Pi, pinning.SharedFree}, &r); err != nil {
			return nil, err
		}
		b.Rounds = max(int(b.Work.Seconds()/r.CPU), 1)
		lines = append(lines, fmt.Sprintf("one round of %d digits with %d threads needs %.2f s of CPU time: %d rounds", b.Digits, b.Threads, r.CPU, b.Rounds))
	}
	if slices.Contains(b.Parts, pinning.NGINX) && len(b.pollers) > 0 {
		b.Status.Now("calibrating: the capacity of the servers")
		var r pinning.Run
		if err := b.measure(ctx, cell{pinning.NGINX, pinning.Shared}, &r); err != nil {
			return nil, err
		}
		const share = 0.6 // of the capacity
		b.rate = max(share*r.Closed.Rate/float64(len(b.servers)), 1)
		lines = append(lines, fmt.Sprintf("the servers answer %.0f requests/s in mode shared; the open loop offers %.0f %% of that", r.Closed.Rate, 100*share))
	}
	return lines, nil
}

func (b *machine) describe(e *pinning.Experiment) {
	e.Limit, e.Machine = b.limit, testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	e.Machine.Mechanisms = nil
	e.Caveats = append(e.Caveats, "the lab itself runs on the tested CPUs, and reads the counters five times a second")
	if len(b.servers) > 0 {
		e.ClientCPUs = b.client
		e.Servers, e.ServerLimit, e.Rate = len(b.servers), b.each, b.rate*float64(len(b.servers))
	}
}

// measure measures one cell.
func (b *machine) measure(ctx context.Context, c cell, r *pinning.Run) (err error) {
	defer func() { err = errors.Join(err, testbed.Clear(b.Root, b.Host, b.Tree)) }()
	n, limit, all := b.pieces(c.part)
	list := boundsOf(c.mode, b.Topology, all, n, limit)
	for _, s := range list {
		r.CPUs = r.CPUs.Union(s.CPUs)
	}
	if err := b.build(list); err != nil {
		return err
	}
	if c.mode == pinning.StaticBurst {
		stop, err := b.pools(ctx, list, limit, r)
		if err != nil {
			return err
		}
		defer stop()
	}
	if c.mode == pinning.SharedWarm {
		stop, err := b.spin(all)
		if err != nil {
			return err
		}
		defer stop()
	}
	if c.part == pinning.Pi {
		return b.runPi(ctx, list[0], r)
	}
	return b.runNGINX(ctx, list, r)
}

func (b *machine) work() node.CgroupPath       { return b.Root.Join("work") }
func (b *machine) piece(i int) node.CgroupPath { return b.work().Join("piece-" + strconv.Itoa(i)) }
func (b *machine) spinner() node.CgroupPath    { return b.Root.Join("spinner") }
func (b *machine) meter() *meter.Meter         { return &meter.Meter{FS: b.FS, Tree: b.Tree} }

// build makes the cgroups of the pieces.
func (b *machine) build(list []testbed.Bounds) error {
	for _, p := range []node.CgroupPath{b.Root, b.work()} {
		if err := b.Host.MakeGroup(p); err != nil {
			return err
		}
		if err := b.Tree.WriteCPUs(string(p), b.Place.Tested); err != nil {
			return err
		}
	}
	for i, s := range list {
		if err := b.Host.MakeGroup(b.piece(i)); err != nil {
			return err
		}
		if err := b.Tree.WriteCPUs(string(b.piece(i)), s.CPUs); err != nil {
			return err
		}
		if err := b.WriteQuota(b.piece(i), s); err != nil {
			return err
		}
	}
	return nil
}

// pools runs Tenon's loop, which gives each piece a pool of its own. The
// returned function ends the loop. It also writes the last CPUs of the pools,
// and any errors, into the run.
func (b *machine) pools(ctx context.Context, list []testbed.Bounds, limit int, r *pinning.Run) (stop func(), err error) {
	groups := make([]node.CgroupPath, len(list))
	for i := range list {
		groups[i] = b.piece(i)
	}
	agent, err := b.RunPools(ctx, groups, unit.CPUs(limit))
	if err != nil {
		return nil, err
	}
	return func() {
		r.CPUs = unit.CPUSet{}
		for _, p := range groups {
			cpus, err := b.Tree.EffectiveCPUs(string(p))
			if err != nil {
				r.Void = append(r.Void, err.Error())
			}
			r.CPUs = r.CPUs.Union(cpus)
		}
		_, faults := agent.Report()
		r.Void = append(r.Void, faults...)
		if err := agent.Stop(); err != nil {
			r.Void = append(r.Void, err.Error())
		}
	}, nil
}

// spin keeps CPUs awake at the lowest priority.
func (b *machine) spin(cpus unit.CPUSet) (stop func(), err error) {
	if err := b.Host.MakeGroup(b.spinner()); err != nil {
		return nil, err
	}
	if err := b.Tree.WriteCPUs(string(b.spinner()), cpus); err != nil {
		return nil, err
	}
	if err := b.Tree.WriteCPUWeight(string(b.spinner()), cgroup.CPUWeight{Idle: true}); err != nil && !errors.Is(err, cgroup.ErrUnsupported) {
		return nil, err // without cpu.idle, the policy SCHED_IDLE of the spinner must suffice
	}
	p, err := testbed.Start(b.Host, testbed.Child{Name: "the spinner", Argv: b.Child("spin", cpus.String()), Group: b.spinner(), CPUs: cpus})
	if err != nil {
		return nil, err
	}
	return p.Kill, nil
}

// runPi runs the job and reads its counters.
func (b *machine) runPi(ctx context.Context, s testbed.Bounds, r *pinning.Run) error {
	m := b.meter()
	m.Group = b.piece(0)
	defer m.Close()
	watch, err := b.watch()
	if err != nil {
		return err
	}
	var out []byte
	from, to, err := meter.During(ctx, []*meter.Meter{m}, func(ctx context.Context) (err error) {
		out, err = b.Await(ctx, testbed.Child{
			Name: "the job", Argv: b.Child("pi", strconv.Itoa(b.Threads), strconv.Itoa(b.Digits), strconv.Itoa(b.Rounds)), Group: m.Group, CPUs: s.CPUs,
			Before: func(pid int) error { m.Follow(pid); return nil },
		})
		return err
	})
	if err != nil {
		return err
	}
	r.PiResult = &pi.Report{}
	if err := json.Unmarshal(out, r.PiResult); err != nil {
		return fmt.Errorf("read the result of the job: %w", err)
	}
	fill(r, from, to)
	if r.PiResult.Right < r.PiResult.Digits {
		r.Void = append(r.Void, fmt.Sprintf("%d of %d digits are right", r.PiResult.Right, r.PiResult.Digits))
	}
	why, err := watch()
	r.Void = append(r.Void, why...)
	return err
}

// fill adds up the counters of all pieces.
func fill(r *pinning.Run, from, to []meter.Reading) {
	var moves, switches float64
	known := true
	for i := range from {
		a, z := from[i], to[i]
		r.Seconds = z.At.Sub(a.At).Seconds()
		r.CPU += (z.CPU.Usage - a.CPU.Usage).Seconds()
		r.Periods += z.CPU.Periods - a.CPU.Periods
		r.Throttled += z.CPU.NrThrottled - a.CPU.NrThrottled
		r.Waiting += (z.Wait - a.Wait).Seconds()
		m, okM := meter.CountBetween(a, z, perf.Migrations).Value()
		s, okS := meter.CountBetween(a, z, perf.Switches).Value()
		moves, switches, known = moves+m, switches+s, known && okM && okS
	}
	if known {
		r.Moves, r.Switches = &moves, &switches
	}
}

// watch starts to watch the tested CPUs. Other work there is a result.
func (b *machine) watch() (func() ([]string, error), error) {
	return harness.Disturbances(b.Site, b.work(), b.StealPercent, 0)
}
