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
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A cell is one part in one mode.
type cell struct {
	part string
	mode pinning.Mode
}

func (c cell) String() string { return c.part + " " + string(c.mode) }

// A bench is the experiment after its set-up.
type bench struct {
	Config
	*testbed.Site
	division
	cells    []cell
	wrk      string // path of wrk
	servers  []work.NGINX
	versions map[string]string
	rate     float64 // requests per second of the open loop on each server
}

// Run runs the experiment. When it returns, even with an error, no process and
// no cgroup of the experiment is left. If it returns both an Outcome and an
// error, the Outcome has the runs that had ended before the error.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.OrDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	b, err := newBench(ctx, c)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	return (&harness.Series[cell, pinning.Run]{
		Site: b.Site, Cells: b.cells, Blocks: b.Blocks, Most: b.MaxTime, First: b.Work + 2*b.Duration,
		Calibrate: b.calibrate, Run: b.run, Tell: tell, Open: pinning.Open,
		Save:    func(r pinning.Run) error { return pinning.AddRun(b.Out, r) },
		Void:    func(r pinning.Run) []string { return r.Void },
		Decides: pinning.Decides,
	}).Conduct(ctx)
}

func newBench(ctx context.Context, c Config) (_ *bench, err error) {
	b := &bench{Config: c, versions: map[string]string{}}
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
	if b.each == 0 {
		b.Parts = slices.DeleteFunc(slices.Clone(b.Parts), func(p string) bool { return p == pinning.NGINX })
	}
	if slices.Contains(b.Parts, pinning.NGINX) {
		if err := b.prepareServers(ctx); err != nil {
			return nil, err
		}
	}
	for _, p := range b.Parts {
		n, limit, all := b.pieces(p)
		for _, m := range b.Modes {
			c := cell{p, m}
			if why := whyUseless(m, b.Topology, all, n, limit); why != "" {
				b.refused = append(b.refused, fmt.Sprintf("%v: %s", c, why))
				continue
			}
			b.cells = append(b.cells, c)
		}
	}
	return b, nil
}

// pieces returns the number of pieces of work of a part, the CPU limit of each
// piece, and the CPUs that the pieces may use.
func (b *bench) pieces(part string) (n, limit int, all unit.CPUSet) {
	if part == pinning.NGINX {
		return b.division.servers, b.each, b.service
	}
	return 1, b.limit, b.Place.Tested
}

// calibrate chooses the number of rounds of the job, and the rate of the open
// loop.
func (b *bench) calibrate(ctx context.Context, caveats []string) (report.Headed, []string, error) {
	var lines []string
	if slices.Contains(b.Parts, pinning.Pi) && b.Rounds == 0 {
		b.Status.Now("calibrating: the job alone")
		b.Rounds = 1
		r, err := b.run(ctx, cell{pinning.Pi, pinning.SharedFree}, 0, 0)
		if err != nil {
			return nil, nil, err
		}
		b.Rounds = max(int(b.Work.Seconds()/r.CPU), 1)
		lines = append(lines, fmt.Sprintf("one round of %d digits with %d threads needs %.2f s of CPU time: %d rounds", b.Digits, b.Threads, r.CPU, b.Rounds))
	}
	if slices.Contains(b.Parts, pinning.NGINX) && len(b.pollers) > 0 {
		b.Status.Now("calibrating: the capacity of the servers")
		r, err := b.run(ctx, cell{pinning.NGINX, pinning.Shared}, 0, 0)
		if err != nil {
			return nil, nil, err
		}
		const share = 0.6 // of the capacity
		b.rate = max(share*r.Closed.Rate/float64(len(b.servers)), 1)
		lines = append(lines, fmt.Sprintf("the servers answer %.0f requests/s in mode shared; the open loop offers %.0f %% of that", r.Closed.Rate, 100*share))
	}
	return b.experiment(caveats), lines, nil
}

func (b *bench) experiment(caveats []string) *pinning.Experiment {
	machine := testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	machine.Mechanisms = nil
	e := &pinning.Experiment{
		Header: b.Header(pinning.Kind, b.Modes, b.Blocks), Parts: b.Parts, Limit: b.limit,
		Threads: b.Threads, Digits: b.Digits, Rounds: b.Rounds,
	}
	e.Refused, e.Machine, e.Versions = b.refused, machine, b.versions
	e.Caveats = append(caveats, "the lab itself runs on the tested CPUs, and reads the counters five times a second")
	if len(b.servers) > 0 {
		e.ClientCPUs = b.client
		e.Servers, e.ServerLimit, e.Rate = len(b.servers), b.each, b.rate*float64(len(b.servers))
		e.Caveats = append(e.Caveats, "the closed loop waits for answers before it asks again: its average follows from its requests per second")
	}
	return e
}

func tell(r pinning.Run) string {
	if r.Closed != nil {
		return fmt.Sprintf("%8.0f requests/s  average %6.0f µs", r.Closed.Rate, r.Closed.Mean)
	}
	return fmt.Sprintf("%6.2f s  %6.2f CPU-s", r.Seconds, r.CPU)
}

// run measures one cell.
func (b *bench) run(ctx context.Context, c cell, index, block int) (r pinning.Run, err error) {
	r = pinning.Run{Index: index, Block: block, Part: c.part, Mode: c.mode, Started: time.Now()}
	defer func() {
		if err = errors.Join(err, testbed.Clear(b.Root, b.Host, b.Tree)); err != nil {
			err = fmt.Errorf("%v: %w", c, err)
		}
	}()
	n, limit, all := b.pieces(c.part)
	list := seats(c.mode, b.Topology, all, n, limit)
	for _, s := range list {
		r.CPUs = r.CPUs.Union(s.cpus)
	}
	if err := b.build(list); err != nil {
		return r, err
	}
	if c.mode == pinning.StaticBurst {
		stop, err := b.pools(ctx, list, limit, &r)
		if err != nil {
			return r, err
		}
		defer stop()
	}
	if c.mode == pinning.SharedWarm {
		stop, err := b.spin(all)
		if err != nil {
			return r, err
		}
		defer stop()
	}
	if c.part == pinning.Pi {
		err = b.runPi(ctx, list[0], &r)
	} else {
		err = b.runNGINX(ctx, list, &r)
	}
	return r, err
}

func (b *bench) work() node.CgroupPath      { return b.Root.Join("work") }
func (b *bench) seat(i int) node.CgroupPath { return b.work().Join("seat-" + strconv.Itoa(i)) }
func (b *bench) spinner() node.CgroupPath   { return b.Root.Join("spinner") }
func (b *bench) meter() *meter.Meter        { return &meter.Meter{FS: b.FS, Tree: b.Tree} }
func quotaOf(m unit.MilliCPU) time.Duration { return time.Duration(m) * node.DefaultPeriod / 1000 }

// build makes the cgroups of the seats.
func (b *bench) build(list []seat) error {
	for _, p := range []node.CgroupPath{b.Root, b.work()} {
		if err := b.Host.MakeGroup(p); err != nil {
			return err
		}
		if err := b.Tree.WriteCPUs(string(p), b.Place.Tested); err != nil {
			return err
		}
	}
	for i, s := range list {
		if err := b.Host.MakeGroup(b.seat(i)); err != nil {
			return err
		}
		if err := b.Tree.WriteCPUs(string(b.seat(i)), s.cpus); err != nil {
			return err
		}
		if s.quota == 0 {
			continue
		}
		if err := b.Tree.WriteCPUMax(string(b.seat(i)), cgroup.CPUMax{Quota: quotaOf(s.quota), Period: node.DefaultPeriod}); err != nil {
			return err
		}
	}
	return nil
}

// pools runs Tenon's loop, which gives each seat a pool of its own. The
// returned function ends the loop. It also writes the last CPUs of the pools,
// and any errors, into the run.
func (b *bench) pools(ctx context.Context, list []seat, limit int, r *pinning.Run) (stop func(), err error) {
	groups := make([]node.CgroupPath, len(list))
	for i := range list {
		groups[i] = b.seat(i)
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
func (b *bench) spin(cpus unit.CPUSet) (stop func(), err error) {
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
func (b *bench) runPi(ctx context.Context, s seat, r *pinning.Run) error {
	m := b.meter()
	m.Group = b.seat(0)
	defer m.Close()
	watch, err := b.watch()
	if err != nil {
		return err
	}
	var out []byte
	from, to, err := b.meterDuring(ctx, []*meter.Meter{m}, func(ctx context.Context) (err error) {
		out, err = b.Await(ctx, testbed.Child{
			Name: "the job", Argv: b.Child("pi", strconv.Itoa(b.Threads), strconv.Itoa(b.Digits), strconv.Itoa(b.Rounds)), Group: m.Group, CPUs: s.cpus,
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

// meterDuring calls a function (do). It reads the meters before the call,
// during it, and after it.
func (b *bench) meterDuring(ctx context.Context, meters []*meter.Meter, do func(context.Context) error) (from, to []meter.Reading, err error) {
	readAll := func() (list []meter.Reading, err error) {
		for _, m := range meters {
			r, err := m.Read()
			if err != nil {
				return nil, err
			}
			list = append(list, r)
		}
		return list, nil
	}
	if from, err = readAll(); err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	doing, stop := context.WithCancel(ctx)
	defer stop()
	go func() { done <- do(doing) }()
	ticker := time.NewTicker(harness.SamplePeriod)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return nil, nil, err
			}
			to, err = readAll()
			return from, to, err
		case <-ticker.C:
			if _, err := readAll(); err != nil {
				stop()
				return nil, nil, errors.Join(err, <-done)
			}
		}
	}
}

// fill adds up the counters of all seats.
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

// watch starts to watch the tested CPUs. The returned function gives the
// reasons why other work since then makes the run void.
func (b *bench) watch() (func() ([]string, error), error) {
	read := func() (harness.Reading, error) {
		s := harness.Sampler{Tree: b.Tree, FS: b.FS, Tested: b.Place.Tested, Service: b.work(), Recording: harness.Recording{NoPSI: true}}
		return s.Reading()
	}
	before, err := read()
	return func() ([]string, error) {
		after, err := read()
		if err != nil {
			return nil, err
		}
		used := harness.Between(before, after, b.Place.Tested.Len())
		if share := 100 * used.StealRatio; share > b.StealPercent {
			return []string{fmt.Sprintf("the hypervisor kept %.1f %% of the tested CPUs' time (steal), more than %g %%", share, b.StealPercent)}, nil
		}
		return nil, nil
	}, err
}
