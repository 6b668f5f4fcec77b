package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/cmdline"
)

func explainCommand(a *access, now func() time.Time) *cobra.Command {
	explain := &cobra.Command{
		Use:   "explain",
		Short: "Explain the decisions about a node or a pod",
		Example: `  kubectl tenon explain node worker-1
  kubectl tenon explain isolation
  kubectl tenon explain pod db-0 -n shop
  kubectl tenon explain pod/db-0`,
	}
	pod, node := &podQuestion{access: a, now: now}, nodeCommand(a, now)
	ofPod, isolation := podCommand(pod), isolationCommand(a, now)
	a.output.Add(explain, ofPod, node, isolation)
	explain.AddCommand(ofPod, node, isolation)
	// pod/db-0 and node/worker-1 are single words, and not commands. In this case,
	// the flags of explain pod belong to explain.
	named := func(args []string) bool {
		return len(args) == 1 && (cutKind(args[0], podWords) != args[0] || cutKind(args[0], nodeWords) != args[0])
	}
	explain.Args = func(cmd *cobra.Command, args []string) error {
		if named(args) {
			return nil
		}
		if len(args) == 1 {
			if err := refuseMaker(cmd, args[0], ""); err != nil {
				return err
			}
		}
		return cmdline.Known("command")(cmd, args)
	}
	explain.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !named(args):
			return cmd.Help()
		case cutKind(args[0], podWords) != args[0]:
			return pod.answer(cmd, args[0])
		}
		return node.RunE(cmd, args)
	}
	pod.addFlags(explain)
	return explain
}

// A podQuestion contains the command line of explain pod.
type podQuestion struct {
	*access
	now       func() time.Time
	namespace string
}

func (q *podQuestion) addFlags(cmd *cobra.Command) {
	q.addNamespace(cmd, &q.namespace, "the namespace of the pod")
}

// addNamespace adds the flag -n to a command.
func (a *access) addNamespace(cmd *cobra.Command, namespace *string, what string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", what+" (default: that of the context)")
	cmdline.CompleteFrom(cmd, "namespace", a.namespaces)
}

func podCommand(q *podQuestion) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "Print which CPUs a pod has and who chose them, or node by node why it has none",
		Long: `Prints which CPUs a pod has and who chose them. For a pod without a node, it
prints what its scheduler says, whether that scheduler runs, and why each node
does not take the pod.`,
		Example: `  kubectl tenon explain pod db-0
  kubectl tenon explain pod db-0 -n shop
  kubectl tenon explain pod shop/db-0
  kubectl tenon explain pod db-0 -o json`,
		Args:              cmdline.OneArg("pod"),
		ValidArgsFunction: q.completePod,
		RunE:              func(cmd *cobra.Command, args []string) error { return q.answer(cmd, args[0]) },
	}
	q.addFlags(cmd)
	return cmd
}

// answer prints the page of a pod.
func (q *podQuestion) answer(cmd *cobra.Command, text string) error {
	if err := refuseMaker(cmd, text, q.namespace); err != nil {
		return err
	}
	namespace, name, err := podName(text, q.namespace)
	if err != nil {
		return err
	}
	if namespace, err = q.access.namespace(namespace); err != nil {
		return err
	}
	c, err := q.cluster(cmd.Context(), cmd.ErrOrStderr(), namespace, name, q.now())
	if err != nil {
		return err
	}
	p := c.Pod(namespace, name)
	if p == nil {
		if q.lacksNamespace(cmd.Context(), namespace) {
			return fmt.Errorf("there is no namespace %q", namespace)
		}
		return fmt.Errorf("there is no pod %q in namespace %s", name, namespace)
	}
	var seen schedulers.Seen
	if schedulers.IsWaiting(p) {
		if seen, err = q.seen(cmd.Context(), p, q.now()); err != nil {
			return err
		}
	}
	found, _ := c.ExplainPod(namespace, name, seen)
	if found.Wait != nil && kube.HasBatchGate(p) {
		if found.Wait.NoManager, err = q.noManager(cmd.Context()); err != nil {
			return err
		}
	}
	return q.print(cmd, found)
}

// noManager returns why nothing opens the gates of batch pods, or "" if tenon-manager
// runs, or if this is not known.
func (q *podQuestion) noManager(ctx context.Context) (string, error) {
	c, err := q.client()
	if err != nil {
		return "", err
	}
	absent, _ := managerAbsence(ctx, c, q.now())
	return absent, nil
}

// lacksNamespace reports whether a namespace is known not to exist.
func (a *access) lacksNamespace(ctx context.Context, name string) bool {
	c, err := a.client()
	if err != nil {
		return false
	}
	return apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
}

func nodeCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:               "node NAME",
		Short:             "Print the batch resources of a node, term by term, its CPUs for pods, and its trials of isolation",
		Example:           `  kubectl tenon explain node worker-1`,
		Args:              cmdline.OneArg("node"),
		ValidArgsFunction: a.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, lacks, err := a.seenNodes(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			name := cutKind(args[0], nodeWords)
			for _, n := range nodes {
				if n.Name == name {
					return a.output.Print(cmd.OutOrStdout(), n.Data(now()), nodepages.Explain(n, now()))
				}
			}
			if lacks.Nodes != "" {
				return fmt.Errorf("there is no report of a node %q: reports are there of %s", name, listed(namesOf(nodes)))
			}
			return fmt.Errorf("there is no node %q: the cluster has %s", name, listed(namesOf(nodes)))
		},
	}
}

func isolationCommand(a *access, now func() time.Time) *cobra.Command {
	return &cobra.Command{
		Use:     "isolation",
		Short:   "Print what trials of isolation mechanisms found on each node and on all together",
		Example: `  kubectl tenon explain isolation`,
		Args:    cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, _, err := a.seenNodes(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			l := listing[nodepages.TrialData]{text: nodepages.Isolation(nodes, now())}
			for _, n := range nodes {
				l.Nodes = append(l.Nodes, n.TrialData(now()))
			}
			return a.print(cmd, l)
		},
	}
}

func namesOf(nodes []nodepages.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}
