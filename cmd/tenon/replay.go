package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/policy"
)

func newReplayCommand(g *global) *cobra.Command {
	var configPath string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Decide again what tenon capture has saved, as it was or by another configuration",
		Long: `Decide every tick of a capture again and compare all wants and writes with what
stands in it, also the orders for the BE scheduler. They are the same unless Tenon
itself has changed since; the exit status is 1 if they differ. Ticks that a tenond
with another version of the record has left are skipped, and their number is
printed. - is standard input.

With --config the strategies of that file decide instead, and the differences are
listed: what would have been asked of which knob, in how many ticks, and why. The
workloads and what they used stay as they were recorded; the rules of the file
are not used. Nothing is written, and no rights are needed.`,
		Example: `  tenon replay tenon-capture-20260102-150405.jsonl.gz
  tenon replay tenon-capture-20260102-150405.jsonl.gz --config tenon.yaml`,
		Args: cmdline.OneArg("file of tenon capture"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var other *policy.Config
			if configPath != "" {
				c, err := config.Load(configPath)
				if err != nil {
					return err
				}
				other = &c.Policy
			}
			r, err := replay(cmd.InOrStdin(), args[0], other)
			if r.Ticks > 0 {
				if printed := g.output.Print(cmd.OutOrStdout(), r, r.String()); printed != nil {
					return printed
				}
			}
			if err == nil && other == nil && !r.Identical() {
				return exitStatus(cmdline.ExitFailure)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&configPath, "config", "", "decide by this configuration file of tenond")
	cmdline.Files(cmd.Flags(), "config")
	return cmd
}

func replay(stdin io.Reader, path string, other *policy.Config) (record.Report, error) {
	if path == "-" {
		return record.Replay(stdin, other)
	}
	f, err := os.Open(path)
	if err != nil {
		return record.Report{}, fmt.Errorf("replay: %w", err)
	}
	defer f.Close()
	return record.Replay(f, other)
}
