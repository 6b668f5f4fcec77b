package labcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/memory/run"
	"tenon.sh/tenon/internal/lab/testbed"
)

// memoryNotZero has the same meaning as notZero.
var memoryNotZero = map[string]string{
	"blocks": "1 or more", "duration": "1s or more", "set": "32Mi or more", "rate": "more than 0 requests per second",
	"data": "a directory", "max-steal": testbed.VoidPercents,
}

// NewMemory returns the command tenon lab memory.
func NewMemory(f Frame) *cobra.Command {
	var c run.Config
	var modes string
	var outside bool
	cmd := &cobra.Command{
		Use:   "memory [flags]",
		Short: "Measure nginx beside a program that is greedy for memory, with and without Tenon",
		Long: `Run nginx, whose pages just fit into memory, beside a program that is greedy for
memory, in one cgroup with less memory than the two want together, and show what
that did to nginx's latency and to its pages.

` + harness.ModeHelp(run.Modes) + `
Every mode runs once in each block, in random order, with nginx restarted and its
pages read anew. Files of five times --set are written to --data, on a device,
and removed at the end; nothing else is evicted from the page cache. The group is
bounded to twice --set, so the rest of the machine keeps its memory. The program
reads and writes the disk of --data without a limit, so others wait for that disk.
It needs root (for cgroups), nginx, and two CPUs. About ten minutes.`,
		Example: `  sudo tenon lab memory
  sudo tenon lab memory --blocks 2 --duration 3s --set 64Mi
  sudo tenon lab memory --agent --seed 7 --out results`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = harness.ParseModes(modes, run.Modes); err != nil {
				return labflag.ModesError(err)
			}
			if err := labflag.RefuseZero(cmd.Flags(), memoryNotZero); err != nil {
				return cmdline.Usage(err)
			}
			if err := f.Prepare(&c.Setting, outside); err != nil {
				return err
			}
			return f.Run(cmd, func(ctx context.Context) (harness.Outcome, error) { return run.Run(ctx, c) })
		},
	}
	c.Set = 256 << 20
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas, or all")
	flags.IntVar(&c.Blocks, "blocks", harness.LeastBlocks(), "how often every mode runs; a verdict needs 12")
	flags.DurationVar(&c.Duration, "duration", 6*time.Second, "length of the measured part of a run")
	flags.Var((*labflag.Bytes)(&c.Set), "set", "what nginx reads at random, such as 256Mi; all other sizes follow from it")
	flags.Float64Var(&c.Rate, "rate", 500, "requests per second that are offered")
	flags.StringVar(&c.Data, "data", "/var/tmp", "directory for the files that are read, on a device")
	flags.IntVar(&c.Port, "port", 0, "port of nginx on 127.0.0.1 (default: a free one)")
	f.settingFlags(cmd, &c.Setting, &outside)
	cmdline.CompleteList(cmd, "modes", append([]string{"all"}, modeNames(run.Modes)...)...)
	cmdline.Dirs(flags, "data")
	return cmd
}
