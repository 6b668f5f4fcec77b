package main

import (
	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/machine/journal"
)

func newStatusCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the workloads of tenond, the use of the node, and the last writes",
		Example: `  sudo tenon status
  sudo tenon status -o json | jq '.workloads[] | select(.class == "BE") | .id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := g.agent(cmd).Status(cmd.Context())
			if err != nil {
				return needRoot("status", err)
			}
			return g.output.print(cmd.OutOrStdout(), s, s.String())
		},
	}
}

// agent returns the client of tenond. By default, all users connect to the
// tenond of root.
func (g *global) agent(cmd *cobra.Command) *control.Client {
	return control.NewClient(g.agentDir(cmd))
}

// agentDir returns the state directory of tenond.
func (g *global) agentDir(cmd *cobra.Command) string {
	if cmd.Flags().Changed("state-dir") {
		return g.stateDir
	}
	return journal.DefaultDir
}
