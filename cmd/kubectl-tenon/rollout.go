package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/rollouts"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/decide/rollout"
)

// rolloutPage is the page of kubectl tenon rollout. Its data is an empty object without a
// rollout.
type rolloutPage struct {
	*rollout.State
	text string
}

// Text returns the page.
func (p rolloutPage) Text() string { return p.text }

func rolloutCommand(a *access, now func() time.Time) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Print how far batch work has come, and the numbers of each comparison",
		Long: `Prints which stage a rollout is in, and a line for each time at which it was
judged. LONGER is by how much longer services wait for a CPU on nodes that are on
than on the same nodes when they are off, with its BOUNDS. A stage ends when the
upper one is below ASKED. TOTAL is the ratio of all waits, in which a few bad epochs
weigh as much as they last. PAIRS counts pairs of nodes in BLOCKS of two epochs, and
NOISE is how much their ratios scatter (standard deviation of the logarithm).
-o json has the raw values of the stage, and what each service waited.`,
		Example: `  kubectl tenon rollout
  kubectl tenon rollout -o json`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if namespace == "" {
				namespace = "tenon-system"
				if home := managerHome(cmd.Context(), c); home != "" {
					namespace = home
				} else if leases := leasesOf(cmd.Context(), c, schedulers.Manager).Leases; len(leases) > 0 {
					namespace = leases[0].Namespace
				}
			}
			var m corev1.ConfigMap
			switch err := c.Get(cmd.Context(), client.ObjectKey{Namespace: namespace, Name: rollouts.Name}, &m); {
			case apierrors.IsNotFound(err):
				m = corev1.ConfigMap{}
			case err != nil:
				return fmt.Errorf("read ConfigMap %s/%s: %w", namespace, rollouts.Name, err)
			}
			s, err := rollouts.Read(&m)
			if err != nil {
				return err
			}
			page := rolloutPage{text: rollouts.Text(s, now())}
			if s.Phase != "" {
				page.State = &s
			}
			return a.print(cmd, page)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the namespace of tenon-manager (default: that of its webhooks, of its Lease, or tenon-system)")
	return cmd
}
