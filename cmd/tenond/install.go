package main

import (
	"errors"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/install"
	"tenon.sh/tenon/internal/cmdline"
)

func newInstallCommand() *cobra.Command {
	var s install.Service
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install tenond as a systemd service and start it",
		Long: `Write the units tenond.service and tenond-watchdog.service, and the default
configuration where there is none; then enable and start them. The units run the
program that this command was started from: copy it to /usr/local/bin first. The
service sees neither home directories nor /tmp. Units that run already are
restarted, so that an upgrade needs nothing else.`,
		Example: `  sudo install bin/tenond /usr/local/bin/ && sudo tenond install
  sudo /mnt/image/usr/bin/tenond install --root /mnt/image   # prepare an image, start nothing`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.Out = cmd.OutOrStdout()
			err := s.Install(cmd.Context())
			if errors.As(err, new(install.ConfigError)) {
				return faultsError{err}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&s.Config, "config", defaultConfig, "the configuration file")
	cmd.Flags().StringVar(&s.Root, "root", "", "prepare the tree below this directory instead of the running system")
	cmdline.Files(cmd.Flags(), "config")
	cmdline.Dirs(cmd.Flags(), "root")
	return cmd
}

func newUninstallCommand(g *global) *cobra.Command {
	var s install.Service
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop and remove the systemd service, and put every knob back",
		Long: `Stop and remove the systemd service, and put every knob back that Tenon has
changed. The configuration file stays.`,
		Example: "  sudo tenond uninstall",
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.Out = cmd.OutOrStdout()
			return s.Uninstall(cmd.Context(), g.stateDir)
		},
	}
	cmd.Flags().StringVar(&s.Root, "root", "", "clear the tree below this directory instead of the running system")
	cmdline.Dirs(cmd.Flags(), "root")
	return cmd
}
