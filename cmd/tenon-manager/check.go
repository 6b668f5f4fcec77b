package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/manager"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/config"
)

const (
	// checkAgain is the time between two looks, and lookFor the longest time that one
	// takes.
	checkAgain = 2 * time.Second
	lookFor    = 30 * time.Second
)

// errUnhealthy makes check exit with status 1.
var errUnhealthy = errors.New("a part of Tenon does not work")

func newCheckCommand(c *command) *cobra.Command {
	agents := cmdline.ObjectName{Namespace: defaultNamespace, Name: "tenond"}
	var timeout time.Duration
	webhooks := true
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, the reports of agents, the batch resources and the webhooks",
		Long: `Look until all of this is true, or until the time limit: each node that should have
an agent has a report of it; each of these nodes for which colocation is enabled
has batch resources in its status; the ConfigMap, and the labels and annotations of
these nodes, have no faults; and the webhooks bound a best-effort pod, which is not
stored. "helm test" runs this. The exit status is 1 if something is not so.`,
		Example: "  tenon-manager check --daemonset tenon-system/tenond --timeout 1m",
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rc, err := c.server()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			target := manager.Target{Agents: client.ObjectKey(agents), Config: client.ObjectKey(c.configMap), Webhooks: webhooks}
			found, err := awaitHealth(ctx, func(ctx context.Context) (manager.Installation, error) { return manager.Check(ctx, rc, target) })
			if err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), installation(found, webhooks))
			if !found.Healthy() {
				return errUnhealthy
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "the kubeconfig file; empty: KUBECONFIG, or the service account of the pod")
	f.Var(&agents, "daemonset", "the agents' DaemonSet")
	cmdline.Files(f, "kubeconfig")
	c.configMap.AddConfigMap(cmd)
	f.BoolVar(&webhooks, "webhooks", true, "the webhooks should answer")
	f.DurationVar(&timeout, "timeout", 2*time.Minute, "maximum time until all of it is true; at least one look is made")
	return cmd
}

// awaitHealth looks until what it finds is healthy, or until ctx ends. It returns the
// result of the last look, which the end of ctx does not cut short.
func awaitHealth(ctx context.Context, look func(context.Context) (manager.Installation, error)) (manager.Installation, error) {
	for {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
		found, err := look(one)
		cancel()
		if err == nil && found.Healthy() {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, err
		case <-time.After(checkAgain):
		}
	}
}

// installation prints what a check found, a line for each part, and one for each fault of
// the configuration.
func installation(i manager.Installation, webhooks bool) string {
	var b strings.Builder
	line := func(part string, good, all int, what string, lacks []string) {
		fmt.Fprintf(&b, "%-16s  %d of %d nodes %s", part, good, all, what)
		if len(lacks) > 0 {
			fmt.Fprintf(&b, "; not %s", strings.Join(lacks, ", "))
		}
		b.WriteString("\n")
	}
	line("agents", len(i.Agents), i.Wanted, "have one", nil)
	line("reports", len(i.Agents)-len(i.Silent), len(i.Agents), "have one", i.Silent)
	line("batch resources", len(i.Offering)-len(i.Bare), len(i.Offering), "have them where colocation is enabled", i.Bare)
	refused := func(where string, faults []config.Fault) {
		for _, f := range faults {
			fmt.Fprintf(&b, "%-16s  %s: %v\n", "configuration", where, f)
		}
	}
	refused("ConfigMap", i.ConfigFaults)
	for _, name := range slices.Sorted(maps.Keys(i.NodeFaults)) {
		refused("node "+name, i.NodeFaults[name])
	}
	if len(i.ConfigFaults)+len(i.NodeFaults) == 0 {
		fmt.Fprintf(&b, "%-16s  no faults\n", "configuration")
	}
	switch {
	case !webhooks:
	case i.Webhook != nil:
		fmt.Fprintf(&b, "%-16s  %v\n", "webhooks", i.Webhook)
	default:
		fmt.Fprintf(&b, "%-16s  bounded a best-effort pod, which was not stored\n", "webhooks")
	}
	return b.String()
}
