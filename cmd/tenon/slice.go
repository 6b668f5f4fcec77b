package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agentworkers "tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/unit"
)

func newSliceCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slice",
		Short: "Show the virtual workers of this machine, and change their size",
		Long: `Show the virtual workers of this machine, and change their size while work runs in
them. A slice of the configuration of tenond (key slices) is a number of workers
with a number of CPUs each; the best-effort work of the rules that name it is
divided among them.`,
		Example: `  sudo tenon slice list
  sudo tenon slice set encoders=5`,
	}
	list, set := newSliceListCommand(g), newSliceSetCommand(g)
	g.agentFlag(list, set)
	g.output.Add(list, set)
	cmd.AddCommand(list, set)
	return cmd
}

func newSliceListCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show each worker with its CPUs and its work",
		Long: `Show each worker of each slice, with its CPUs and the work in it. A worker without
work has no CPUs. shared: the workers do not fit into the CPUs that best-effort
work may use now, so that all its work shares them.`,
		Example: `  sudo tenon slice list
  sudo tenon slice list -o json`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := agentworkers.List(cmd.Context(), g.agent())
			if err != nil {
				return needRoot("slice list", err)
			}
			return g.output.Print(cmd.OutOrStdout(), all, agentworkers.Text(all))
		},
	}
}

func newSliceSetCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME=CPUS",
		Short: "Change the size of the workers of a slice now",
		Long: `Change the number of CPUs of each worker of a slice now. Work in the workers goes on.
A running program keeps its number of threads; one that starts later sees the new
number of CPUs. The size holds until the node boots, also for a tenond that starts
again; 0 returns to the size of the configuration.

Waits up to 5 s for the effect and prints all slices.`,
		Example: `  sudo tenon slice set encoders=5
  sudo tenon slice set encoders=0`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cmdline.Usagef("slice set wants one NAME=CPUS, got %d: such as tenon slice set encoders=5", len(args))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			defer stop()
			all, err := agentworkers.List(ctx, g.agent())
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, s := range all {
				names = append(names, s.Name+"=")
			}
			return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, text, _ := strings.Cut(args[0], "=")
			cpus, err := strconv.Atoi(text)
			switch {
			case name == "" || err != nil || cpus < 0:
				return cmdline.Usagef("%q: want NAME=CPUS, with a whole number of CPUs from 0, such as encoders=5", args[0])
			case !config.IsSliceName(name):
				return cmdline.Usagef("slice %q: %s", name, config.SliceNameForm)
			case cpus > unit.MaxCPUs:
				return cmdline.Usagef("slice %s: %d: want 1 to %d CPUs, or 0 for the size of the configuration", name, cpus, unit.MaxCPUs)
			}
			all, err := agentworkers.Set(cmd.Context(), g.agent(), name, cpus)
			if err != nil {
				return needRoot("slice set", err)
			}
			return g.output.Print(cmd.OutOrStdout(), all, agentworkers.Text(all))
		},
	}
}
