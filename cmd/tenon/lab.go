package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"tenon.sh/tenon/cmd/tenon/jobcmd"
	"tenon.sh/tenon/cmd/tenon/labcmd"
	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/cmd/tenon/resultcmd"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/load/wrk"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

// exitInterrupted is the exit status after Ctrl-C, as in shells: 128 + SIGINT.
const exitInterrupted = 130

func newLabCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Measure what colocation costs and wins on this machine",
		Example: `  sudo tenon lab colocation
  sudo tenon lab kernel-qos
  sudo tenon lab memory
  sudo tenon lab reaction
  tenon lab load http://nginx.example:8000/ --rate 20000 --duration 60s
  tenon lab report tenon-lab-20260102-150405`,
		Args: cmdline.Known("experiment"),
	}
	show := func(cmd *cobra.Command, f report.Findings) error { return printFindings(cmd, g, f) }
	documents, repeated := newPublishedCommand(g)
	submit, meta, again := resultcmd.NewSubmit(resultFrame(g)), resultcmd.New(resultFrame(g)), newLabReportCommand(g)
	advise, load, ofWrk, pack := jobcmd.NewAdvise(jobFrame(g, show)), newLoadCommand(g), newWrkCommand(g), resultcmd.NewPack(resultFrame(g))
	services := []*cobra.Command{
		labcmd.NewColocation(labFrame(g, show)), labcmd.NewKernelQOS(labFrame(g, show)), labcmd.NewMemory(labFrame(g, show)), labcmd.NewReaction(labFrame(g, show)),
	}
	concurrency := jobcmd.NewConcurrency(jobFrame(g, show))
	jobs := []*cobra.Command{concurrency, jobcmd.NewPinning(jobFrame(g, show))}
	experiments := slices.Concat(services, jobs, repeated)
	g.output.Add(experiments...)
	g.output.Add(concurrency.Commands()...)
	g.output.Add(advise, load, ofWrk, again, meta, pack)
	experiments = append(experiments, submit)
	g.stateDirFlag(experiments...)
	for _, e := range experiments {
		labflag.GroupHelp(e)
	}
	cmdline.AddGroups(cmd,
		cmdline.CommandGroup{Title: "Services beside batch work", Commands: services},
		cmdline.CommandGroup{Title: "Batch jobs and their CPUs", Commands: append(jobs, advise)},
		cmdline.CommandGroup{Title: "Published documents", Commands: []*cobra.Command{documents}},
		cmdline.CommandGroup{Title: "Loads", Commands: []*cobra.Command{load, ofWrk}},
		cmdline.CommandGroup{Title: "Results", Commands: []*cobra.Command{again, meta, pack, submit}})
	cmd.AddCommand(newChildCommand())
	return cmd
}

// showFindings prints the result of an experiment.
type showFindings func(*cobra.Command, report.Findings) error

// experiment runs one experiment until it ends or the user interrupts it. Then
// it shows the results so far.
func experiment(cmd *cobra.Command, show showFindings, run func(context.Context) (harness.Outcome, error)) error {
	ctx, stop := contextOfExperiment(cmd.Context())
	defer stop()
	o, err := run(ctx)
	if errors.As(err, new(testbed.FlagFaults)) {
		return cmdline.Usage(err)
	}
	if o.Findings != nil {
		err = errors.Join(err, show(cmd, o.Findings))
		fmt.Fprintf(os.Stderr, "report: %s\n", o.Report())
	}
	return interruption(ctx, err)
}

func printFindings(cmd *cobra.Command, g *global, f report.Findings) error {
	if g.output != cmdline.Text {
		return g.output.Print(cmd.OutOrStdout(), f.Result(), "")
	}
	return f.Page().WriteText(cmd.OutOrStdout())
}

// labFrame returns the functions of this program for experiments with a
// service.
func labFrame(g *global, show showFindings) labcmd.Frame {
	return labcmd.Frame{
		Prepare: func(s *testbed.Setting, agent bool) error { return prepare(g, s, agent) },
		Run: func(cmd *cobra.Command, run func(context.Context) (harness.Outcome, error)) error {
			return experiment(cmd, show, run)
		},
	}
}

// jobFrame returns the functions of this program for experiments about jobs.
func jobFrame(g *global, show showFindings) jobcmd.Frame {
	return jobcmd.Frame{
		Version: version,
		Print: func(cmd *cobra.Command, v any, text string) error {
			return g.output.Print(cmd.OutOrStdout(), v, text)
		},
		Findings: show,
		Prepare:  func(s *testbed.Setting) error { return prepare(g, s, false) },
		Experiment: func(cmd *cobra.Command, run func(context.Context) (harness.Outcome, error)) error {
			return experiment(cmd, show, run)
		},
	}
}

func resultFrame(g *global) resultcmd.Frame {
	return resultcmd.Frame{
		Print: jobFrame(g, nil).Print, Prepare: func(c *run.Config) error { return prepare(g, &c.Setting, false) },
		Colocate: run.Run,
		Experiment: func(cmd *cobra.Command, run func(context.Context) error) error {
			ctx, stop := contextOfExperiment(cmd.Context())
			defer stop()
			return interruption(ctx, run(ctx))
		},
	}
}

// interruption tells that the user has interrupted the experiment. It adds the
// errors that occurred while the experiment ended.
func interruption(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		text := "everything is stopped and put back"
		if failed := withoutCanceled(err); failed != nil {
			text = fmt.Sprintf("not everything may be put back: %v", failed)
		}
		fmt.Fprintln(os.Stderr, "tenon: interrupted: "+text)
		return exitStatus(exitInterrupted)
	}
	return err
}

// withoutCanceled removes each context.Canceled from joined errors. It returns
// nil if no other error remains.
func withoutCanceled(err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	var left []error
	for _, e := range joined.Unwrap() {
		left = append(left, withoutCanceled(e))
	}
	return errors.Join(left...)
}

func newLabReportCommand(g *global) *cobra.Command {
	var csv bool
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Make table, result.json and report.html again from the raw data of an experiment",
		Long: `Make table, result.json and report.html again from the raw data of an experiment,
which may be packed (see tenon lab pack). The result.json of a packed experiment
stays as it is: it says what the version of that day found. -o json prints the
result of this version, and --csv the tables with a line for each cell.`,
		Example:           "  tenon lab report tenon-lab-20260102-150405",
		Args:              cmdline.OneArg("directory"),
		ValidArgsFunction: cmdline.DirArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if csv && g.output != cmdline.Text {
				return cmdline.Usagef("--csv and -o are two forms: leave one out")
			}
			keeps := report.KeepsResult(args[0])
			f, err := lab.Kinds.Rebuild(args[0])
			if err != nil {
				return err
			}
			if csv {
				err = f.Page().WriteCSV(cmd.OutOrStdout())
			} else {
				err = printFindings(cmd, g, f)
			}
			if err != nil {
				return err
			}
			if keeps {
				fmt.Fprintf(os.Stderr, "%s stays as it is; -o json prints the result of this version\n", filepath.Join(args[0], report.ResultFile))
			}
			fmt.Fprintf(os.Stderr, "report: %s\n", harness.Outcome{Dir: args[0]}.Report())
			return nil
		},
	}
	cmd.Flags().BoolVar(&csv, "csv", false, "print the tables as CSV")
	return cmd
}

func newLoadCommand(g *global) *cobra.Command {
	c := load.Config{Arrival: load.Poisson}
	cmd := &cobra.Command{
		Use:   "load URL --rate N [flags]",
		Short: "Measure the latency of a service under an open load",
		Long: `Send requests at a rate that does not depend on the answers, and measure the
latency of each from the moment it was due:
` + protocol.Requested() + `.
Run it on a second machine to test this one without sharing CPUs. A run that the client
itself spoiled (it sent too late, it was too busy, requests failed) is void: the reasons
are printed and the exit status is 1.`,
		Example: `  tenon lab load http://nginx.example:8000/ --rate 20000
  tenon lab load http://127.0.0.1:8000/ --rate 5000 --duration 60s --cpus 6-7 -o json`,
		Args:              cmdline.OneArg("URL"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.Rate <= 0 {
				return cmdline.Usagef("no rate: add --rate with the requests per second to send")
			}
			c.URL = args[0]
			if c.Connections < 1 {
				return cmdline.Usagef("--connections %d: want 1 or more", c.Connections)
			}
			return runLoad(cmd, g, c)
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&c.Rate, "rate", 0, "requests per second")
	flags.DurationVar(&c.Duration, "duration", 10*time.Second, "length of the measured part")
	flags.DurationVar(&c.Warmup, "warmup", time.Second, "time before the measured part")
	flags.IntVar(&c.Connections, "connections", 256, "keep-alive connections")
	flags.StringVar((*string)(&c.Arrival), "arrivals", string(load.Poisson), "law of the times between requests: poisson or constant")
	flags.Var((*labflag.CPUs)(&c.CPUs), "cpus", "CPUs to send from, one thread on each (default: all)")
	flags.Uint64Var(&c.Seed, "seed", 1, "seed of the arrivals")
	cmdline.Complete(cmd, "arrivals", string(load.Poisson), string(load.Constant))
	return cmd
}

func runLoad(cmd *cobra.Command, g *global, c load.Config) error {
	ctx, stop := contextUntilSignal(cmd.Context())
	defer stop()
	// A garbage collection would pause the threads that send requests. This
	// short process needs none.
	debug.SetGCPercent(-1)
	r, err := load.Run(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return exitStatus(exitInterrupted)
		}
		return err
	}
	return printRun(cmd, g, r, r.Void)
}

// printRun prints a run of a load. The exit status is 1 if the run is void.
func printRun(cmd *cobra.Command, g *global, r interface{ WriteText(io.Writer) error }, void []string) error {
	var err error
	if g.output != cmdline.Text {
		err = g.output.Print(cmd.OutOrStdout(), r, "")
	} else {
		err = r.WriteText(cmd.OutOrStdout())
	}
	if err == nil && len(void) > 0 {
		return exitStatus(cmdline.ExitFailure)
	}
	return err
}

func newWrkCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "wrk FILE",
		Short: "Explain the output of a run of wrk that you have",
		Long: `Print the figures of one run of wrk 4 as a table, and say why the run must not be
used: connections that could not be established, answers that failed or did not come.
For connections it prints the limits of this machine, and how to change them: run it
where wrk ran. FILE is what wrk printed, - is the standard input. It need not be
complete; percentiles need wrk --latency. The exit status is 1 if the run is void.`,
		Example: `  wrk -t6 -c54 -d60s --latency http://nginx.example:8000/ > wrk.txt
  tenon lab wrk wrk.txt`,
		Args: cmdline.OneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("read the output of wrk: %w", err)
				}
				defer f.Close()
				in = f
			}
			r, err := wrk.ReadOutput(in)
			if err != nil {
				return err
			}
			return printRun(cmd, g, r, r.Void)
		},
	}
}

// newChildCommand returns the hidden command that testbed.Setting.Self starts.
func newChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "child ROLE [ARG...]",
		Short:  "Run a part of an experiment, for the lab itself",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := contextUntilSignal(cmd.Context())
			defer stop()
			return lab.Child(ctx, args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// contextUntilSignal returns a context that ends at the first SIGINT, SIGTERM
// or SIGHUP. The second of these signals ends the program at once.
func contextUntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// contextOfExperiment returns a context that ends as that of contextUntilSignal,
// and also if stderr is a pipe that has lost its reader, as after 2>&1 | head.
// Until the returned function is called, a write to such a pipe is only an
// error: by default Go would end the program at once, and put nothing back.
// This also holds after Ctrl-C, which ends a tee in the same pipeline.
func contextOfExperiment(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := contextUntilSignal(ctx)
	ctx, cancel := context.WithCancel(ctx)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	go func() {
		for range broken {
			if !hasReader(os.Stderr) { // otherwise it was a socket, or the pipe to a child
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(broken)
		close(broken)
		cancel()
		stop()
	}
}

// hasReader returns false if f is the end of a pipe or socket whose other end is
// closed (poll(2)).
func hasReader(f *os.File) bool {
	state := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	_, err := unix.Poll(state, 0)
	return err != nil || state[0].Revents&unix.POLLERR == 0
}

// prepare fills in the settings that have no flag.
func prepare(g *global, s *testbed.Setting, outside bool) (err error) {
	if s.Self, err = labSelf(); err != nil {
		return err
	}
	if outside {
		if s.Agent, err = tenondBeside(s.Self[0]); err != nil {
			return err
		}
	}
	s.JournalDir, s.Command, s.Version = g.stateDir, os.Args, versionName()
	s.Notices, s.Terminal = os.Stderr, isTerminal(os.Stderr)
	return nil
}

// labSelf returns the command by which the lab starts this program as a child
// process.
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

// tenondBeside finds tenond in the directory of this program, or on the PATH.
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
