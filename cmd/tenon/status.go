package main

import (
	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
)

func newStatusCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the workloads of tenond, the use of the node, and the last writes",
		Example: `  sudo tenon status
  sudo tenon status -o json | jq '.workloads[] | select(.class == "BE") | .id'`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := g.agent().Status(cmd.Context())
			if err != nil {
				return needRoot("status", err)
			}
			return g.output.Print(cmd.OutOrStdout(), s, s.String())
		},
	}
}
