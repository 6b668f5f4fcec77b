package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/watchdog"
	"tenon.sh/tenon/internal/cmdline"
)

func newWatchdogCommand(g *global) *cobra.Command {
	var stay, last bool
	cmd := &cobra.Command{
		Use:   "watchdog",
		Short: "Narrow best-effort work when tenond dies or hangs",
		Long: `Watch the lease that tenond renews twice a second. When it runs out, because
tenond was killed, hangs or was stopped, bring best-effort work within the safe
bounds that stand in the lease. tenond starts its own watchdog; as a systemd
service the watchdog is a unit beside it.`,
		Example: "  sudo tenond watchdog --stay",
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			err := watchdog.Run(ctx, g.stateDir, stay, last, g.log.Logger(cmd.ErrOrStderr()))
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&stay, "stay", false, "wait for the next tenond when there is nothing to guard")
	cmd.Flags().BoolVar(&last, "last", false, "no other watchdog follows this one: when it is stopped, narrow best-effort work at once unless tenond lives")
	return cmd
}
