// Package daemon implements tenond, the agent that manages a node as its
// configuration file says. It follows changes of that file and of the cgroups.
// It renews the lease, so that the watchdog does not act. When it stops, all
// knobs keep their values, so that the next daemon can take over.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tenon.sh/tenon/internal/agent/cluster"
	"tenon.sh/tenon/internal/agent/configfile"
	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/agent/scrape"
	"tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/runtimes/inventory"
)

// maxSteps is the maximum number of writes per tick, which keeps ticks short.
// It does not limit steps that narrow best-effort work.
const maxSteps = 200

// Options configure the daemon.
type Options struct {
	// Config is the path of the configuration file.
	Config string
	// StateDir holds the journal, the lease and the state of the policies. It
	// must be on tmpfs: every tick writes to it.
	StateDir string
	// MachineLock is the path of a lock that prevents a second daemon on this
	// machine, even one with another StateDir. If it is "", there is no lock.
	MachineLock string
	// Watchdog is the command that starts the watchdog. If it is nil, there is no
	// watchdog.
	Watchdog []string
	// Reload delivers a value when the daemon must read its configuration again.
	// The daemon also reads it when the file changes. Reload may be nil.
	Reload <-chan struct{}
	// Ready is called after the first tick.
	Ready func()
	// Leave is called at the end of Run, while this daemon still has the lock of
	// the machine. It restores the node if Tenon is removed for good. Run does not
	// call it if another daemon has the lock, because that one manages the node
	// now. Leave may be nil.
	Leave func() error
	// Version appears in tenon status and in the metrics.
	Version string
	// Kubernetes makes the node part of a cluster. Then the ConfigMap of the
	// cluster takes precedence over the file, which may be missing. If it is nil,
	// the node is in no cluster.
	Kubernetes *cluster.Kubernetes
	// Metrics is the address at which the daemon serves its metrics. If it is "",
	// there are no metrics.
	Metrics string
	// Observe makes the daemon decide on virtual knobs, and write nothing outside
	// StateDir and its history.
	Observe bool
	Log     *slog.Logger
}

// A daemon is a running tenond. Only the goroutine of the loop uses its fields,
// except for guard.
type daemon struct {
	Options
	host       *host.Host
	tree       *cgroup.Tree
	agent      *loop.Agent
	config     config.Config // the configuration file's content that is in force
	file       *configfile.File
	health     *health.Health
	refusals   health.Refusals
	watcher    *cgroup.Watcher
	guard      *guard        // nil: this daemon observes
	shadow     *shadow.World // nil: this daemon acts
	reporter   changeLogger
	show       *publisher
	before     policy.State  // state of the policies before the present tick
	read       time.Duration // uptime at the last snapshot in the state of the policies; 0: none yet
	signals    *signals
	requests   scrape.Readers
	mechanisms *mechanisms // nil: this daemon observes
	slices     *workers.Desk
	promises   *promises
	peaks      *peaks
	minutes    *minutes
	outlooks   *outlooks

	containers *inventory.Follower
	cluster    *cluster.Follower // nil: this node is not in a cluster
	conflicts  writeConflicts
	home       node.CgroupPath // the cgroup of this process
	changed    atomic.Bool     // cgroups appeared or disappeared
	rematch    bool            // the rules changed
	followed   []node.Workload // workloads that host has; nil: unknown, or Sweep failed
	ready      bool
}

// Run manages the node until ctx ends. When it returns, all knobs keep their
// values, unless Leave has restored them, and the next daemon takes over. Run
// fails at once if the configuration has faults, if there are no cgroups to
// manage, or if another daemon holds the lock of the machine or the lease.
func Run(ctx context.Context, o Options) (err error) {
	letHeapGrow()
	if err := ensureLimits(); err != nil {
		return err
	}
	d := &daemon{Options: o, rematch: true, health: health.New(o.Log)}
	machine := new(lease.Machine)
	if o.MachineLock != "" {
		if machine, err = lease.HoldMachine(o.MachineLock, o.StateDir); err != nil {
			return fmt.Errorf("only one tenond can run on a machine: %w", err)
		}
	}
	defer machine.Close()
	defer func() { err = errors.Join(err, d.leave(machine)) }()
	fs := proc.Default()
	if d.home, err = home(fs); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if d.file, d.config, err = configfile.Open(ctx, o.Config, o.Kubernetes != nil); err != nil {
		return err
	}
	if d.config.Observe && !d.Observe {
		return fmt.Errorf("%w: %s", errMustObserve, o.Config)
	}
	d.setConfig(d.config)
	if d.tree, err = cgroup.Detect(fs.Proc); err != nil {
		return err
	}
	if d.Observe {
		err = d.openObserved(ctx, fs)
	} else {
		err = d.openManaged(ctx, fs, machine)
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err != nil {
		return err
	}
	d.reporter, d.show = changeLogger{log: d.Log, mechanism: mechanismReport{seen: time.Now()}}, openShow(o, d.health)
	defer func() { err = errors.Join(err, d.show.close()) }()
	d.agent = &loop.Agent{Host: d, MaxSteps: maxSteps, Shadow: d.shadow, Spent: proc.OwnCPUTime}
	last := d.resume(fs)
	d.signals = openSignals(ctx, d.host, d.tree, fs, d.Log)
	if !d.Observe {
		d.followOverwritten(ctx)
	}
	d.requests.CgroupVersion, d.requests.Log = d.tree.Version(), d.Log
	defer d.requests.Close()
	if !d.Observe {
		if d.mechanisms, err = openMechanisms(o.StateDir, fs, d.signals.send); d.mechanisms == nil {
			return err
		} else if err != nil {
			d.Log.Warn("the isolation mechanism pinned by hand and the mechanism failures are lost", "error", err)
		}
	}
	if d.slices, err = workers.Open(o.StateDir, fs, d.Log, d.signals.send); err != nil {
		return err
	}
	d.promises, d.minutes = openPromises(o.StateDir, d.config.History.Directory, time.Now(), d.Log), openMinutes(d.Log)
	defer d.promises.save()
	d.outlooks = openOutlooks(d.Log)
	d.containers = inventory.Follow(d.Log, fs, func() {
		d.changed.Store(true)
		d.signals.send(tick.Event{At: time.Now(), Kind: tick.EventCgroups, Text: "containers have come or gone"})
	})
	var background, guarding sync.WaitGroup
	if o.Kubernetes != nil {
		d.joinCluster(ctx, fs, &background)
	}
	d.takeConfig()
	d.containers.First(ctx, last.Containers)
	background.Go(func() { d.listen(ctx) })
	background.Go(func() { d.containers.Run(ctx) })
	background.Go(func() { d.minutes.run(ctx) })
	background.Go(func() { d.outlooks.run(ctx) })
	if !d.Observe {
		background.Go(func() { d.host.Reclaims().Run(ctx) })
		background.Go(func() { keepAlive(ctx, d.guard.ticks, d.guard, d.host.Isolation(), d.Log) })
	}
	d.show.serve(ctx, o, d.operator(), &background)
	lost := context.Canceled // the reason why the guard ended
	if !d.Observe {
		guarding.Go(func() { lost = d.guard.keep(ctx, o.Watchdog); stop() })
	}
	_ = d.agent.Run(ctx, d.signals.wake, d.observe) // returns no error but that of ctx
	guarding.Wait()
	if errors.Is(lost, context.Canceled) {
		lost = nil
		// First announce the end in the lease, because the next steps may take longer
		// than the lease lasts.
		err = d.announce(fs)
	}
	err = errors.Join(lost, err, d.signals.close())
	background.Wait()
	return err
}

// openManaged opens the node and takes it over from the last tenond.
func (d *daemon) openManaged(ctx context.Context, fs proc.FS, machine *lease.Machine) (err error) {
	if d.host, err = host.Open(host.Options{Tree: d.tree, FS: fs, JournalDir: d.StateDir, Resident: true, Try: true, Spare: func() []int { return watchdogOf(d.StateDir) }}); err != nil {
		return err
	}
	// This stands before the lease: if tenond does not start, the last watchdog goes on.
	if err := restore.RefuseOtherForms(ctx, d.StateDir, d.host.RestorePlan, d.Log); err != nil {
		return err
	}
	if d.guard, err = openGuard(d.StateDir, fs, d.host, machine, d.health, d.Log); err != nil {
		return err
	}
	if d.watcher, err = d.tree.Watch(ctx); err != nil {
		return err
	}
	return d.takeOver()
}

// close closes what openManaged or openObserved has opened.
func (d *daemon) close() (err error) {
	if d.watcher != nil {
		d.watcher.Close()
	}
	if d.guard != nil {
		err = d.guard.close()
	}
	if d.host != nil {
		err = errors.Join(err, d.host.Close())
	}
	return err
}

// operator carries out the requests that come through the socket.
func (d *daemon) operator() control.Operator {
	if d.Observe {
		return onlooker{d.slices}
	}
	return workers.Operator{Pinner: d.mechanisms, Desk: d.slices}
}

// resume continues with the state of the last daemon. If that was killed, or ended long ago,
// only the peaks of other work are left, which took it a day to learn. They are all that one
// that observes goes on with: they rest on the use of the node and on no virtual knob.
func (d *daemon) resume(fs proc.FS) savedState {
	if d.Observe {
		d.peaks = openPeaks(observerDir(d.StateDir), fs, d.Log)
		var s policy.State
		s.Batch.Demand.Peaks = d.peaks.earlier()
		d.agent.Resume(s)
		return savedState{}
	}
	last, age, ok := loadState(d.StateDir, fs)
	if d.peaks = openPeaks(d.StateDir, fs, d.Log); ok {
		d.read = last.Read
		d.Log.Info("continuing with the state of the last tenond", "seconds_ago", age.Seconds())
	} else {
		last.State.Batch.Demand.Peaks = d.peaks.earlier()
	}
	d.agent.Resume(last.State)
	return last
}

// announce prepares for the time without a daemon. A daemon that observes prepares
// nothing: what its policies remember is about virtual knobs, and a daemon that acts must
// not continue with it.
func (d *daemon) announce(fs proc.FS) (err error) {
	if d.Observe {
		return nil
	}
	if d.cluster != nil {
		// The next tenond may start late, for example if its image cannot be pulled.
		// Until then, work that was frozen because memory was short must not stay
		// frozen.
		err = d.host.Thaw()
	}
	err = errors.Join(err, d.guard.announce(), saveState(d.StateDir, fs, d.read, d.agent.State(), d.containers.Remembers()))
	d.Log.Info("stopping: every knob stays as it is; best-effort work is narrowed unless tenond is back in time",
		"seconds", announcedFor.Seconds())
	return err
}

// leave calls Leave, unless another daemon has the lock of the machine.
func (o Options) leave(machine *lease.Machine) error {
	if o.Leave == nil {
		return nil
	}
	if err := machine.Keep(); errors.Is(err, lease.ErrHeld) {
		o.Log.Warn("restoring no knob, whether or not Tenon is removed: another tenond manages this machine", "error", err)
		return nil
	}
	return o.Leave()
}

// followMechanisms tells those who asked for a mechanism that a tick has ended, and saves
// the failures of mechanisms.
func (d *daemon) followMechanisms(t tick.Tick) {
	read := !t.Snapshot.At.IsZero()
	d.mechanisms.end(read)
	if !read {
		return
	}
	if err := d.mechanisms.keep(t.Selection.Failures); err != nil {
		d.Log.Warn("a mechanism failure is not saved for the next tenond", "error", err)
	}
}

// joinCluster begins to follow the cluster, and waits a moment for the pods and the
// configuration.
func (d *daemon) joinCluster(ctx context.Context, fs proc.FS, background *sync.WaitGroup) {
	k := *d.Kubernetes
	if d.Observe {
		k.NRI = "" // what NRI gives to a container is a write
	}
	d.cluster = cluster.Follow(k, cluster.Node{
		Version: d.Version, StateDir: d.StateDir, Tree: d.tree, Changed: func() { d.changed.Store(true) }, News: d.signals.nudge,
		Signal: d.host.Apply, Prepare: d.host.Prepare,
	}, fs, d.Log)
	d.cluster.Run(ctx, background)
	d.cluster.AwaitFirst(ctx)
	d.cluster.FollowConfig()
}

// home returns the cgroup of this process in the hierarchy of the cpu controller.
func home(fs proc.FS) (node.CgroupPath, error) {
	path, err := proc.FindCPUPath(fs.SelfCgroup())
	if err != nil {
		return "", fmt.Errorf("find the cgroup of tenond: %w", err)
	}
	return node.CgroupPath(strings.Trim(path, "/")), nil
}

// settleTime is the time for which the loop waits for more changes of cgroups
// after the first change. On a busy node, many cgroups change at once.
const settleTime = 100 * time.Millisecond

// Snapshot applies all changes of configuration and cgroups since the last
// snapshot, and then reads the node. It is a method of loop.Host.
func (d *daemon) Snapshot(ctx context.Context) (node.Snapshot, error) {
	d.guard.begin()
	if !d.Observe {
		d.repairJournal()
	}
	d.before = d.agent.State()
	if d.cluster != nil {
		d.cluster.Begin()
	}
	d.followConfig()
	d.agent.Config.Seats.Slices = d.slices.Begin(d.config.Policy.Seats.Slices)
	d.guard.begin() // starts the time limit again, because a new configuration may have loaded a BPF program
	d.followGroups()
	if d.cluster != nil && d.cluster.IsUnknown() {
		return node.Snapshot{}, cluster.ErrUnknown
	}
	read, _ := uptime() //nolint:errcheck // it cannot fail: the kernel has this clock
	s, err := d.host.Snapshot(ctx)
	if d.mechanisms != nil {
		asked, earlier := d.mechanisms.begin(s.At)
		s.Isolation.Request, s.Isolation.Failures = asked, append(earlier, s.Isolation.Failures...)
	}
	if d.cluster != nil {
		s.Arriving = d.cluster.Arriving()
		d.requests.Answer(d.cluster.Queried(), time.Now())
	}
	if err == nil {
		d.read = read
		d.requests.Fill(&s)
		d.conflicts.see(&s)
		d.health.Set(health.Contested, "knobs", d.conflicts.trouble(s))
		d.health.Set(health.Unread, "kernel files", host.Unread(d.host))
	}
	d.rematch = d.signals.check(time.Now()) || d.rematch
	if err == nil {
		err = d.guard.writeBounds(suppress.SafeBounds(d.agent.Config.Suppress, d.agent.Config.NodeCPUs, s))
	}
	return s, err
}

// takeOver makes the changes of the last tenond its own. followGroups logs which
// cgroups cannot be read.
func (d *daemon) takeOver() error {
	recovered, err := d.host.Adopt()
	if err != nil && !partial.Is(err) {
		return fmt.Errorf("take over from the last tenond: %w", err)
	}
	if recovered > 0 {
		d.Log.Warn("the journal of the last tenond lost entries: read them from the notes at the cgroups", "entries", recovered)
	}
	return nil
}

// repairJournal writes the journal again if another program has removed or
// damaged it. Without it, tenon restore could not restore every knob.
func (d *daemon) repairJournal() {
	damage, lost, err := d.host.RepairJournal()
	text := ""
	if err != nil {
		text = fmt.Sprintf("the journal is damaged, so tenon restore could not put back what Tenon changed: %v", err)
	} else if damage != "" {
		d.Log.Warn("wrote the journal again: another program damaged it", "directory", d.StateDir, "damage", damage)
	}
	d.health.Set(health.State, "journal", text)
	if text = lost; lost != "" {
		text = fmt.Sprintf("the journal lost entries before this tenond started (%s): stop tenond and run tenon restore, which says what is not put back", lost)
	}
	d.health.Set(health.Lost, "journal", text)
	text = ""
	if err := statedir.Check(d.StateDir); err != nil {
		text = err.Error()
	}
	d.health.Set(health.Exposed, "state directory", text)
}

// observe reports the results of a tick, and tells the guard that the loop is alive.
func (d *daemon) observe(t tick.Tick, err error) {
	t.Isolation, t.Refused = d.host.Isolation().Status(), d.refusals.Observe(t, passes)
	d.health.Set(health.Refused, "knobs", health.TextOf(t.Refused))
	t.Promises = d.promises.tick(t)
	d.peaks.tick(d.agent.State().Batch.Demand.Peaks)
	d.minutes.tick(t, d.config.History)
	t.Outlook = d.outlooks.tick(t, d.config.History)
	d.host.Delays().WatchSiblings(t.Selection.Mechanism.Row().FollowsLS)
	d.reporter.tick(t, err)
	d.guard.end(!t.Snapshot.At.IsZero(), d.agent.Pause())
	d.show.tick(t, err, d.agent.Config, d.before, d.agent.Pause())
	if handsOver(t) {
		d.signals.nudge(tick.Event{At: time.Now(), Kind: tick.EventHandover, Text: "a means of isolation was given up for another"})
	}
	if d.mechanisms != nil {
		d.followMechanisms(t)
	}
	d.slices.End(t)
	if d.cluster != nil {
		d.cluster.End(t, d.agent.Config, d.health.Texts(health.State, health.Lost, health.Bounds, health.Exposed))
	}
	if !d.ready && !t.Snapshot.At.IsZero() {
		d.ready = true
		d.Log.Info(loop.LogReady, "workloads", len(t.Snapshot.Workloads), "config", d.Config)
		if d.Ready != nil {
			d.Ready()
		}
	}
}
