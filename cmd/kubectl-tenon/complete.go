package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cmdline"
)

// completeFlags sets what a shell offers for the flags of kubectl. A cluster or a
// kubeconfig that cannot be read offers nothing: a shell has no place for an error.
func (a *access) completeFlags(root *cobra.Command) {
	cmdline.Files(root.PersistentFlags(), "kubeconfig", "certificate-authority", "client-certificate", "client-key")
	for flag, names := range map[string]func(*clientcmdapi.Config) []string{
		"context": func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) },
		"cluster": func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Clusters)) },
		"user":    func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.AuthInfos)) },
	} {
		cmdline.CompleteFrom(root, flag, func(context.Context) []string {
			found, err := a.config().RawConfig()
			if err != nil {
				return nil
			}
			return names(&found)
		})
	}
}

// namespaces returns the namespaces for a shell.
func (a *access) namespaces(ctx context.Context) []string {
	c, err := a.client()
	if err != nil {
		return nil
	}
	var all corev1.NamespaceList
	if err := c.List(ctx, &all); err != nil {
		return nil
	}
	var names []string
	for _, n := range all.Items {
		names = append(names, n.Name)
	}
	return names
}

// completePod completes the name of a pod of the namespace.
func (q *podQuestion) completePod(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	namespace, err := q.access.namespace(q.namespace)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := q.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var pods corev1.PodList
	if err := c.List(cmd.Context(), &pods, client.InNamespace(namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return beginning(names, begun), cobra.ShellCompDirectiveNoFileComp
}

// completeNode completes the name of a node.
func (a *access) completeNode(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	nodes, _, err := a.nodes(cmd.Context())
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(namesOf(nodes), begun), cobra.ShellCompDirectiveNoFileComp
}

// beginning returns the names that begin with a text.
func beginning(names []string, begun string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begun) })
}
