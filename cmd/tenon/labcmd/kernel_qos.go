package labcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/harness"
)

// NewKernelQOS returns the command tenon lab kernel-qos.
func NewKernelQOS(f Frame) *cobra.Command {
	var c run.Config
	var modes string
	load := labflag.Percent(30)
	var outside bool
	cmd := &cobra.Command{
		Use:   "kernel-qos [flags]",
		Short: "Measure nginx beside ffmpeg with each isolation mechanism of this kernel",
		Long: `Run nginx (latency-sensitive) alone, beside ffmpeg (best-effort), and beside
ffmpeg with Tenon on one isolation mechanism at a time, and show latency
(RT P50, P75, P90, P99), CPU use, nginx's run-queue delay, and for how much of
nginx's time ffmpeg ran on the same core.

` + harness.ModeHelp(run.KernelQOSModes) + `
The report names the mechanisms that this node does not support, and why; one
that is named with --modes and missing is an error. Every mode runs once in each
block, in random order, with nginx restarted. After the measured part of a run the
kernel records its scheduler for a second, under the same load. In an emulated
machine latency means nothing, and the report says so.
It needs root (for cgroups), nginx and ffmpeg, and two CPUs. At most half an hour.`,
		Example: `  sudo tenon lab kernel-qos
  sudo tenon lab kernel-qos --modes exclusive,default,tenon-idle --blocks 2 --duration 3s
  sudo tenon lab kernel-qos --max-time 40m --blocks 60 --seed 7 --out results`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = harness.ParseModes(modes, run.KernelQOSModes, run.PublishedKernelModes...); err != nil {
				return cmdline.Usagef("--modes: %w", err)
			}
			if err := labflag.RefuseZero(cmd.Flags(), notZero); err != nil {
				return cmdline.Usage(err)
			}
			if err := f.Prepare(&c.Setting, outside); err != nil {
				return err
			}
			c.LoadPercent, c.LeaveOut = float64(load), modes == harness.Published
			return f.Run(cmd, func(ctx context.Context) (harness.Outcome, error) { return run.KernelQOS(ctx, c) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas; all: baseline, control, and the mechanisms that the node has; published: the groups of the published experiment")
	flags.IntVar(&c.Blocks, "blocks", 0, "how often every mode runs (default 12, the fewest for a verdict; with --until-resolved no bound)")
	flags.DurationVar(&c.Duration, "duration", 5*time.Second, "length of the measured part of a run")
	flags.DurationVar(&c.MaxTime, "max-time", 0, "start no block that would end later than this (default 25m, with --blocks or --until-resolved no bound)")
	f.colocationFlags(cmd, &c)
	flags.Var(&load, "load", "CPU use of nginx alone, in percent of the tested CPUs; sets the offered rate")
	f.settingFlags(cmd, &c.Setting, &outside)
	cmdline.CompleteList(cmd, "modes", append([]string{"all", harness.Published}, modeNames(run.KernelQOSModes)...)...)
	return cmd
}
