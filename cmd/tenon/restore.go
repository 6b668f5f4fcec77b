package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/host"
)

func newRestoreCommand(g *global) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Put every kernel knob back",
		Long: `Put every kernel knob that Tenon wrote back to its value from before, from the
journal. Works after kill -9 and without any daemon.

A knob that somebody else has changed since is left alone. Groups that Tenon
made are removed when they are empty. A command started by tenon run is never
ended: the group that it is in stays and is reported. Processes that a lab
started, and that outlived it, are ended.`,
		Example: `  sudo tenon restore
  sudo tenon restore --dry-run -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := host.Open(host.Options{JournalDir: g.stateDir})
			if err != nil {
				return needRoot("restore", err)
			}
			defer h.Close()
			restore := h.Restore
			if dryRun {
				restore = h.RestorePlan
			}
			report, err := restore(cmd.Context())
			if printed := g.output.print(cmd.OutOrStdout(), report, restored(report, dryRun)); printed != nil {
				return printed
			}
			return needRoot("restore", err)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done and do nothing")
	return cmd
}

// restored is the report as text.
func restored(r host.Report, dryRun bool) string {
	switch {
	case r.Empty():
		return "Nothing to restore: Tenon has left nothing behind.\n"
	case dryRun:
		return "Dry run, nothing is written:\n" + r.String()
	}
	return r.String()
}

// needRoot turns a refusal by the kernel into what to do about it.
func needRoot(command string, err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%s needs root: run sudo tenon %s (%w)", command, command, err)
	}
	return err
}
