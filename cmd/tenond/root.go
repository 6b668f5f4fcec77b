package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/cluster"
	"tenon.sh/tenon/internal/agent/configfile"
	"tenon.sh/tenon/internal/agent/daemon"
	"tenon.sh/tenon/internal/agent/install"
	"tenon.sh/tenon/internal/agent/telemetry"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/machine/journal"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// defaultConfig is the configuration file of an installed tenond.
const defaultConfig = "/etc/tenon/tenon.yaml"

// global holds the values of the flags that several commands share.
type global struct {
	config     string
	stateDir   string
	lock       string
	noWatchdog bool
	metrics    string
	observe    bool
	log        cmdline.Log
	cluster    clusterFlags
}

func newRootCommand() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "tenond",
		Short: "Keep best-effort work inside the CPU and memory that services leave idle",
		Long: `tenond keeps best-effort work (BE) inside what the latency-sensitive services
(LS) of this machine leave idle, as its configuration file says. It runs in the
foreground and logs to standard error.

SIGHUP, or a change of the file, reads the configuration again; a bad one is
refused and the old one stays. SIGTERM stops tenond and leaves every knob as it
is: if no tenond is back within a minute, the watchdog narrows BE. tenon restore
and tenond uninstall put every knob back.

With --observe, or observe: true in the file, tenond decides as always and writes
nothing to the node: tenon status and the metrics say what it would have done.`,
		Example: `  tenond config default > /etc/tenon/tenon.yaml   # a documented file to edit
  tenond config check /etc/tenon/tenon.yaml       # all its faults at once
  sudo tenond --config /etc/tenon/tenon.yaml
  sudo tenond install                             # as a systemd service
  tenond --kubernetes --node-name node-1          # as a pod of a DaemonSet`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.cluster.check(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), g, cmd.ErrOrStderr())
		},
	}
	root.Flags().BoolVar(&g.noWatchdog, "no-watchdog", false, "start no watchdog: another supervisor does")
	root.Flags().StringVar(&g.lock, "machine-lock", filepath.Join(journal.DefaultDir, "machine.lock"), "the file that keeps a second tenond off this machine; empty: none")
	root.Flags().BoolVar(&g.observe, "observe", false, "decide as always and write nothing to the node, as with observe: true in the configuration")
	root.Flags().StringVar(&g.config, "config", defaultConfig, "the configuration file")
	root.Flags().StringVar(&g.metrics, "metrics", telemetry.DefaultAddress, "the address of /metrics, /healthz and /readyz; empty: none")
	g.cluster.add(root)
	watchdog, uninstall := newWatchdogCommand(g), newUninstallCommand(g)
	for _, cmd := range []*cobra.Command{root, watchdog, uninstall} {
		cmd.Flags().StringVar(&g.stateDir, "state-dir", journal.DefaultDir, "the directory of the journal and the lease; on tmpfs")
		cmdline.Dirs(cmd.Flags(), "state-dir")
	}
	cmdline.Files(root.Flags(), "machine-lock", "config")
	g.log.Add(root, watchdog)
	cmdline.GroupFlags(root.Flags(),
		cmdline.FlagGroup{Title: "Machine"},
		cmdline.FlagGroup{Title: "Cluster", Flags: clusterFlagNames},
		cmdline.FlagGroup{Title: "Log", Flags: []string{"log-format", "log-level"}})
	root.AddCommand(newConfigCommand(), watchdog, newInstallCommand(), uninstall)
	cmdline.Prepare(root, versionName())
	return root
}

// run runs the daemon.
func run(ctx context.Context, g *global, stderr io.Writer) error {
	log := g.log.Logger(stderr)
	k, err := g.cluster.connect(log)
	if err != nil {
		return err
	}
	stays := g.cluster.stayOf(k, log)
	leaves := sync.OnceValue(stays.ends)
	var released atomic.Bool
	if k != nil {
		k.Leaves, k.Released = leaves, func() { released.Store(true) }
	}
	if os.Geteuid() != 0 {
		return errors.New("tenond writes kernel knobs and needs root: start it with sudo, or as a service (tenond install)")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	observe := g.observe || g.wantsToObserve(ctx)
	if observe {
		err = asUnconfinable(confine(), g.cluster.on)
	} else if err = enterCgroups(1); err != nil {
		log.Warn("tenond cannot find its own cgroup and those of the containers that a runtime lists", "error", err)
		err = nil
	}
	if err != nil {
		return err
	}
	go stays.begin(ctx)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program to start the watchdog with: %w", err)
	}
	watchdog := []string{self, "watchdog", "--state-dir", g.stateDir}
	if g.noWatchdog {
		watchdog = nil
	}
	err = daemon.Run(ctx, daemon.Options{
		Config: g.config, StateDir: g.stateDir, MachineLock: g.lock, Version: versionName(), Metrics: g.metrics, Observe: observe, Log: log, Reload: hangups(ctx),
		Watchdog: watchdog, Kubernetes: k,
		// An error means that the socket is broken. Without a socket, SdNotify
		// sends nothing and returns no error.
		Ready: func() { _, _ = systemd.SdNotify(false, systemd.SdNotifyReady) },
		Leave: func() error {
			// Restore also after an earlier error, because there is no second attempt.
			if ctx.Err() == nil || !leaves() {
				return nil
			}
			if observe { // there is nothing to restore
				reportLeave(k, reportsWithin, log)
				return nil
			}
			return restore(k, g.stateDir, released.Load(), stderr, log)
		},
	})
	var invalid *config.Invalid
	if errors.As(err, &invalid) {
		return faultsError{err}
	}
	return err
}

// wantsToObserve reports whether the configuration file asks tenond to observe. daemon.Run
// reads the file again and reports its errors. It also refuses to act if the file asks to
// observe then.
func (g *global) wantsToObserve(ctx context.Context) bool {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_, c, err := configfile.Open(ctx, g.config, g.cluster.on)
	return err == nil && c.Observe
}

// restore restores the node for good, and reports this to the cluster. released
// means that the containers have the kubelet's values already.
func restore(k *cluster.Kubernetes, stateDir string, released bool, out io.Writer, log *slog.Logger) (err error) {
	// First restore the values of the kubelet in containers, because no journal
	// contains them. The container runtime may be slow. If this process is killed
	// meanwhile, tenon restore can still restore the changes in the journal.
	if !released {
		err = runWithin(releasesWithin, func(ctx context.Context) error { return k.ReleaseContainers(ctx, stateDir, log) })
	}
	err = errors.Join(err, runWithin(putsBackWithin, func(ctx context.Context) error {
		_, err := install.PutBack(ctx, out, stateDir)
		return err
	}))
	reportLeave(k, reportsWithin, log)
	return err
}

// runWithin calls do with a time limit. It is for the work that remains when
// tenond stops.
func runWithin(limit time.Duration, do func(context.Context) error) error {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	return do(ctx)
}

// hangups returns a channel that gets a value for each SIGHUP. The signal
// requests a reload of the configuration.
func hangups(ctx context.Context) <-chan struct{} {
	signals, reload := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			select {
			case <-ctx.Done():
				return
			case reload <- struct{}{}:
			}
		}
	}()
	return reload
}

// versionName returns the version of the build.
func versionName() string { return cmdline.Version(version) }
