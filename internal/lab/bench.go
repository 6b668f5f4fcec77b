package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/host"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/task"
	"tenon.sh/tenon/internal/unit"
)

// A bench is an experiment set up: programs found, CPUs divided, film ready.
// Close leaves the machine as it was.
type bench struct {
	Config
	status *status

	host     *host.Host
	tree     *cgroup.Tree
	fs       proc.FS
	topology node.Topology
	place    Placement
	nginx    NGINX
	versions map[string]string

	ffmpegPath, wrkPath string
	ffmpegVersion       Version
	input               string
	processes, threads  int

	rate  float64 // offered, requests per second
	pacer pacer

	undo []func() error // in reverse order
}

// set makes a bench. Every fault that can be seen beforehand is an error
// here, before anything runs.
func set(ctx context.Context, c Config) (_ *bench, err error) {
	b := &bench{Config: c, status: &status{w: c.Notices, terminal: c.Terminal}, fs: proc.Default(), versions: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if os.Geteuid() != 0 {
		return nil, errors.New("the experiment makes cgroups, which needs root: run it with sudo")
	}
	if len(b.Self) == 0 {
		if b.Self, err = self(); err != nil {
			return nil, err
		}
	}
	if err := b.find(ctx); err != nil {
		return nil, err
	}
	if b.tree, err = cgroup.Detect(b.fs.Proc); err != nil {
		return nil, err
	}
	if b.host, err = host.Open(host.Options{Tree: b.tree, JournalDir: c.JournalDir, Disposable: true}); err != nil {
		return nil, err
	}
	if err := b.takeOver(ctx); err != nil {
		return nil, err
	}
	s, err := b.host.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	b.topology = s.Topology
	if err := b.divide(); err != nil {
		return nil, err
	}
	if err := b.prepareNGINX(); err != nil {
		return nil, err
	}
	if b.input = c.Input; b.input == "" {
		rendering := func() { b.status.Now("rendering the clip, once for this machine") }
		if b.input, err = Clip(ctx, b.ffmpegPath, c.CacheDir, rendering); err != nil {
			return nil, err
		}
	}
	return b, b.stepAside()
}

// find looks for the programs and asks for their versions.
func (b *bench) find(ctx context.Context) error {
	var err error
	if b.nginx.Path, err = nginxProgram.find(); err != nil {
		return err
	}
	if b.ffmpegPath, err = ffmpegProgram.find(); err != nil {
		return err
	}
	if b.Client == ClientWrk {
		if b.wrkPath, err = wrkProgram.find(); err != nil {
			return err
		}
	}
	if b.nginx.Version, b.versions["nginx"], err = nginxProgram.ask(ctx, b.nginx.Path); err != nil {
		return err
	}
	if b.ffmpegVersion, b.versions["ffmpeg"], err = ffmpegProgram.ask(ctx, b.ffmpegPath); err != nil {
		return err
	}
	for _, m := range b.Modes {
		if traitsOf(m).paced && !b.ffmpegVersion.AtLeast(5, 0) {
			return fmt.Errorf("mode %s needs ffmpeg 5.0 or newer for -readrate, this is %s: leave the mode out with --modes", m, b.versions["ffmpeg"])
		}
	}
	return checkEncoder(ctx, b.ffmpegPath)
}

// takeOver removes what a lab that was killed left behind, and makes sure
// that no other lab is at work.
func (b *bench) takeOver(ctx context.Context) error {
	if _, err := b.host.RestoreDeadLabs(ctx); err != nil {
		return fmt.Errorf("clear up after an earlier experiment: %w", err)
	}
	if b.tree.Exists(string(b.Root)) {
		return fmt.Errorf("cgroup %s exists: another experiment is at work here; if not, run tenon restore", b.Root)
	}
	b.undo = append(b.undo, func() error {
		err := clear(b.Root, b.host, b.tree)
		_, restoreErr := b.host.RestoreOwn(context.Background())
		return errors.Join(err, restoreErr)
	})
	return nil
}

func (b *bench) divide() error {
	allowed, err := task.Affinity(0)
	if err != nil {
		return err
	}
	if b.place, err = Place(b.topology, allowed, b.CPUs, b.ClientCPUs); err != nil {
		return err
	}
	b.processes, b.threads = Batch(b.place.Tested.Len())
	if b.BEProcesses > 0 {
		b.processes = b.BEProcesses
	}
	if b.BEThreads > 0 {
		b.threads = b.BEThreads
	}
	return nil
}

func (b *bench) prepareNGINX() error {
	sweep()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return fmt.Errorf("make a directory for nginx: %w", err)
	}
	b.undo = append(b.undo, func() error { return os.RemoveAll(dir) })
	port := b.Port
	if port == 0 {
		if port, err = freePort(); err != nil {
			return err
		}
	}
	b.nginx.Dir = dir
	b.nginx.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	b.nginx.Workers = b.place.Tested.Len()
	b.nginx.Connections = b.connections()
	if err := portFree(b.nginx.Address); err != nil {
		return err
	}
	return b.nginx.Prepare()
}

// prefix begins the name of nginx's directory; the lab's process id follows.
const prefix = "tenon-lab-"

// sweep removes the directories of labs that were killed.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*-*"))
	for _, dir := range dirs {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		pid, err := strconv.Atoi(id)
		if err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			os.RemoveAll(dir)
		}
	}
}

// stepAside moves the lab's own threads to the client's CPUs. Threads that
// are made later follow their makers.
func (b *bench) stepAside() error {
	before, err := task.Affinity(0)
	if err != nil {
		return err
	}
	b.undo = append(b.undo, func() error { return b.moveSelf(before) })
	return b.moveSelf(b.place.Client)
}

func (b *bench) moveSelf(cpus unit.CPUSet) error {
	threads, err := b.fs.Threads(os.Getpid())
	if err != nil {
		return err
	}
	for _, tid := range threads {
		if err := task.SetAffinity(tid, cpus); err != nil {
			return fmt.Errorf("move the lab to CPUs %v: %w", cpus, err)
		}
	}
	return nil
}

// Close undoes set. It can be called again.
func (b *bench) Close() error {
	b.status.Clear()
	var errs []error
	for len(b.undo) > 0 {
		last := len(b.undo) - 1
		errs = append(errs, b.undo[last]())
		b.undo = b.undo[:last]
	}
	return errors.Join(errs...)
}

// experiment is the record of the bench.
func (b *bench) experiment(solo solo, calibration []string, caveats []string) report.Experiment {
	version := b.Version
	return report.Experiment{
		Schema: 1, Started: time.Now(), Command: b.Command, Version: version,
		Modes: b.Modes, Blocks: b.Blocks, Duration: b.Duration, Seed: b.Seed, Margin: b.Margin,
		TestedCPUs: b.place.Tested, ClientCPUs: b.place.Client, Client: b.Client,
		OfferedRate: b.rate, LoadPercent: b.LoadPercent,
		BEProcesses: b.processes, BEThreads: b.threads, Input: filepath.Base(b.input),
		SoloFramesPerSecond: solo.frames, SoloCPU: solo.cpus,
		Machine:     describe(b.fs, b.topology, b.host.Capabilities(), b.tree.Version()),
		Calibration: calibration, Caveats: append(caveats, b.caveats()...), Versions: b.versions,
	}
}

// caveats are what a reader must know about the set-up.
func (b *bench) caveats() []string {
	list := []string{"the client runs on the same machine, on CPUs of its own, over the loopback device: no network card, no network"}
	if b.place.SharesCore(b.topology) {
		list = append(list, "client and tested CPUs share a core: the client's work slows the service down, alike in all modes")
	}
	if b.Client == ClientWrk {
		list = append(list, "wrk is a closed-loop client: a stall hides the requests that it delays, so its percentiles are too low")
	}
	return list
}
