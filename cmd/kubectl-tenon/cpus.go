package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cluster/survey"
)

func explainPodCommand(a *access, now func() time.Time) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "Print which CPUs a pod has and who chose them, or node by node why it has none",
		Example: `  kubectl tenon explain pod db-0
  kubectl tenon explain pod db-0 -n shop
  kubectl tenon explain pod shop/db-0`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if before, after, both := strings.Cut(name, "/"); both {
				namespace, name = before, after
			}
			space, err := a.namespace(namespace)
			if err != nil {
				return err
			}
			c, err := a.cluster(cmd.Context(), now())
			if err != nil {
				return err
			}
			text, found := c.ExplainPod(space, name)
			if !found {
				return fmt.Errorf("there is no pod %q in namespace %s", name, space)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the namespace of the pod (default: that of the context)")
	return cmd
}

// errNoRoom makes fit exit with status 1.
var errNoRoom = errors.New("not all pods would find a place")

func fitCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:   "fit FILE...",
		Short: "Print where the pods of manifests would go, and which CPUs they would get; status 1 if one would wait",
		Long: `Places the pods of manifests one after the other on the cluster as it is now, by
the functions of tenon-scheduler, and prints node and CPUs of each. It creates
nothing. It reads pods, and objects that make pods from a template, such as a
Deployment, and applies the ClusterColocationProfiles that match. FILE may be -,
for standard input.`,
		Example: `  kubectl tenon fit db.yaml
  kubectl tenon fit db.yaml web.yaml && kubectl apply -f db.yaml -f web.yaml
  helm template shop ./shop | kubectl tenon fit -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var wanted []survey.Wanted
			for _, name := range args {
				found, err := manifests(cmd.InOrStdin(), name)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				wanted = append(wanted, found...)
			}
			if len(wanted) == 0 {
				return fmt.Errorf("%s: no object with pods", strings.Join(args, ", "))
			}
			c, err := a.cluster(cmd.Context(), now())
			if err != nil {
				return err
			}
			text, fits := c.Fit(wanted, a.webhook(cmd.Context()))
			if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil {
				return err
			}
			if !fits {
				return errNoRoom
			}
			return nil
		},
	}
}

func manifests(in io.Reader, name string) ([]survey.Wanted, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return survey.Read(in)
}

func mapCommand(a *access, now func() time.Time) *cobra.Command {
	var svg, page string
	cmd := &cobra.Command{
		Use:   "map NODE",
		Short: "Print the sockets, NUMA nodes, L3 caches and cores of a node with the pods that hold them",
		Example: `  kubectl tenon map worker-1
  kubectl tenon map worker-1 --svg worker-1.svg
  kubectl tenon map worker-1 --html worker-1.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.cluster(cmd.Context(), now())
			if err != nil {
				return err
			}
			m, err := c.Map(args[0])
			if err != nil {
				return fmt.Errorf("%w (the cluster has %s)", err, listed(c.Names()))
			}
			if svg == "" && page == "" {
				_, err = fmt.Fprint(cmd.OutOrStdout(), m.Text())
				return err
			}
			for name, text := range map[string]string{svg: m.SVG(), page: m.HTML()} {
				if name == "" {
					continue
				}
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "write a picture to this file instead")
	cmd.Flags().StringVar(&page, "html", "", "write a page with the picture to this file instead")
	return cmd
}
