// Package run runs the memory experiment on this machine: nginx shares a limited
// amount of memory with a program that demands much of it.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// An environment is the memory experiment after its set-up.
type environment struct {
	Config
	*testbed.Site
	sizes   memory.Setup
	load    harness.LoadSpec
	nginx   work.NGINX
	data    string // directory of the files that the programs read
	version string // of nginx
}

// Run runs the memory experiment. nginx, whose pages fill the page cache,
// runs beside a program that demands much memory. Both programs are in one
// cgroup, which has less memory than they demand together. The files and the
// result have the same form as those of the colocation experiment.
func Run(ctx context.Context, c Config) (harness.Outcome, error) {
	c, err := c.orDefaults()
	if err != nil {
		return harness.Outcome{}, err
	}
	b, err := setMemory(ctx, c)
	if err != nil {
		return harness.Outcome{}, testbed.InterruptError(ctx, err)
	}
	return (&harness.Series[report.Mode, memory.Run]{
		Site: b.Site, Cells: b.Modes, Blocks: b.Blocks, First: b.Duration + b.warmup() + 4*time.Second,
		Calibrate: b.calibrate, Run: b.run, Tell: tellMemory, Open: memory.Open,
		Save:    func(r memory.Run) error { return report.SaveRun(b.Out, &r) },
		Void:    func(r memory.Run) []string { return r.Void },
		Decides: func(blocks int) string { return harness.Decides(blocks, "--blocks") },
	}).Conduct(ctx)
}

func setMemory(ctx context.Context, c Config) (_ *environment, err error) {
	b := &environment{Config: c}
	if b.Site, err = testbed.Enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if !b.Tree.Has("memory") {
		return nil, errors.New("this machine has no memory controller of cgroups")
	}
	if b.nginx.Path, err = work.NGINXProgram.Find(); err != nil {
		return nil, err
	}
	if b.nginx.Version, b.version, err = work.NGINXProgram.Ask(ctx, b.nginx.Path); err != nil {
		return nil, err
	}
	b.sizes = sizesOf(c.Set, b.Tree.VersionOf("memory"))
	if err := b.checkMemory(); err != nil {
		return nil, err
	}
	if err := b.writeData(); err != nil {
		return nil, err
	}
	// A worker that waits for the disk serves no other request. Therefore there
	// are several workers for each CPU.
	b.nginx.Workers, b.nginx.Pages = 4*b.Place.Tested.Len(), b.pages()
	if b.nginx, err = work.PrepareNGINX(b.Site, b.nginx, c.Port, memoryConnections); err != nil {
		return nil, err
	}
	// In this experiment, late and missing answers are a result, and do not
	// make the run void.
	b.load = harness.LoadSpec{
		URL: b.nginx.URL(), Pages: b.sizes.Pages, Rate: b.Rate, Duration: b.Duration, Warmup: b.warmup(), Seed: b.Seed,
		Connections: memoryConnections, Limits: load.Limits{AchievedRatio: 0.01, ErrorRatio: 0.5},
	}
	return b, b.StepAside()
}

// memoryConnections is the number of connections that the client opens.
const memoryConnections = 64

// checkMemory returns an error if the machine cannot spare as much memory as the
// experiment needs.
func (b *environment) checkMemory() error {
	info, err := b.FS.MemInfo()
	if err != nil {
		return err
	}
	if info.Unread.Lack("MemAvailable") {
		return info.Unread.Err("/proc/meminfo")
	}
	if info.Available < b.sizes.Parent/2*3 {
		return fmt.Errorf("--set %s: the experiment uses %s of memory, and only %s are available here", testbed.Mebibytes(b.Set), testbed.Mebibytes(b.sizes.Parent), testbed.Mebibytes(info.Available))
	}
	return nil
}

// writeData writes the files of the service and of the batch work. If the pages
// of these files cannot be reclaimed, as on tmpfs, it returns an error.
func (b *environment) writeData() error {
	if err := work.OpenToAll(b.Data); err != nil {
		return fmt.Errorf("--data %s: %w", b.Data, err)
	}
	if err := work.RoomFor(b.Data, b.sizes.Set+b.sizes.HogFile+64<<20); err != nil {
		return err
	}
	b.Status.Now("writing %s of files to %s", testbed.Mebibytes(b.sizes.Set+b.sizes.HogFile), b.Data)
	dir, err := b.Directory(b.Data)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	b.data = dir
	err = errors.Join(
		os.Chmod(dir, 0o755), // nginx's workers run as user nobody
		work.WritePages(b.pages(), b.sizes.Pages, b.Seed),
		work.WriteFile(b.hogFile(), b.sizes.HogFile, b.Seed+1))
	if err == nil {
		err = work.Evict(dir)
	}
	if err != nil {
		return fmt.Errorf("--data %s: %w", b.Data, err)
	}
	held, all, err := work.CachedPages(b.hogFile())
	if err != nil {
		return fmt.Errorf("--data %s: %w", b.Data, err)
	}
	if held > all/2 {
		return fmt.Errorf("--data %s: its file system keeps files in memory (%d of %d pages stay although they are not needed): choose a directory on a device, such as /var/tmp", b.Data, held, all)
	}
	return nil
}

func (b *environment) pages() string   { return filepath.Join(b.data, "pages") }
func (b *environment) hogFile() string { return filepath.Join(b.data, "hog") }

// calibrate measures nothing, because the rate is in the configuration.
func (b *environment) calibrate(_ context.Context, caveats []string) (report.Headed, []string, error) {
	return b.experiment(append(caveats, b.caveats()...)), nil, nil
}

func (b *environment) experiment(caveats []string) *memory.Experiment {
	machine := testbed.Describe(b.FS, b.Topology, b.Host.Capabilities(), b.Tree.Version())
	machine.Mechanisms = []string{"memory.min", "memory.low", "memory.high", "memory.max"}
	if b.Tree.VersionOf("memory") == 1 {
		machine.Mechanisms = []string{"memory.limit_in_bytes"}
	}
	h := b.Header(memory.Kind, b.Modes, b.Blocks)
	h.Machine, h.Caveats, h.Versions, h.Tenond = machine, caveats, map[string]string{"nginx": b.version}, b.agentRecord()
	return &memory.Experiment{Experiment: report.Experiment{
		Header: h, Looks: report.LooksOf(b.Blocks), Duration: b.Duration, Margin: memoryMargin,
		LabCPUs: b.Place.Lab, Client: harness.ClientTenon, OfferedRate: b.Rate,
	}, Memory: b.sizes}
}

// memoryMargin is the smallest ratio between two modes that the report calls a
// difference.
const memoryMargin = 1.1

func (b *environment) caveats() []string {
	list := append(b.Site.Caveats(), "all modes give the batch work the CPU weight of a BestEffort pod: what is compared is memory")
	if b.Tree.VersionOf("memory") == 1 {
		list = append(list, "the memory controller here is cgroup v1, which has neither memory.low nor memory.high: all that Tenon can do is the limit that the rule of the batch work names")
	}
	switch info, err := b.FS.MemInfo(); {
	case err != nil || info.Unread.Lack("SwapTotal"):
		list = append(list, "it is not known whether this machine has swap: memory of the batch work may have gone there")
	case info.SwapTotal > 0:
		list = append(list, "this machine has swap: memory of the batch work may have gone there")
	}
	return list
}

// agentRecord returns the configuration of tenond in mode tenond, for experiment.json.
func (b *environment) agentRecord() map[report.Mode]string {
	if b.Agent == "" {
		return nil
	}
	return map[report.Mode]string{report.Tenond: b.tenondConfig(b.podsOf()).Record(b.Agent)}
}

func (b *environment) podsOf() testbed.Pods {
	return testbed.Pods{Root: b.Root, Job: "hog", Tested: b.Place.Tested}
}

func (b *environment) tenondConfig(p testbed.Pods) testbed.TenondConfig {
	return testbed.TenondConfig{Period: testbed.GovernPeriod, CPUs: p.Tested, Rules: memoryRules(p, b.sizes), Memory: memoryPolicy(b.sizes)}
}

func tellMemory(r memory.Run) string {
	text := fmt.Sprintf("P50 %5.0f µs  P99 %6.0f µs", r.Latency.P50, r.Latency.P99)
	text += fmt.Sprintf("  %7.0f refaults/s", float64(r.Memory.LSRefaults)/r.Length.Seconds())
	if r.Memory.BEBytes > 0 {
		text += fmt.Sprintf("  BE %5.0f MiB/s", float64(r.Memory.BEBytes)/(1<<20)/r.Length.Seconds())
	}
	return text
}

// A memorySetUp holds all processes and cgroups of one mode.
type memorySetUp struct {
	b           *environment
	pods        testbed.Pods
	nginx       *testbed.Process
	hog         *testbed.Process
	meter       *work.Meter
	agentRunner *testbed.AgentRunner
	sampler     *harness.Sampler
}

// setUp starts the programs of a mode. It returns when the service's pages are
// in memory and the batch work has read its file once.
func (b *environment) setUp(ctx context.Context, mode report.Mode) (st *memorySetUp, err error) {
	st = &memorySetUp{b: b, pods: b.podsOf(), meter: &work.Meter{}}
	defer func() {
		if err != nil {
			st, err = nil, st.close(err)
		}
	}()
	// An earlier run left page cache that is charged to a removed cgroup.
	if err := work.Evict(b.data); err != nil {
		return st, err
	}
	if err := st.pods.Build(b.Host, b.Tree); err != nil {
		return st, err
	}
	if err := b.Tree.WriteMemory(string(b.Root), cgroup.Memory{High: unit.MaxBytes, Max: b.sizes.Parent}); err != nil {
		return st, err
	}
	st.sampler = &harness.Sampler{Tree: b.Tree, FS: b.FS, Tested: b.Place.Tested, Service: st.pods.NGINXPod(), Memory: true}
	if st.nginx, err = b.nginx.Start(ctx, b.Host, st.pods.NGINX(), b.Place.Tested); err != nil {
		return st, err
	}
	st.sampler.LSProcesses = func() ([]int, error) { return b.Tree.Procs(string(st.pods.NGINX())) }
	if _, err := b.Await(ctx, testbed.Child{Name: "the reader that warms the cache", Argv: b.Child("warm", b.pages()), Group: st.pods.NGINX(), CPUs: b.Place.Tested}); err != nil {
		return st, err
	}
	if mode != report.Default && mode != report.Tenond {
		return st, nil
	}
	st.sampler.Batch, st.sampler.Root = st.pods.JobPod(), st.pods.Batch()
	if mode == report.Tenond {
		if st.agentRunner, err = b.govern(ctx, st.pods); err != nil {
			return st, err
		}
	}
	return st, st.startHog(ctx)
}

// govern starts Tenon, which writes the memory knobs.
func (b *environment) govern(ctx context.Context, p testbed.Pods) (*testbed.AgentRunner, error) {
	if b.Agent != "" {
		return b.Tenond(ctx, b.tenondConfig(p))
	}
	work := p.Workloads()
	for i, rule := range memoryRules(p, b.sizes) {
		if rule.Request > 0 {
			work[i].MemoryRequest = node.Some(rule.Request)
		}
		if rule.Limit > 0 {
			work[i].MemoryLimit = node.Some(rule.Limit)
		}
	}
	return b.Site.RunAgent(ctx, work, policy.Config{Memory: memoryPolicy(b.sizes)}, false)
}

// hogPatience is the longest time that the experiment waits for the batch work
// to read its file once. On a slow disk, the experiment continues after the
// batch work has read a part of the file.
const hogPatience = 15 * time.Second

func (st *memorySetUp) startHog(ctx context.Context) error {
	r, out := io.Pipe()
	var err error
	st.hog, err = testbed.Start(st.b.Host, testbed.Child{
		Name: "the memory hog", Argv: st.b.Child("hog", st.b.hogFile(), st.b.sizes.HogHeld.String()),
		Group: st.pods.JobGroup(), CPUs: st.b.Place.Tested, Stdout: out,
	})
	if err != nil {
		out.Close()
		return err
	}
	go func() {
		_ = st.meter.Follow(r, time.Now)
		_, _ = io.Copy(io.Discard, r) // an error must not block the writer
	}()
	go func() {
		<-st.hog.Done()
		out.Close()
	}()
	for deadline := time.Now().Add(hogPatience); st.meter.Last() < float64(st.b.sizes.HogFile) && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-st.hog.Done():
			return fmt.Errorf("%w (was --set %s too small for it?)", errors.Join(st.hog.Err(), st.hog.EndedEarly()), testbed.Mebibytes(st.b.Set))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (st *memorySetUp) close(err error) error {
	err = errors.Join(err, st.agentRunner.Stop())
	if st.hog != nil {
		st.hog.Kill()
	}
	if st.nginx != nil {
		st.b.nginx.Stop(st.nginx)
	}
	return errors.Join(err, testbed.Clear(st.b.Root, st.b.Host, st.b.Tree))
}

func (b *environment) run(ctx context.Context, mode report.Mode, index, block int) (r memory.Run, err error) {
	r.Run = report.Run{Index: index, Block: block, Mode: mode, Started: time.Now(), PSICPU: -1}
	st, err := b.setUp(ctx, mode)
	if err != nil {
		return r, fmt.Errorf("mode %s: %w", mode, err)
	}
	defer func() {
		if err = st.close(err); err != nil {
			err = fmt.Errorf("mode %s: %w", mode, err)
		}
		runtime.GC() // collect garbage now, so that it does not slow down the next run
	}()
	m, err := harness.Watch(ctx, st.sampler, st.nginx, func(ctx context.Context) (harness.Measurement, error) {
		return harness.LoadOpen(ctx, b.Site, b.load.InBlock(block))
	})
	if err != nil {
		return r, err
	}
	if st.hog != nil {
		if st.hog.HasEnded() {
			r.Discard(report.NotItsMode, errors.Join(st.hog.Err(), st.hog.EndedEarly()).Error())
		}
		time.Sleep(work.HogReport) // wait for one more line, so that the end can be interpolated
		r.Memory.BEBytes = int64(st.meter.GrowthBetween(m.From, m.To))
	}
	var faults []string
	r.Writes, faults = st.agentRunner.Report()
	r.Discard(report.NotItsMode, faults...)
	harness.Fill(&r.Run, m)
	fillMemory(&r, m)
	b.judge(&r, m)
	return r, nil
}
