package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/manager"
	"tenon.sh/tenon/internal/cmdline"
)

func newUninstallCommand(c *command) *cobra.Command {
	agents := cmdline.ObjectName{Namespace: defaultNamespace, Name: "tenond"}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Tenon from the nodes, before the rest of it is deleted",
		Long: `Delete the agents' DaemonSet, wait until each agent has put back what it changed
on its node and has ended, delete the reports, and take the batch resources off
the nodes. The Helm chart does this before it deletes anything.`,
		Example: "  tenon-manager uninstall --daemonset tenon-system/tenond",
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := c.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			rc, err := c.server()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("--timeout is over"))
			defer cancel()
			return manager.Uninstall(ctx, rc, client.ObjectKey(agents), o.Log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "the kubeconfig file; empty: KUBECONFIG, or the service account of the pod")
	f.Var(&agents, "daemonset", "the agents' DaemonSet")
	cmdline.Files(f, "kubeconfig")
	f.DurationVar(&timeout, "timeout", 3*time.Minute, "maximum time until all agents have ended")
	return cmd
}
