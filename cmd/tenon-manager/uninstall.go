package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/manager"
)

func newUninstallCommand(c *command) *cobra.Command {
	var agents string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Tenon from the nodes, before the rest of it is deleted",
		Long: `Delete the agents' DaemonSet, wait until each agent has put back what it changed
on its node and has ended, delete the reports, and take the batch resources off
the nodes. The Helm chart does this before it deletes anything.`,
		Example: "  tenon-manager uninstall --daemonset tenon-system/tenond",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("tenon-manager uninstall takes no argument, got %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, name, both := strings.Cut(agents, "/")
			if !both || namespace == "" || name == "" || strings.Contains(name, "/") {
				return usageError{fmt.Errorf("--daemonset %q: want NAMESPACE/NAME", agents)}
			}
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
			return manager.Uninstall(ctx, rc, client.ObjectKey{Namespace: namespace, Name: name}, o.Log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "the kubeconfig file; empty: KUBECONFIG, or the service account of the pod")
	f.StringVar(&agents, "daemonset", defaultNamespace+"/tenond", "the agents' DaemonSet, as NAMESPACE/NAME")
	f.DurationVar(&timeout, "timeout", 3*time.Minute, "maximum time until all agents have ended")
	return cmd
}
