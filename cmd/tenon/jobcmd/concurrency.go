package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/concurrency/run"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// listFlags are the flags whose texts are parsed after all flags are set.
type listFlags struct {
	strategies, jobs, limits, memory, threads, burst, job string
}

// NewConcurrency returns the command tenon lab concurrency.
func NewConcurrency(f Frame) *cobra.Command {
	var c run.Config
	var k run.Pods
	on := newJobFlags(&k)
	var text listFlags
	cmd := &cobra.Command{
		Use:   "concurrency [flags] [-- COMMAND...]",
		Short: "Measure how many batch jobs fit on a node, and with which CPU limit",
		Long: `Run batch jobs beside each other, with different CPU limits and ways to divide the
CPUs among them, and say how many to run at once and with which limit. The job is
a transcode of the lab's own film with the arguments of the published experiment
(needs ffmpeg), or any command that ends: $TENON_JOB is its number, and
$TENON_THREADS the threads that --threads asks for.

Strategies:
  quota         the limit as a quota on all CPUs, as in Kubernetes
  pinned        virtual workers of neighbouring CPUs (--slice), without a quota
  pinned-blind  the same, of CPUs drawn at random
  static        exclusive CPUs, as of the kubelet; a job that finds none waits
  static-burst  a pool of one L3 cache, and the limit as a quota, under Tenon's loop
  unbounded     no limit
  burst         a quota of twice the limit, or of --burst-max if that is more
  matched       the limit as a quota, and as many threads
  tenon         best-effort jobs with the limit, under Tenon's own loop

Each block runs every cell once in random order, and a job alone without a limit
twice, to show what this machine can distinguish. Cells that exceed the machine
are left out and named. It needs root (for cgroups). Ten minutes at most.

With --kubernetes the jobs of a cell are Jobs on nodes of a cluster, with the
names of the published experiment, and begin together. It needs kubectl and no
root. Its strategies are quota, unbounded, burst, matched, static (if the kubelet
has this CPU manager policy) and tenon (batch resources, class BE). The logs are
kept for import. All that it made is removed at the end, and what a killed run
left by the next.

A preset is a list of grids. With one of --strategies, --jobs, --limits, --memory
and --threads, the others come from the first grid of the preset, and the others
of its grids do not run:
` + run.PresetHelp(),
		Example: `  sudo tenon lab concurrency
  sudo tenon lab concurrency --jobs 1,2,4 --limits 0.5,1,none --strategies quota,unbounded -- ./encode.sh
  sudo tenon lab concurrency --preset below-one
  sudo tenon lab concurrency --preset published-aws --as-published
  tenon lab concurrency --kubernetes --node worker-1 --limits 0.5,1,none --jobs 1,2,4
  tenon lab concurrency import db-aws.csv --node-cpus 16 --node-cores 8 --out published`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			// The library adds a -- of its own, so the flags do not show whether the
			// user wrote one.
			if len(args) > 0 || slices.Contains(os.Args, "--") {
				return nil, cobra.ShellCompDirectiveDefault // the command of a job
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return cmdline.Usagef("unknown command %q: want import, or -- before the command of a job", args[0])
			}
			c.Argv = args
			if err := labflag.RefuseZero(cmd.Flags(), concurrencyNotZero); err != nil {
				return cmdline.Usage(err)
			}
			if err := text.parse(&c); err != nil {
				return cmdline.Usage(err)
			}
			if err := on.apply(cmd, &c, &k); err != nil {
				return cmdline.Usage(err)
			}
			if err := f.Prepare(&c.Setting); err != nil {
				return err
			}
			return f.Experiment(cmd, func(ctx context.Context) (harness.Outcome, error) { return run.Run(ctx, c) })
		},
	}
	addConcurrencyFlags(cmd, &c, &text)
	on.Add(cmd, &k.Target, "run the jobs on nodes of a cluster, as Jobs")
	cmd.AddCommand(newImport(f))
	return cmd
}

// concurrencyNotZero maps flags to their accepted values. The default of these flags
// is not zero.
var concurrencyNotZero = map[string]string{
	"preset": "one of " + strings.Join(run.Presets(), ", "), "job": "a command for the shell", "slice": fmt.Sprintf("1 to %d CPUs", unit.MaxCPUs),
	"blocks": "1 or more", "window": "200ms to 1h", "warmup": "more than 0 and at most 1h", "max-time": "more than 0", "work": "50ms to 1h of CPU time",
	"height": "360, 720 or 1080", "max-steal": testbed.VoidPercents, "max-foreign": testbed.VoidPercents, "input": "a film",
}

func addConcurrencyFlags(cmd *cobra.Command, c *run.Config, text *listFlags) {
	flags := cmd.Flags()
	flags.StringVar(&c.Preset, "preset", run.Quick, "the lists that are not given: "+strings.Join(run.Presets(), ", "))
	flags.StringVar(&text.strategies, "strategies", "", "ways to divide the CPUs, separated by commas (default: of the preset)")
	flags.StringVar(&text.jobs, "jobs", "", "jobs at once, such as 1,2,4 (default: of the preset)")
	flags.StringVar(&text.limits, "limits", "", "CPU limits of a job, such as 0.5,1,none (default: of the preset)")
	flags.StringVar(&text.memory, "memory", "", "memory limits of a job, such as 512Mi,1Gi,none (default: of the preset)")
	flags.StringVar(&text.threads, "threads", "", "threads of a job; 0: the program chooses (default: of the preset)")
	flags.StringVar(&text.job, "job", "", "command of a job, for the shell, in place of the transcode")
	flags.IntVar(&c.Slice, "slice", 0, "CPUs of a pinned virtual worker (default: the limit, rounded up)")
	flags.StringVar(&text.burst, "burst-max", "8", "least quota of strategy burst in CPUs")
	flags.StringVar((*string)(&c.Fill), "fill", "", "steady: jobs follow each other; wave: all begin at once, and the run ends with the last; window: endless transcodes, by frames (default steady)")
	flags.IntVar(&c.Blocks, "blocks", 0, "how often every cell runs (default 4)")
	flags.DurationVar(&c.Window, "window", 2*time.Second, "time in which the jobs of a steady run begin that count")
	flags.DurationVar(&c.Warmup, "warmup", 800*time.Millisecond, "time before the measured part")
	flags.DurationVar(&c.MaxTime, "max-time", 9*time.Minute+30*time.Second, "stop before a block that does not fit into this time")
	flags.BoolVar(&c.AsPublished, "as-published", false, "run each cell once, in order, as a wave; a pinned virtual worker gets the limit as a quota, too")
	flags.StringVar(&c.Type, "type", "", "word in the column Type of jobs.csv (default: the strategy)")
	flags.DurationVar(&c.Work, "work", 500*time.Millisecond, "CPU time of one transcode, alone (with --kubernetes 5s)")
	flags.IntVar(&c.Height, "height", 0, "lines of the transcoded picture: 360, 720 or 1080 (default: enough for a thread on each CPU)")
	flags.StringVar(&c.Input, "input", "", "film to transcode (default: the lab's own, rendered once)")
	flags.Float64Var(&c.ForeignPercent, "max-foreign", 5, "CPU use of other work, in percent of the tested CPUs, above which a run is void")
	labflag.Common(cmd, &c.Setting, "all")
	cmdline.Files(flags, "input")
	cmdline.Complete(cmd, "preset", run.Presets()...)
	cmdline.Complete(cmd, "fill", string(run.Steady), string(run.Wave), string(run.Window))
	cmdline.Complete(cmd, "height", "360", "720", "1080")
	cmdline.CompleteList(cmd, "strategies", strategyNames()...)
}

func strategyNames() []string {
	var names []string
	for _, s := range run.Strategies {
		names = append(names, string(s))
	}
	return names
}

func (t listFlags) parse(c *run.Config) error {
	if t.job != "" {
		if len(c.Argv) > 0 {
			return errors.New("--job and a command after --: want one of them")
		}
		c.Argv = []string{"/bin/sh", "-c", t.job}
	}
	var err error
	take := func(e error) { err = errors.Join(err, e) }
	take(labflag.ParseList(t.strategies, "--strategies", &c.Strategies, func(s string) (run.Strategy, error) { return run.Strategy(s), nil }))
	take(labflag.ParseList(t.jobs, "--jobs", &c.Jobs, wholeNumber))
	take(labflag.ParseList(t.threads, "--threads", &c.Threads, wholeNumber))
	take(labflag.ParseList(t.limits, "--limits", &c.Limits, func(s string) (unit.MilliCPU, error) {
		return orNone(s, unit.ParseMilliCPU, run.LimitRange)
	}))
	take(labflag.ParseList(t.memory, "--memory", &c.Memory, func(s string) (unit.Bytes, error) {
		return orNone(s, unit.ParseBytes, run.MemoryRange)
	}))
	burst, e := unit.ParseMilliCPU(t.burst)
	if e != nil || burst <= 0 {
		take(fmt.Errorf("--burst-max %q: want a number of CPUs above 0", t.burst))
	}
	c.BurstMax = burst
	return err
}

// orNone reads an amount. The text none means 0.
func orNone[T ~int64](s string, parse func(string) (T, error), accepts string) (T, error) {
	if s == "none" {
		return 0, nil
	}
	v, err := parse(s)
	if err == nil && v == 0 {
		err = fmt.Errorf("%s: want %s", s, accepts)
	}
	return v, err
}

func wholeNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%q: want a whole number", s)
	}
	return n, nil
}
