package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/report"
)

func newReactionCommand(g *global) *cobra.Command {
	var c lab.ReactionConfig
	var modes string
	cmd := &cobra.Command{
		Use:   "reaction [flags]",
		Short: "How soon tenond answers when a quiet service begins to work hard",
		Long: `Run a service that is quiet and then, at random times, works hard for a moment,
beside spinners of equal weight that tenond bounds by CPU suppress. Show how long
it takes from the kernel's event to tenond's last write, from the step to the
moment when the spinners are narrowed, and for how long the service had to wait.

  events  the kernel's events wake tenond: BPF alarms, PSI triggers
  psi     PSI triggers alone (cgroup v2)
  tick    nothing wakes it: it turns once in a second
  idle    events, and the spinners idle in the kernel (cpu.idle), which needs no
          loop: for contrast

It measures a real tenond, the one beside this program or on the PATH, with a
configuration and a state of its own. Modes run in random order in each block.
The results are a table here, and raw data (a JSON line for each step),
result.json and report.html in the directory of --out.
It needs root (for cgroups) and two CPUs. About a quarter of an hour with 500 steps.`,
		Example: `  sudo tenon lab reaction
  sudo tenon lab reaction --steps 50 --contrast 20 --blocks 2
  sudo tenon lab reaction --modes events,tick --seed 7 --out results`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = lab.ParseModes(modes, lab.ReactionModes); err != nil {
				return usageError{fmt.Errorf("--modes: %w", err)}
			}
			if err := prepare(g, &c.Setting, true); err != nil {
				return err
			}
			return react(cmd, g, c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas; all: what this kernel can")
	flags.IntVar(&c.Blocks, "blocks", 5, "blocks over which the steps are spread")
	flags.IntVar(&c.Steps, "steps", 500, "steps of load in mode events, over all blocks")
	flags.IntVar(&c.Contrast, "contrast", 0, "steps in each of the other modes (default a tenth of --steps)")
	flags.DurationVar(&c.Step, "step", 250*time.Millisecond, "length of a step; a second more in modes tick and psi")
	flags.DurationVar(&c.LeastPause, "least-pause", 900*time.Millisecond, "shortest pause before a step")
	flags.DurationVar(&c.MostPause, "most-pause", 1300*time.Millisecond, "longest pause before a step")
	flags.DurationVar(&c.Objective, "objective", 0, "the longest wait for a CPU that the service's rule accepts (default: it names none)")
	flags.Float64Var(&c.StealPercent, "max-steal", 1, "steal time, in percent of the tested CPUs, above which the steps of a run are void")
	settingFlags(cmd, &c.Setting, nil)
	complete(cmd, "modes", "all", "events,tick", "events,tick,idle")
	for _, name := range []string{"blocks", "steps", "contrast", "step", "least-pause", "most-pause", "objective", "max-steal"} {
		complete(cmd, name)
	}
	return cmd
}

// react runs the experiment until it ends or the user ends it, and prints what
// there is in either case.
func react(cmd *cobra.Command, g *global, c lab.ReactionConfig) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	o, err := lab.React(ctx, c)
	if o.Steps > 0 {
		err = errors.Join(err, printReaction(cmd, g, o.Result))
		fmt.Fprintf(os.Stderr, "report: %s\n", o.Report())
	}
	return interruption(ctx, err)
}

// interruption says what happened if the user ended the experiment.
func interruption(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "tenon: interrupted: everything is stopped and put back")
		return exitStatus(exitInterrupted)
	}
	return err
}

func printReaction(cmd *cobra.Command, g *global, r report.ReactionResult) error {
	if g.output == jsonText {
		return g.output.print(cmd.OutOrStdout(), r, "")
	}
	return report.WriteReactionTable(cmd.OutOrStdout(), r)
}

// rebuild makes the report of the experiment in dir again.
func rebuild(cmd *cobra.Command, g *global, dir string) error {
	kind, err := report.Kind(dir)
	if err != nil {
		return err
	}
	if kind == report.KindReaction {
		r, err := report.BuildReaction(dir)
		if err != nil {
			return err
		}
		return printReaction(cmd, g, r)
	}
	r, err := report.Build(dir)
	if err != nil {
		return err
	}
	return printResult(cmd, g, r)
}
