package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/unit"
)

// exitInterrupted is the status after Ctrl-C, as of shells: 128 + SIGINT.
const exitInterrupted = 130

func newLabCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run experiments that show what colocation costs and wins on this machine",
		Example: `  sudo tenon lab colocation
  sudo tenon lab memory
  sudo tenon lab reaction
  tenon lab load http://nginx.example:8000/ --rate 20000 --duration 60s
  tenon lab report tenon-lab-20260102-150405`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown experiment %q: see tenon lab --help", args[0])}
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newColocationCommand(g), newMemoryCommand(g), newReactionCommand(g), newLoadCommand(g), newReportCommand(g), newChildCommand())
	return cmd
}

func newColocationCommand(g *global) *cobra.Command {
	var c lab.Config
	var modes string
	var load percentFlag
	var outside bool
	cmd := &cobra.Command{
		Use:   "colocation [flags]",
		Short: "nginx, ffmpeg and a load generator, really run, with and without Tenon",
		Long: `Run nginx (latency-sensitive) and ffmpeg (best-effort) on the same CPUs in
several modes, under the same load, and show what that did to nginx's latency.

  exclusive       nginx alone: the baseline; exclusive-aa is the same once more,
                  to show what this machine can tell apart at all
  exclusive-warm  nginx and an idle-class spinner that keeps the CPUs awake: in
                  a virtual machine that alone can make a service faster
  default         nginx and ffmpeg as Kubernetes runs them (Burstable, BestEffort)
  default-65      the same, ffmpeg paced to the CPU use of tenon-65
  burstable       ffmpeg with CPU requests, as batch usually runs
  tenon           Tenon's isolation; tenon-65 adds CPU suppress at 65 %
  solo            ffmpeg alone: the yardstick of what the idle CPU can give

Every mode runs once in each block, in random order, with nginx restarted. Runs
that something else disturbed are void and repeated. The results are a table
here, and raw data, result.json and report.html in the directory of --out.
It needs root (for cgroups), nginx and ffmpeg, and two CPUs.`,
		Example: `  sudo tenon lab colocation
  sudo tenon lab colocation --modes exclusive,default,tenon --blocks 2 --duration 3s
  sudo tenon lab colocation --until-resolved --max-time 90m --seed 7
  sudo tenon lab colocation --agent --modes exclusive,default-65,tenon-65
  sudo tenon lab colocation --client wrk --input film.mp4 --out results`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = lab.ParseModes(modes); err != nil {
				return usageError{fmt.Errorf("--modes: %w", err)}
			}
			if err := prepare(g, &c.Setting, outside); err != nil {
				return err
			}
			c.LoadPercent = float64(load)
			return experiment(cmd, g, func(ctx context.Context) (lab.Outcome, error) { return lab.Colocate(ctx, c) })
		},
	}
	load = 30
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas; all, or seed for exclusive,default,tenon")
	flags.IntVar(&c.Blocks, "blocks", 0, "how often every mode runs (default 5; with --until-resolved no bound)")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "length of the measured part of a run")
	flags.BoolVar(&c.UntilResolved, "until-resolved", false, "run until more blocks would not change a verdict")
	flags.DurationVar(&c.MaxTime, "max-time", 0, "start no block that would end later than this")
	flags.Float64Var(&c.Margin, "margin", 1.03, "the P99 ratio to the baseline that must not be reached")
	flags.Var(&load, "load", "CPU use of nginx alone, in percent of the tested CPUs; sets the offered rate")
	flags.Float64Var(&c.StealPercent, "max-steal", 1, "steal time, in percent of the tested CPUs, above which a run is void")
	flags.StringVar(&c.Client, "client", lab.ClientTenon, "load generator: tenon (open loop) or wrk (closed loop)")
	flags.IntVar(&c.Connections, "connections", 0, "connections of the client (default 256; wrk: 54 scaled to the machine)")
	flags.IntVar(&c.BEProcesses, "be-processes", 0, "ffmpeg processes (default: 30 on 104 CPUs, scaled, at least enough to fill the CPUs)")
	flags.IntVar(&c.BEThreads, "be-threads", 0, "threads of each ffmpeg (default 2)")
	flags.StringVar(&c.Input, "input", "", "film to transcode (default: a clip that is rendered once and kept)")
	flags.IntVar(&c.Port, "port", 0, "port of nginx on 127.0.0.1 (default: a free one)")
	settingFlags(cmd, &c.Setting, &outside)
	complete(cmd, "modes", "all", "seed", "exclusive,default,tenon", "exclusive,default-65,tenon-65")
	complete(cmd, "client", lab.ClientTenon, lab.ClientWrk)
	for _, name := range []string{"blocks", "duration", "max-time", "margin", "load", "max-steal", "connections", "be-processes", "be-threads", "port"} {
		complete(cmd, name)
	}
	return cmd
}

// experiment runs one until it ends or the user ends it, and prints what there
// is in either case.
func experiment(cmd *cobra.Command, g *global, run func(context.Context) (lab.Outcome, error)) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	o, err := run(ctx)
	if o.Runs > 0 {
		err = errors.Join(err, printResult(cmd, g, o.Result))
		fmt.Fprintf(os.Stderr, "report: %s\n", o.Report())
	}
	return interruption(ctx, err)
}

func printResult(cmd *cobra.Command, g *global, r report.Result) error {
	if g.output == jsonText {
		return g.output.print(cmd.OutOrStdout(), r, "")
	}
	return report.WriteTable(cmd.OutOrStdout(), r)
}

func newReportCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "report DIR",
		Short:   "Make table, result.json and report.html again from the raw data of an experiment",
		Example: "  tenon lab report tenon-lab-20260102-150405",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("lab report wants one directory, got %d: see tenon lab report --help", len(args))}
			}
			if err := rebuild(cmd, g, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "report: %s\n", lab.Outcome{Dir: args[0]}.Report())
			return nil
		},
	}
}

func newLoadCommand(g *global) *cobra.Command {
	c := load.Config{Arrival: load.Poisson}
	cmd := &cobra.Command{
		Use:   "load URL --rate N [flags]",
		Short: "Measure the latency of an HTTP service under an open load",
		Long: `Send GET requests at a rate that does not depend on the answers, and measure the
latency of each from the moment it was due. Run it on a second machine to test
this one without sharing CPUs. A run that the client itself spoiled (it sent too
late, it was too busy, requests failed) is void: the reasons are printed and the
exit status is 1.`,
		Example: `  tenon lab load http://nginx.example:8000/ --rate 20000
  tenon lab load http://127.0.0.1:8000/ --rate 5000 --duration 60s --cpus 6-7 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("lab load wants one URL, got %d: see tenon lab load --help", len(args))}
			}
			if c.Rate <= 0 {
				return usageError{errors.New("no rate: add --rate with the requests per second to send")}
			}
			c.URL = args[0]
			return runLoad(cmd, g, c)
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&c.Rate, "rate", 0, "requests per second")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "length of the measured part")
	flags.DurationVar(&c.Warmup, "warmup", time.Second, "what goes before it")
	flags.IntVar(&c.Connections, "connections", 256, "keep-alive connections")
	flags.StringVar((*string)(&c.Arrival), "arrivals", string(load.Poisson), "law of the times between requests: poisson or constant")
	flags.Var((*cpusFlag)(&c.CPUs), "cpus", "CPUs to send from, one thread on each (default: all)")
	flags.Uint64Var(&c.Seed, "seed", 1, "seed of the arrivals")
	complete(cmd, "arrivals", string(load.Poisson), string(load.Constant))
	for _, name := range []string{"rate", "duration", "warmup", "connections", "cpus", "seed"} {
		complete(cmd, name)
	}
	return cmd
}

func runLoad(cmd *cobra.Command, g *global, c load.Config) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	// A collection would stop the sending threads; the process is short-lived.
	debug.SetGCPercent(-1)
	r, err := load.Run(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return exitStatus(exitInterrupted)
		}
		return err
	}
	if g.output == jsonText {
		err = g.output.print(cmd.OutOrStdout(), r, "")
	} else {
		err = r.WriteText(cmd.OutOrStdout())
	}
	if err == nil && len(r.Void) > 0 {
		return exitStatus(exitFailure)
	}
	return err
}

// newChildCommand is the lab's own side of lab.Config.Self.
func newChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "child ROLE [ARG...]",
		Short:  "For the lab's own use",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return lab.Child(ctx, args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// untilSignal ends the context when the user, the terminal or the system wants
// the program to end. A second signal ends the program at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// labSelf is how the lab starts its own child processes.
func labSelf() ([]string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		path, err = os.Executable()
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{path, "lab", "child"}, nil
}

// tenondBeside finds tenond: beside this program, or on the PATH.
func tenondBeside(self string) (string, error) {
	path := filepath.Join(filepath.Dir(self), "tenond")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("tenond")
	if err != nil {
		return "", fmt.Errorf("--agent: no tenond beside %s or on the PATH: build it with make build", self)
	}
	return path, nil
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// cpusFlag is a set of CPUs, percentFlag a share such as 30 or 30%.
type (
	cpusFlag    unit.CPUSet
	percentFlag float64
)

func (f *cpusFlag) Set(s string) error {
	set, err := unit.ParseCPUSet(s)
	if err == nil && set.Empty() {
		err = errors.New("want at least one CPU")
	}
	*f = cpusFlag(set)
	return err
}
func (f *cpusFlag) String() string { return unit.CPUSet(*f).String() }
func (f *cpusFlag) Type() string   { return "LIST" }

func (f *percentFlag) Set(s string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "%"), 64)
	if err != nil {
		return errors.New("want a percentage such as 30%")
	}
	*f = percentFlag(v)
	return nil
}
func (f *percentFlag) String() string {
	return strconv.FormatFloat(float64(*f), 'f', -1, 64) + "%"
}
func (f *percentFlag) Type() string { return "PERCENT" }
