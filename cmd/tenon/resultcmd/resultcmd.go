// Package resultcmd has the commands for the results of experiments: tenon lab pack, tenon lab
// submit and tenon lab meta, which combines the results of several experiments.
package resultcmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/colocation/submission"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
)

// A Frame contains the functions of the program tenon that the commands of this
// package call.
type Frame struct {
	// Print writes v as JSON if the user requests JSON, otherwise it writes text.
	Print func(cmd *cobra.Command, v any, text string) error
	// Prepare fills in the settings of an experiment that have no flag.
	Prepare func(*run.Config) error
	// Colocate runs the colocation experiment; see run.Run.
	Colocate func(context.Context, run.Config) (harness.Outcome, error)
	// Experiment runs an experiment until it ends or the user interrupts it.
	Experiment func(cmd *cobra.Command, run func(context.Context) error) error
}

// New returns the command tenon lab meta.
func New(f Frame) *cobra.Command {
	base := string(report.ExclusiveWarm)
	cmd := &cobra.Command{
		Use:   "meta DIR... [flags]",
		Short: "Put several colocation experiments together",
		Long: `Estimate the ratio of each mode to --base over several experiments of tenon lab
colocation, packed or not, or files of tenon lab submit, by random effects: every experiment has a true ratio
of its own, because machines and their neighbours differ from hour to hour. The
95 % interval tells how well the mean over experiments is known, the interval of
the next experiment where one more result is expected, and I² how much the
experiments disagree. Experiments that cannot be used are listed with the
reason, and so is what went wrong in those that count, and in what they differ.
An experiment that is named twice counts once. With -o json, the medians of
each experiment are there as well.`,
		Example: `  tenon lab meta campaign-1 campaign-2 campaign-3
  tenon lab meta docs/experiments/*colocation* --base tenon
  tenon lab meta tenon-submission-*.tar.zst`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmdline.Usagef("lab meta wants one directory or more: see tenon lab meta --help")
			}
			m := colocation.Combine(args, report.Mode(base), submission.Check)
			if err := f.Print(cmd, m, m.Text()); err != nil {
				return err
			}
			if len(m.Included) == 0 {
				return errors.New("put experiments together: none of them can be used")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&base, "base", base, "the mode to which the others are compared")
	cmdline.Complete(cmd, "base", string(report.Exclusive), string(report.ExclusiveWarm), string(report.ExclusiveAwake), string(report.Default), string(report.Tenon))
	return cmd
}
