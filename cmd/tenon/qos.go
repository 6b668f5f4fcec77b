package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/model/node"
)

func newQOSCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "qos",
		Short: "Show and choose the mechanism that isolates best-effort work on the CPU",
		Long: `Show and choose the mechanism that keeps best-effort work off the CPUs of
latency-sensitive work. The mechanisms, from the strongest to the weakest, are
vendor, sched_ext, core_sched, siblings, cpu.idle and weight. tenond begins with
the one that its configuration names, or with weight, and keeps a stronger one
that a trial has shown to help. load and unload select a mechanism while tenond
runs; auto ends that selection.`,
		Example: `  sudo tenon qos status
  sudo tenon qos load --mechanism sched_ext
  sudo tenon qos unload
  sudo tenon qos auto`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newQOSStatusCommand(g), newQOSLoadCommand(g), newQOSUnloadCommand(g), newQOSAutoCommand(g))
	return cmd
}

func newQOSStatusCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the mechanism in use, the reason, and its effects",
		Long: `Show the isolation mechanism in use, since when and why; which mechanisms the
node supports, and why it does not support the others; the counters of the BE
scheduler: run time by class, expels, the CPU that stays idle for
latency-sensitive work, waits, strays and exits; and the failures of mechanisms in
the last hour.`,
		Example: `  sudo tenon qos status
  sudo tenon qos status -o json | jq -r .ladder.rung`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := g.agent(cmd).QOS(cmd.Context())
			if err != nil {
				return needRoot("qos status", err)
			}
			return g.output.print(cmd.OutOrStdout(), q, q.String())
		},
	}
}

// mechanismFlag is the value of the flag --mechanism.
type mechanismFlag struct{ node.Mechanism }

func mechanismNames() []string {
	var names []string
	for _, r := range node.Mechanisms {
		names = append(names, string(r))
	}
	return names
}

func (f *mechanismFlag) Set(s string) error {
	if !slices.Contains(node.Mechanisms, node.Mechanism(s)) {
		return fmt.Errorf("want one of %s", strings.Join(mechanismNames(), ", "))
	}
	f.Mechanism = node.Mechanism(s)
	return nil
}
func (f *mechanismFlag) String() string { return string(f.Mechanism) }
func (f *mechanismFlag) Type() string   { return "MECHANISM" }

func newQOSLoadCommand(g *global) *cobra.Command {
	var mechanism mechanismFlag
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Use a mechanism now, instead of the choice of the configuration",
		Long: `Use a mechanism now, instead of the choice of the configuration: the given one, or else the
strongest that the node supports, even if it failed too often and is not tried for now.
The choice holds until tenon qos auto, unload or another load, or until the node
boots; a tenond that starts again keeps it. Nothing is interrupted.

Waits up to 5 s for the effect and prints what happened.`,
		Example: `  sudo tenon qos load
  sudo tenon qos load --mechanism core_sched`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.choose(cmd, func(q control.QOS) (node.Mechanism, error) {
				if mechanism.Mechanism != "" {
					return mechanism.Mechanism, nil
				}
				return q.Best()
			})
		},
	}
	cmd.Flags().Var(&mechanism, "mechanism", "one of vendor, sched_ext, core_sched, siblings, cpu.idle, weight (default the strongest)")
	complete(cmd, "mechanism", mechanismNames()...)
	const old = "rung"
	cmd.Flags().Var(&mechanism, old, "the old name of --mechanism")
	complete(cmd, old, mechanismNames()...)
	_ = cmd.Flags().MarkDeprecated(old, "use --mechanism") // fails only for an unknown flag
	cmd.MarkFlagsMutuallyExclusive("mechanism", old)
	return cmd
}

func newQOSUnloadCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "unload",
		Short: "Use no more than cpu.idle now",
		Long: `Use no more than cpu.idle now, or the least weight where the kernel has no
cpu.idle: marks, cookies and the scheduler are taken back while everything runs.
The choice holds as that of load does.

Waits up to 5 s for the effect and prints what happened.`,
		Example: "  sudo tenon qos unload",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return g.choose(cmd, control.QOS.Base) },
	}
}

func newQOSAutoCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "auto",
		Short:   "Give the choice back to the configuration",
		Long:    `Take back what load or unload has chosen: the configuration chooses again.`,
		Example: "  sudo tenon qos auto",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.choose(cmd, func(control.QOS) (node.Mechanism, error) { return "", nil })
		},
	}
}

// choose makes tenond use the mechanism, and prints the result. If the
// mechanism is empty, the configuration decides.
func (g *global) choose(cmd *cobra.Command, mechanism func(control.QOS) (node.Mechanism, error)) error {
	refused := func(err error) error { return needRoot("qos "+cmd.Name(), err) }
	agent := g.agent(cmd)
	before, err := agent.QOS(cmd.Context())
	if err != nil {
		return refused(err)
	}
	want, err := mechanism(before)
	if err != nil {
		return refused(err)
	}
	after, err := agent.Pin(cmd.Context(), want)
	if err != nil {
		return refused(err)
	}
	return g.output.print(cmd.OutOrStdout(), after, fmt.Sprintln(after.Outcome()))
}
