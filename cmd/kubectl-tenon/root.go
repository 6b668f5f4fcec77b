package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/survey"
)

func newRootCommand(now func() time.Time) *cobra.Command {
	var a access
	root := &cobra.Command{
		Use:   "kubectl-tenon",
		Short: "Show Tenon on the nodes of a cluster",
		Long: `Prints what the agents of Tenon report, and where pods that ask for CPUs have
them or would get them. It needs the right to list nodes, pods and
nodereports.tenon.sh, and for doctor and fit clustercolocationprofiles.config.koordinator.sh;
for fit also namespaces and priority classes, if there are profiles. It changes
nothing.`,
		Example: `  kubectl tenon top
  kubectl tenon explain node worker-1     # its batch resources, term by term, and its trials
  kubectl tenon explain isolation         # what trials of isolation found, on all nodes
  kubectl tenon explain pod db-0          # its CPUs, or node by node why it has none
  kubectl tenon fit db.yaml               # where the pods of a manifest would go
  kubectl tenon map worker-1              # the CPUs of a node and their owners
  kubectl tenon doctor                    # what is not done as asked, and where`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenon"},
		Version:       versionOf(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.kubeconfig, "kubeconfig", "", "the kubeconfig file (default: that of kubectl)")
	root.PersistentFlags().StringVar(&a.context, "context", "", "the context of that file (default: the current one)")
	root.AddCommand(topCommand(&a, now), explainCommand(&a, now), doctorCommand(&a, now), fitCommand(&a, now), mapCommand(&a, now))
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
		Short: "Print the use and the batch resources of each node, and which of its cores pods own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := a.nodes(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), nodepages.Top(nodes, now()), survey.New(nodes, nil, now()).Lines())
			return err
		},
	}
}

func explainCommand(a *access, now func() time.Time) *cobra.Command {
	explain := &cobra.Command{Use: "explain", Short: "Explain the decisions about a node or a pod"}
	explain.AddCommand(explainPodCommand(a, now), &cobra.Command{
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
