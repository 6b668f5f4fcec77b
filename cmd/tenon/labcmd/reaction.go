package labcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/reaction/run"
	"tenon.sh/tenon/internal/lab/testbed"
)

// reactionNotZero has the same meaning as notZero.
var reactionNotZero = map[string]string{
	"blocks": "1 or more", "steps": "1 or more", "contrast": "1 or more", "step": "20ms to 1m",
	"min-pause": "more than 0", "max-pause": "more than 0", "max-steal": testbed.VoidPercents,
}

// NewReaction returns the command tenon lab reaction.
func NewReaction(f Frame) *cobra.Command {
	var c run.Config
	var modes string
	cmd := &cobra.Command{
		Use:   "reaction [flags]",
		Short: "Measure how soon tenond answers when a quiet service begins to work hard",
		Long: `Run a service that is quiet and then, at random times, works hard for a moment,
beside spinners of equal weight that tenond bounds by CPU suppress. Show how long
it takes from the kernel's event to tenond's last write, from the step to the
moment when the spinners are narrowed, and for how long the service had to wait.

` + harness.ModeHelp(run.Modes) + `
It measures a real tenond, the one beside this program or on the PATH, with a
configuration and a state of its own. Modes run in random order in each block;
runs that something else disturbed are void and repeated.
The results are a table here, and raw data (a JSON line for each step),
result.json and report.html in the directory of --out.
It needs root (for cgroups) and two CPUs. About twenty minutes with 500 steps.`,
		Example: `  sudo tenon lab reaction
  sudo tenon lab reaction --steps 50 --contrast 20 --blocks 2
  sudo tenon lab reaction --modes events,tick --seed 7 --out results`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = harness.ParseModes(modes, run.Modes); err != nil {
				return labflag.ModesError(err)
			}
			if err := labflag.RefuseZero(cmd.Flags(), reactionNotZero); err != nil {
				return cmdline.Usage(err)
			}
			if err := f.Prepare(&c.Setting, true); err != nil {
				return err
			}
			return f.Run(cmd, func(ctx context.Context) (harness.Outcome, error) { return run.Run(ctx, c) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas; all: what this kernel can")
	flags.IntVar(&c.Blocks, "blocks", harness.LeastBlocks(), "blocks over which the steps are spread, each with a start of tenond; a verdict about modes needs 12, one about the P99 of an answer 299")
	flags.IntVar(&c.Steps, "steps", 500, "steps of load in mode events, over all blocks")
	flags.IntVar(&c.Contrast, "contrast", 0, "steps in each of the other modes (default a tenth of --steps)")
	flags.DurationVar(&c.Step, "step", 250*time.Millisecond, "length of a step; a second more in modes tick and psi")
	flags.DurationVar(&c.LeastPause, "min-pause", 900*time.Millisecond, "shortest pause before a step")
	flags.DurationVar(&c.MostPause, "max-pause", 1300*time.Millisecond, "longest pause before a step")
	flags.DurationVar(&c.Objective, "objective", 0, "the longest wait for a CPU that the service's rule accepts (default: it names none)")
	f.settingFlags(cmd, &c.Setting, nil)
	cmdline.CompleteList(cmd, "modes", append([]string{"all"}, modeNames(run.Modes)...)...)
	return cmd
}
