package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/unit"
)

// A memoryBench is the memory experiment set up.
type memoryBench struct {
	MemoryConfig
	*site
	sizes   report.MemorySetup
	nginx   NGINX
	data    string // directory of the files that are read
	version string // of nginx
}

// Memory runs the memory experiment: nginx, whose pages fill its page cache,
// beside a program that is greedy for memory, both in one group with less
// memory than they want together. What it leaves and returns is as with
// Colocate.
func Memory(ctx context.Context, c MemoryConfig) (Outcome, error) {
	c, err := c.orDefaults()
	if err != nil {
		return Outcome{}, err
	}
	b, err := setMemory(ctx, c)
	if err != nil {
		return Outcome{}, interrupted(ctx, err)
	}
	return conduct(ctx, b)
}

func setMemory(ctx context.Context, c MemoryConfig) (_ *memoryBench, err error) {
	b := &memoryBench{MemoryConfig: c}
	if b.site, err = enter(ctx, c.Setting); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if !b.tree.Has("memory") {
		return nil, errors.New("this machine has no memory controller of cgroups")
	}
	if b.nginx.Path, err = nginxProgram.find(); err != nil {
		return nil, err
	}
	if b.nginx.Version, b.version, err = nginxProgram.ask(ctx, b.nginx.Path); err != nil {
		return nil, err
	}
	b.sizes = sizesOf(c.Set, b.tree.VersionOf("memory"))
	if err := b.bounded(); err != nil {
		return nil, err
	}
	if err := b.writeData(); err != nil {
		return nil, err
	}
	// A worker that waits for the disk answers nobody: a few share the load,
	// as they do where pages do not fit into memory.
	b.nginx.Workers, b.nginx.Pages = 4*b.place.Tested.Len(), b.pages()
	if b.nginx, err = b.prepareNGINX(b.nginx, c.Port, memoryConnections); err != nil {
		return nil, err
	}
	return b, b.stepAside()
}

// memoryConnections is how many the client opens.
const memoryConnections = 64

// bounded fails if the machine could be in danger.
func (b *memoryBench) bounded() error {
	info, err := b.fs.MemInfo()
	if err != nil {
		return err
	}
	if info.Available < b.sizes.Parent/2*3 {
		return fmt.Errorf("--set %s: the experiment uses %s of memory, and only %s are available here", mebibytes(b.Set), mebibytes(b.sizes.Parent), mebibytes(info.Available))
	}
	return nil
}

// writeData writes the files of the service and of the batch work, and makes
// sure that their pages can be reclaimed at all: on tmpfs they cannot.
func (b *memoryBench) writeData() error {
	if err := openToAll(b.Data); err != nil {
		return fmt.Errorf("--data %s: %w", b.Data, err)
	}
	if err := roomFor(b.Data, b.sizes.Set+b.sizes.HogFile+64<<20); err != nil {
		return err
	}
	b.status.Now("writing %s of files to %s", mebibytes(b.sizes.Set+b.sizes.HogFile), b.Data)
	dir, err := b.directory(b.Data)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	b.data = dir
	err = errors.Join(
		os.Chmod(dir, 0o755), // nginx's workers are nobody
		writePages(b.pages(), b.sizes.Pages, b.Seed),
		writeFile(b.hogFile(), b.sizes.HogFile, b.Seed+1))
	if err == nil {
		err = evict(dir)
	}
	if err != nil {
		return fmt.Errorf("--data %s: %w", b.Data, err)
	}
	held, all, err := cachedPages(b.hogFile())
	if err != nil {
		return fmt.Errorf("--data %s: %w", b.Data, err)
	}
	if held > all/2 {
		return fmt.Errorf("--data %s: its file system keeps files in memory (%d of %d pages stay although nobody needs them): choose a directory on a device, such as /var/tmp", b.Data, held, all)
	}
	return nil
}

func (b *memoryBench) pages() string   { return filepath.Join(b.data, "pages") }
func (b *memoryBench) hogFile() string { return filepath.Join(b.data, "hog") }

// open makes the directory of the results.
func (b *memoryBench) open(ctx context.Context) (*series, error) {
	s := &series{
		site: b.site, blocks: b.Blocks, first: b.Duration + b.warmup() + 4*time.Second,
		run: b.run, tell: tellMemory,
	}
	if err := b.Setting.claim(); err != nil {
		return s, err
	}
	b.status.Now("is the machine quiet")
	caveats, err := b.watch(ctx)
	if err != nil {
		os.Remove(b.Out) // if it is empty
		return s, err
	}
	for _, c := range caveats {
		b.status.Keep("%s", c)
	}
	s.exp = b.experiment(append(caveats, b.caveats()...))
	return s, report.Create(b.Out, s.exp)
}

func (b *memoryBench) experiment(caveats []string) report.Experiment {
	machine := describe(b.fs, b.topology, b.host.Capabilities(), b.tree.Version())
	machine.Mechanisms = []string{"memory.min", "memory.low", "memory.high", "memory.max"}
	if b.tree.VersionOf("memory") == 1 {
		machine.Mechanisms = []string{"memory.limit_in_bytes"}
	}
	return report.Experiment{
		Schema: report.Schema, Kind: report.KindMemory, Started: time.Now(), Command: b.Command, Version: b.Version,
		Modes: b.Modes, Blocks: b.Blocks, Duration: b.Duration, Seed: b.Seed, Margin: memoryMargin,
		TestedCPUs: b.place.Tested, ClientCPUs: b.place.Client, Client: ClientTenon, OfferedRate: b.Rate,
		Machine: machine, Caveats: caveats, Versions: map[string]string{"nginx": b.version},
		Memory: &b.sizes, Tenond: b.agentRecord(),
	}
}

// memoryMargin is the difference between two modes that is worth a word.
const memoryMargin = 1.1

func (b *memoryBench) caveats() []string {
	list := append(b.site.caveats(), "all modes give the batch work the CPU weight of a BestEffort pod: what is compared is memory")
	if b.tree.VersionOf("memory") == 1 {
		list = append(list, "the memory controller here is cgroup v1, which has neither memory.low nor memory.high: all that Tenon can do is the limit that the rule of the batch work names")
	}
	if info, err := b.fs.MemInfo(); err == nil && info.SwapTotal > 0 {
		list = append(list, "this machine has swap: memory of the batch work may have gone there")
	}
	return list
}

// agentRecord is what the tenond of mode tenond is told, for the record.
func (b *memoryBench) agentRecord() map[report.Mode]string {
	if b.Agent == "" {
		return nil
	}
	return map[report.Mode]string{report.Tenond: b.tenondConfig(b.podsOf()).record(b.Agent)}
}

func (b *memoryBench) podsOf() pods {
	return pods{root: b.Root, job: "hog", tested: b.place.Tested}
}

func (b *memoryBench) tenondConfig(p pods) tenondConfig {
	return tenondConfig{Period: governPeriod, CPUs: p.tested, Rules: memoryRules(p, b.sizes), Memory: memoryPolicy(b.sizes)}
}

func tellMemory(r report.Run) string {
	text := fmt.Sprintf("P50 %5.0f µs  P99 %6.0f µs", r.Latency.P50, r.Latency.P99)
	if m := r.Memory; m != nil {
		text += fmt.Sprintf("  %7.0f refaults/s", float64(m.LSRefaults)/r.Length.Seconds())
		if m.BEBytes > 0 {
			text += fmt.Sprintf("  BE %5.0f MiB/s", float64(m.BEBytes)/(1<<20)/r.Length.Seconds())
		}
	}
	return text
}

// A memoryStage is everything that runs in one mode.
type memoryStage struct {
	b        *memoryBench
	pods     pods
	nginx    *Process
	hog      *Process
	meter    *meter
	governor *governor
	sampler  *sampler
}

// stage sets a mode up. It returns when the service's pages are in memory, and
// the batch work has gone through its file once.
func (b *memoryBench) stage(ctx context.Context, mode report.Mode) (st *memoryStage, err error) {
	st = &memoryStage{b: b, pods: b.podsOf(), meter: &meter{}}
	defer func() {
		if err != nil {
			st, err = nil, st.close(err)
		}
	}()
	// What an earlier run has left in the page cache is charged to a group
	// that is gone.
	if err := evict(b.data); err != nil {
		return st, err
	}
	if err := st.pods.build(b.host, b.tree); err != nil {
		return st, err
	}
	if err := b.tree.WriteMemory(string(b.Root), cgroup.Memory{High: unit.MaxBytes, Max: b.sizes.Parent}); err != nil {
		return st, err
	}
	st.sampler = &sampler{tree: b.tree, fs: b.fs, tested: b.place.Tested, service: st.pods.nginxPod(), memory: true}
	if st.nginx, err = b.nginx.Start(ctx, b.host, st.pods.nginx(), b.place.Tested); err != nil {
		return st, err
	}
	if st.sampler.ls, err = b.tree.Procs(string(st.pods.nginx())); err != nil {
		return st, err
	}
	if _, err := b.await(ctx, child{name: "the reader that warms the cache", argv: b.child("warm", b.pages()), group: st.pods.nginx(), cpus: b.place.Tested}); err != nil {
		return st, err
	}
	if mode != report.Default && mode != report.Tenond {
		return st, nil
	}
	st.sampler.batch, st.sampler.meet = st.pods.jobPod(), st.pods.batch()
	if mode == report.Tenond {
		if st.governor, err = b.govern(ctx, st.pods); err != nil {
			return st, err
		}
	}
	return st, st.startHog(ctx)
}

// govern lets Tenon write the knobs of memory.
func (b *memoryBench) govern(ctx context.Context, p pods) (*governor, error) {
	if b.Agent != "" {
		return b.tenond(ctx, b.tenondConfig(p))
	}
	work := p.workloads()
	for i, rule := range memoryRules(p, b.sizes) {
		if rule.Request > 0 {
			work[i].MemoryRequest = node.Some(rule.Request)
		}
		if rule.Limit > 0 {
			work[i].MemoryLimit = node.Some(rule.Limit)
		}
	}
	return b.site.govern(ctx, work, policy.Config{Memory: memoryPolicy(b.sizes)}, false)
}

// hogPatience is how long the batch work may take to go through its file once:
// on a slow disk the rest of the file has to do.
const hogPatience = 15 * time.Second

func (st *memoryStage) startHog(ctx context.Context) error {
	r, out := io.Pipe()
	var err error
	st.hog, err = start(st.b.host, child{
		name: "the memory hog", argv: st.b.child("hog", st.b.hogFile(), st.b.sizes.HogHeld.String()),
		group: st.pods.jobGroup(), cpus: st.b.place.Tested, stdout: out,
	})
	if err != nil {
		out.Close()
		return err
	}
	go func() {
		_ = st.meter.follow(r, time.Now)
		_, _ = io.Copy(io.Discard, r) // what cannot be read must not stop it
	}()
	go func() {
		<-st.hog.Done()
		out.Close()
	}()
	for deadline := time.Now().Add(hogPatience); st.meter.last() < float64(st.b.sizes.HogFile) && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-st.hog.Done():
			return fmt.Errorf("%w (was --set %s too small for it?)", errors.Join(st.hog.Err(), st.hog.endedEarly()), mebibytes(st.b.Set))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (st *memoryStage) close(err error) error {
	err = errors.Join(err, st.governor.stop())
	if st.hog != nil {
		st.hog.Kill()
	}
	if st.nginx != nil {
		st.b.nginx.Stop(st.nginx)
	}
	return errors.Join(err, clear(st.b.Root, st.b.host, st.b.tree))
}

// order is the load of a run of block, the same in all its modes. A service
// that answers late, or not at all, is what may be seen here, and no fault of
// the measurement.
func (b *memoryBench) order(block int) load.Config {
	return load.Config{
		URL: b.nginx.URL(), Pages: b.sizes.Pages, Rate: b.Rate, Duration: b.Duration, Warmup: b.warmup(),
		Seed: b.Seed + uint64(block)<<32, Connections: memoryConnections,
		Limits: load.Limits{AchievedRatio: 0.01, ErrorRatio: 0.5},
	}
}

// run measures one mode once.
func (b *memoryBench) run(ctx context.Context, mode report.Mode, index, block int) (r report.Run, err error) {
	r = report.Run{Index: index, Block: block, Mode: mode, Started: time.Now(), PSICPU: -1, Memory: &report.MemoryUse{}}
	st, err := b.stage(ctx, mode)
	if err != nil {
		return r, fmt.Errorf("mode %s: %w", mode, err)
	}
	defer func() {
		if err = st.close(err); err != nil {
			err = fmt.Errorf("mode %s: %w", mode, err)
		}
		runtime.GC() // what this run has piled up is not the next one's
	}()
	m, err := watch(ctx, st.sampler, st.nginx, func(ctx context.Context) (measurement, error) {
		return b.loadOpen(ctx, b.order(block))
	})
	if err != nil {
		return r, err
	}
	if st.hog != nil {
		if st.hog.Ended() {
			r.Void = append(r.Void, errors.Join(st.hog.Err(), st.hog.endedEarly()).Error())
		}
		time.Sleep(hogReport) // one more line, so that the end is interpolated
		r.Memory.BEBytes = int64(st.meter.between(m.from, m.to))
	}
	var faults []string
	r.Writes, faults = st.governor.report()
	r.Void = append(r.Void, faults...)
	fill(&r, m, !st.sampler.noPSI, b.place.Tested.Len())
	fillMemory(&r, m)
	b.judge(&r, m)
	return r, nil
}
