package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/podpages"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/cmdline"
)

func newRootCommand(now func() time.Time) *cobra.Command {
	var a access
	root := &cobra.Command{
		Use:   "kubectl-tenon",
		Short: "Show Tenon on the nodes of a cluster",
		Long: `Prints what the agents of Tenon report, and where pods that ask for CPUs have
them or would get them. It changes nothing. It needs the right to list nodes and
nodereports.tenon.sh, as the ClusterRole tenon-viewer has it, and for pods the
right to read them. What it may not read, it names: nodes or reports, pods of
other namespaces, colocation profiles (doctor, fit), namespaces and priority
classes (fit, if there are profiles), and Leases and events, which show whether a
scheduler runs. fit also asks the API server to create the pods without storing them (dry
run), which needs the right to create pods.

The exit status is 1 after a failure and if the answer of doctor or fit is no,
and 2 if the command line has an error.`,
		Example: `  kubectl tenon top
  kubectl tenon explain node worker-1     # its batch resources, term by term, its CPUs and its trials
  kubectl tenon explain isolation         # what trials of isolation found, on all nodes
  kubectl tenon explain pod db-0          # its CPUs, or node by node why it has none
  kubectl tenon fit -f db.yaml            # where the pods of a manifest would go
  kubectl tenon translate -f job.yaml     # the manifest with batch resources, as the webhook would change it
  kubectl tenon objectives                # which services keep their objectives
  kubectl tenon report                    # how much batch work the nodes could have run, and the risk
  kubectl tenon rollout                   # how far batch work has come, and what the comparisons found
  kubectl tenon map worker-1              # the CPUs of a node and their owners
  kubectl tenon doctor                    # what is not done as asked, and where`,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenon"},
	}
	a.addFlags(root.PersistentFlags())
	a.completeFlags(root)
	cmdline.GroupFlags(root.PersistentFlags(), cmdline.FlagGroup{Title: "Cluster and user"})
	top, doctor, fit, cpus, objectives := topCommand(&a, now), doctorCommand(&a, now), fitCommand(&a, now), mapCommand(&a, now), objectivesCommand(&a, now)
	report, promoted := reportCommand(&a, now), rolloutCommand(&a, now)
	a.output.Add(top, doctor, fit, cpus, objectives, report, promoted) // explain adds its own
	cmdline.AddGroups(root,
		cmdline.CommandGroup{Title: "Look", Commands: []*cobra.Command{top, cpus, objectives, report, promoted}},
		cmdline.CommandGroup{Title: "Explain", Commands: []*cobra.Command{doctor, explainCommand(&a, now)}},
		cmdline.CommandGroup{Title: "Try", Commands: []*cobra.Command{fit, translateCommand(&a)}})
	cmdline.Prepare(root, cmdline.Version(version))
	root.SetFlagErrorFunc(flagError)
	return root
}

func topCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Print the use and the batch resources of each node, and which of its cores pods own",
		Example: `  kubectl tenon top
  kubectl tenon top -o yaml`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, _, err := a.seenNodes(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			l := listing[nodepages.NodeData]{text: nodepages.Top(nodes, now()) + podpages.New(nodes, nil, now()).Lines()}
			for _, n := range nodes {
				l.Nodes = append(l.Nodes, n.Data(now()))
			}
			if l.Unattended, err = a.unattended(cmd.Context(), cmd.ErrOrStderr(), now()); err != nil {
				return err
			}
			if len(l.Unattended) > 0 {
				l.text += "\n" + strings.Join(l.Unattended, "\n") + "\n"
			}
			return a.print(cmd, l)
		},
	}
}

// unattended returns a line for each scheduler that does not handle the pods
// that wait for it. errOut gets a message about what the user may not list.
func (a *access) unattended(ctx context.Context, errOut io.Writer, now time.Time) ([]string, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	pods, err := pendingPods(ctx, c)
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintf(errOut, "the waiting pods are not checked: %v\n", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the waiting pods: %w", err)
	}
	found := schedulersOf(ctx, c, schedulers.WaitingFor(pods), now)
	for _, s := range found {
		if unknown := s.Unknown(now); unknown != "" {
			fmt.Fprintf(errOut, "it is not known whether scheduler %s, for which pods wait, runs: %s\n", printable.Text(s.Name), printable.Text(unknown))
		}
	}
	return schedulers.Unattended(pods, found, now), nil
}

// errUnhealthy makes doctor exit with status 1.
var errUnhealthy = errors.New("doctor found problems")

func doctorCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Print the problems of a cluster, and how each feature works on its nodes",
		Long: `Prints how each feature works on which nodes, and the problems of the cluster (for
what the kernel of one machine can do, see tenon doctor): what is configured
and not in force, pods that a colocation profile missed, pods that ask for CPUs
and have none on their node, pods that wait for a scheduler that does not run,
pods of class SYSTEM in namespaces that may not have them, quotas that never
count, autoscalers and Jobs of Kueue that do not work with batch work, and that tenon-manager does not run. The exit status is 1 if there is a problem.`,
		Example: `  kubectl tenon doctor
  kubectl tenon doctor -o json | jq -r '.problems[].text'`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, _, err := a.seenNodes(cmd.Context(), cmd.ErrOrStderr())
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
			others, err := a.otherProblems(cmd.Context(), cmd.ErrOrStderr(), nodes, now())
			if err != nil {
				return err
			}
			d := nodepages.Doctor(nodes, profiles, others, now())
			if err := a.print(cmd, d); err != nil {
				return err
			}
			if !d.Healthy {
				return errUnhealthy
			}
			return nil
		},
	}
}

// otherProblems returns the problems that no condition of a node or profile has.
// What could not be read is written to errOut.
func (a *access) otherProblems(ctx context.Context, errOut io.Writer, nodes []nodepages.Node, now time.Time) ([]string, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	var all []string
	if nodepages.HasRefused(nodes) {
		names, err := namesByUID(ctx, c)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list the pods of all namespaces: %w", err)
		}
		all = nodepages.Refused(nodes, names)
	}
	waiting, err := a.unattended(ctx, errOut, now)
	if err != nil {
		return nil, err
	}
	all = append(all, waiting...)
	all = append(all, tenantProblems(ctx, c, errOut)...)
	all = append(all, a.neighbourProblems(ctx, c, errOut)...)
	absent, unknown := managerAbsence(ctx, c, now)
	if unknown != "" {
		fmt.Fprintf(errOut, "it is not known whether tenon-manager runs: %s\n", unknown)
	}
	if absent != "" {
		all = append(all, absent+"; "+schedulers.WithoutManager)
	}
	return all, nil
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
