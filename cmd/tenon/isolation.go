package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/model/node"
)

func newIsolationCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "isolation",
		Short: "Show and choose the mechanism that isolates best-effort work on the CPU",
		Long: `Show and choose the mechanism that keeps best-effort work off the CPUs of
latency-sensitive work. The mechanisms, from the strongest to the weakest:

  ` + mechanismNames() + `

tenond begins with the one that its configuration names, or with weight, and
keeps a stronger one that a trial has shown to help. set selects a mechanism
while tenond runs; auto ends that selection.`,
		Example: `  sudo tenon isolation show
  sudo tenon isolation set sched_ext
  sudo tenon isolation auto`,
	}
	show, set, auto := newIsolationShowCommand(g), newIsolationSetCommand(g), newIsolationAutoCommand(g)
	g.agentFlag(show, set, auto)
	g.output.Add(show, set, auto)
	cmd.AddCommand(show, set, auto)
	return cmd
}

func newIsolationShowCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the mechanism in use, the reason, and its effects",
		Long: `Show the isolation mechanism in use, since when and why; which mechanisms the
node supports, and why it does not support the others; the counters of the BE
scheduler: run time by class, expels, the CPU that stays idle for
latency-sensitive work, waits, strays and exits; and the failures of mechanisms in
the last hour.`,
		Example: `  sudo tenon isolation show
  sudo tenon isolation show -o json | jq -r .selection.mechanism`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := g.agent().QOS(cmd.Context())
			if err != nil {
				return needRoot("isolation show", err)
			}
			return g.output.Print(cmd.OutOrStdout(), q, q.String())
		},
	}
}

// strongest is the word for the strongest mechanism that the node supports.
const strongest = "strongest"

// choices lists the arguments of tenon isolation set.
func choices() []string {
	return append([]string{strongest}, strings.Split(mechanismNames(), ", ")...)
}

// mechanismNames lists the mechanisms in one line.
func mechanismNames() string {
	names := make([]string, len(node.Mechanisms))
	for i, r := range node.Mechanisms {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

func newIsolationSetCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "set MECHANISM",
		Short: "Use a mechanism now, instead of the choice of the configuration",
		Long: `Use a mechanism now, instead of the choice of the configuration:

  ` + mechanismNames() + `

even if it failed too often and is not tried for now; or strongest, the strongest
that the node supports.
With cpu.idle or weight, marks, cookies and the scheduler are taken back while
everything runs. The choice holds until tenon isolation auto or another set, or
until the node boots; a tenond that starts again keeps it. Nothing is interrupted.

Waits up to 5 s for the effect and prints what happened.`,
		Example: `  sudo tenon isolation set core_sched
  sudo tenon isolation set strongest
  sudo tenon isolation set cpu.idle`,
		Args: func(cmd *cobra.Command, args []string) error {
			got := "no mechanism"
			if len(args) > 0 {
				got = fmt.Sprintf("%q", strings.Join(args, " "))
			}
			if len(args) != 1 || !slices.Contains(choices(), args[0]) {
				return cmdline.Usagef("%s: %s: want one of %s", cmd.CommandPath(), got, strings.Join(choices(), ", "))
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(choices(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.choose(cmd, func(q control.QOS) (node.Mechanism, error) {
				if args[0] == strongest {
					return q.Best()
				}
				return node.Mechanism(args[0]), nil
			})
		},
	}
}

func newIsolationAutoCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "auto",
		Short:   "Give the choice back to the configuration",
		Long:    `Take back what set has chosen: the configuration chooses again.`,
		Example: "  sudo tenon isolation auto",
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.choose(cmd, func(control.QOS) (node.Mechanism, error) { return "", nil })
		},
	}
}

// choose makes tenond use the mechanism, and prints the result. If the
// mechanism is empty, the configuration decides.
func (g *global) choose(cmd *cobra.Command, mechanism func(control.QOS) (node.Mechanism, error)) error {
	refused := func(err error) error { return needRoot("isolation "+cmd.Name(), err) }
	agent := g.agent()
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
	return g.output.Print(cmd.OutOrStdout(), after, fmt.Sprintln(after.Outcome()))
}
