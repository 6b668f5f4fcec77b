package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
)

// access selects the cluster in the same way as kubectl.
type access struct{ kubeconfig, context string }

func newRootCommand(now func() time.Time) *cobra.Command {
	var a access
	root := &cobra.Command{
		Use:   "kubectl-tenon",
		Short: "Show Tenon on the nodes of a cluster",
		Long: `Prints what the agents of Tenon report: kubectl tenon top, kubectl tenon explain
node NAME, kubectl tenon doctor. It needs the right to list nodes and
nodereports.tenon.sh, and for doctor clustercolocationprofiles.config.koordinator.sh.
It changes nothing.`,
		Example: `  kubectl tenon top
  kubectl tenon explain node worker-1     # its batch resources, term by term, and its trials
  kubectl tenon explain isolation         # what trials of isolation found, on all nodes
  kubectl tenon doctor                    # what is not done as asked, and where`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenon"},
		Version:       versionOf(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.kubeconfig, "kubeconfig", "", "the kubeconfig file (default: that of kubectl)")
	root.PersistentFlags().StringVar(&a.context, "context", "", "the context of that file (default: the current one)")
	root.AddCommand(topCommand(&a, now), explainCommand(&a, now), doctorCommand(&a, now))
	return root
}

func versionOf() string {
	if version == "" {
		return "unknown"
	}
	return version
}

func topCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Print the use and the batch resources of each node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := a.nodes(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), nodepages.Top(nodes, now()))
			return err
		},
	}
}

func explainCommand(a *access, now func() time.Time) *cobra.Command {
	explain := &cobra.Command{Use: "explain", Short: "Explain the decisions about a node"}
	explain.AddCommand(&cobra.Command{
		Use:   "node NAME",
		Short: "Print the batch resources of a node, term by term, and its trials of isolation",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := a.nodes(cmd.Context())
			if err != nil {
				return err
			}
			var known []string
			for _, n := range nodes {
				if n.Name == args[0] {
					_, err = fmt.Fprint(cmd.OutOrStdout(), nodepages.Explain(n, now()))
					return err
				}
				known = append(known, n.Name)
			}
			return fmt.Errorf("there is no node %q: the cluster has %s", args[0], listed(known))
		},
	})
	explain.AddCommand(&cobra.Command{
		Use:   "isolation",
		Short: "Print what trials of isolation mechanisms found on each node and on all together",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := a.nodes(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), nodepages.Isolation(nodes, now()))
			return err
		},
	})
	return explain
}

// errUnhealthy makes doctor exit with status 1.
var errUnhealthy = errors.New("not all nodes do what their configuration asks")

func doctorCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Print the mechanisms of each feature on the nodes, and the problems; status 1 if there are any",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := a.nodes(cmd.Context())
			if err != nil {
				return err
			}
			profiles, err := a.profiles(cmd.Context())
			switch {
			case apierrors.IsForbidden(err):
				fmt.Fprintf(cmd.ErrOrStderr(), "the colocation profiles are not checked: %v\n", err)
			case err != nil:
				return err
			}
			text, healthy := nodepages.Doctor(nodes, profiles, now())
			if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil {
				return err
			}
			if !healthy {
				return errUnhealthy
			}
			return nil
		},
	}
}

// client returns a client for nodes, reports and profiles.
func (a *access) client() (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	found, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), configv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	// With a fixed list of kinds, the client need not ask the API server for
	// them.
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	kinds.Add(v1alpha1.GroupVersion.WithKind("NodeReport"), meta.RESTScopeRoot)
	kinds.Add(configv1alpha1.GroupVersion.WithKind("ClusterColocationProfile"), meta.RESTScopeRoot)
	c, err := client.New(found, client.Options{Scheme: scheme, Mapper: kinds})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return c, nil
}

// profiles reads the colocation profiles. A cluster without that kind has none.
func (a *access) profiles(ctx context.Context) ([]configv1alpha1.ClusterColocationProfile, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	var profiles configv1alpha1.ClusterColocationProfileList
	if err := c.List(ctx, &profiles); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list the colocation profiles: %w", err)
	}
	return profiles.Items, nil
}

// nodes reads all nodes and their reports.
func (a *access) nodes(ctx context.Context) ([]nodepages.Node, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	var reports v1alpha1.NodeReportList
	if err := c.List(ctx, &reports); err != nil {
		return nil, fmt.Errorf("list nodereports.tenon.sh, which Tenon's chart brings: %w", err)
	}
	return nodepages.Nodes(nodes.Items, reports.Items), nil
}

func listed(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
