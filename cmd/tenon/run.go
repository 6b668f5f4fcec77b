package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/launch"
	"tenon.sh/tenon/internal/model/node"
)

// commandFlags are the flags of tenon run and tenon plan that describe a
// command.
type commandFlags struct {
	class  classFlag
	cpus   cpuFlag
	memory memoryFlag
	name   string
}

func (f *commandFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.class, "qos", "class: "+strings.Join(classNames(), ", "))
	flags.Var(&f.cpus, "cpus", "at most this many CPUs, such as 2, 1.5 or 500m")
	flags.Var(&f.memory, "memory", "at most this much memory, such as 512Mi")
	flags.StringVar(&f.name, "name", "", "name of the command's cgroup (default: from the command and a process id)")
	cmdline.Complete(cmd, "qos", classNames()...)
}

func (f *commandFlags) command(args []string) launch.Command {
	return launch.Command{Args: args, Class: f.class.Class, Name: f.name, CPULimit: f.cpus.Maybe, MemoryLimit: f.memory.Maybe}
}

func newRunCommand(g *global) *cobra.Command {
	var f commandFlags
	var quiet bool
	cmd := &cobra.Command{
		Use:   "run --qos CLASS [flags] -- CMD [ARG...]",
		Short: "Run a command in its QoS class",
		Long: `Run a command in its QoS class, in a cgroup of its own.

BE (best-effort) gets the CPU only where no other work wants it. LS
(latency-sensitive) and SYSTEM are what BE yields to. A service that needs CPUs of
its own (LSR, LSE) gets them by a rule of tenond or as a pod, not here.

Signals and the exit status pass through (128 + number after a signal, 127 for
no such command, 126 for one that cannot be executed). What a terminal sends to
its foreground job (Ctrl-C) reaches the command once, from the terminal.
A last line on stderr says what the command got.

The cgroup (tenon-be/NAME or tenon-ls/NAME) is removed when the command and all
that it started have ended. If something it started outlives it, tenon run waits
and says so; a signal then moves the rest back to where tenon run was started,
outside the class. Nothing is ever killed. If tenon run itself is killed (-9),
the command goes on in its class, and tenon restore cleans up.

Without the rights to make cgroups, BE falls back to what threads can do for
themselves (SCHED_IDLE, nice 19, idle I/O), the other classes run as they are,
and one line says what is missing.`,
		Example: `  sudo tenon run --qos BE -- ffmpeg -i in.mp4 out.mkv
  sudo tenon run --qos BE --cpus 1.5 --memory 2Gi --name nightly -- make -j8
  sudo tenon run --qos LS -- nginx -g 'daemon off;'
  tenon run --qos BE --quiet -- make test   # without root: what a user can do`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.class.Class == "" {
				return cmdline.Usagef("no class: add --qos BE for batch work, --qos LS for a service")
			}
			c := f.command(args)
			if err := c.Check(); err != nil {
				return cmdline.Usage(err)
			}
			// If stderr is a pipe that has lost its reader, as after 2>&1 | head, a
			// write to it is only an error, and the cgroup is removed as always.
			broken := make(chan os.Signal, 1)
			if !signal.Ignored(syscall.SIGPIPE) {
				signal.Notify(broken, syscall.SIGPIPE)
				defer signal.Stop(broken)
			}
			note := func(line string) { fmt.Fprintln(os.Stderr, "tenon: "+line) }
			result, err := runCommand(cmd, g, c, note)
			if err != nil && result.Name == "" {
				return err
			}
			if err != nil {
				// The command has run, and tenon must exit with its status. Therefore this
				// error is only printed, and so is the last line.
				note(strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			if !quiet {
				_ = g.output.Print(os.Stderr, result, "tenon: "+result.String()+"\n")
			}
			if result.Status != 0 {
				return exitStatus(result.Status)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&quiet, "quiet", false, "do not print the last line")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// runCommand runs c in a cgroup. If this user may not create cgroups, c runs without one.
func runCommand(cmd *cobra.Command, g *global, c launch.Command, note func(string)) (launch.Result, error) {
	fs := proc.Default()
	l := &launch.Launcher{FS: fs, StateDir: g.stateDir, Program: os.Args[:1], Note: note}
	err := openLauncher(l, g, c)
	if err == nil {
		defer l.Host.Close()
		var result launch.Result
		if result, err = l.Run(cmd.Context(), c); err == nil || result.Name != "" {
			return result, err
		}
	}
	if !launch.Forbidden(err) {
		return launch.Result{}, err
	}
	note(launch.ExplainLess(c, err))
	l.Yield = true
	return l.Run(cmd.Context(), c)
}

// openLauncher prepares the node for the command c that l starts.
func openLauncher(l *launch.Launcher, g *global, c launch.Command) error {
	tree, err := cgroup.Detect(l.FS.Proc)
	if err != nil {
		return err
	}
	l.Tree = tree
	if l.Root, err = launchRoot(tree, l.FS); err != nil {
		return err
	}
	if l.Host, err = host.Open(host.Options{Tree: tree, FS: l.FS, JournalDir: g.stateDir, Only: c.Workload(l.Root).Cgroup}); err != nil {
		return err
	}
	// Only tenond uses mechanisms that affect the whole node. A command of tenon
	// run gets only cpu.idle.
	a := &loop.Agent{Host: l.Host, Config: policy.Config{CPUQOS: isolation.Config{Enable: true, Mechanism: node.MechanismIdle}}}
	l.Tick = g.tick(a)
	return nil
}

// launchRoot returns the cgroup below which this user may launch commands. For
// root, it is the root of the hierarchy. For others, it is a cgroup that was
// delegated to the user.
func launchRoot(tree *cgroup.Tree, fs proc.FS) (node.CgroupPath, error) {
	if os.Geteuid() == 0 {
		return "", launch.RootRights(tree)
	}
	return launch.Delegated(tree, fs)
}
