package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/cmd/tenon/labflag"
	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/frame"
	"tenon.sh/tenon/internal/lab/report"
)

func newKernelQOSCommand(g *global) *cobra.Command {
	var c lab.Config
	var modes string
	var load labflag.Percent
	var outside bool
	cmd := &cobra.Command{
		Use:   "kernel-qos [flags]",
		Short: "nginx beside ffmpeg with each means of isolation that this kernel has",
		Long: `Run nginx (latency-sensitive) alone, beside ffmpeg (best-effort), and beside
ffmpeg with Tenon on one rung of the isolation ladder at a time, and show latency
(RT P50, P75, P90, P99), CPU use, nginx's run-queue delay, and for how much of
nginx's time ffmpeg ran on the same core.

` + report.ModeHelp(lab.KernelQOSModes) + `
Rungs that this node does not have are left out, and the report says why; one
that is named with --modes and missing is an error. Every mode runs once in each
block, in random order, with nginx restarted. After the measured part of a run the
kernel records its scheduler for a second, under the same load. In an emulated
machine latency means nothing, and the report says so.
It needs root (for cgroups), nginx and ffmpeg, and two CPUs. At most seven minutes.`,
		Example: `  sudo tenon lab kernel-qos
  sudo tenon lab kernel-qos --modes exclusive,default,tenon-idle --blocks 2 --duration 3s
  sudo tenon lab kernel-qos --max-time 40m --blocks 60 --seed 7 --out results`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Modes, err = frame.ParseModes(modes, lab.KernelQOSModes); err != nil {
				return usageError{fmt.Errorf("--modes: %w", err)}
			}
			if err := prepare(g, &c.Setting, outside); err != nil {
				return err
			}
			c.LoadPercent = float64(load)
			return experiment(cmd, g, func(ctx context.Context) (frame.Outcome, error) { return lab.KernelQOS(ctx, c) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&modes, "modes", "all", "modes to run, separated by commas; all: baseline, control, and the mechanisms that the node has")
	flags.IntVar(&c.Blocks, "blocks", 0, "how often every mode runs (default 8; with --until-resolved no bound)")
	flags.DurationVar(&c.Duration, "duration", 5*time.Second, "length of the measured part of a run")
	flags.DurationVar(&c.MaxTime, "max-time", 0, "start no block that would end later than this (default 6m30s, with --blocks or --until-resolved no bound)")
	colocationFlags(cmd, &c, &load)
	settingFlags(cmd, &c.Setting, &outside)
	complete(cmd, "modes", "all", "exclusive,exclusive-aa,default,tenon-idle")
	return cmd
}
