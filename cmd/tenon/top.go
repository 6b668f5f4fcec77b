package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/top"
	"tenon.sh/tenon/internal/cmdline"
)

func newTopCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Show live who uses the CPUs, and what Tenon does about it",
		Long: `Show live who uses the CPUs, by class; the workloads; what holds best-effort work
back; and what Tenon wrote last, and why. Press ? for the keys. It fits a
terminal of 80 by 24, works over ssh, and needs no colours (NO_COLOR=1).`,
		Example: "  sudo tenon top",
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isTerminal(os.Stdout) || !isTerminal(os.Stdin) {
				return errors.New("tenon top needs a terminal: tenon status prints one moment of it")
			}
			agent := g.agent()
			// Check the connection first: an error must be printed before the program
			// takes over the screen.
			if _, err := agent.Status(cmd.Context()); err != nil {
				return needRoot("top", err)
			}
			return top.Run(cmd.Context(), agent, os.Stdin, os.Stdout)
		},
	}
}
