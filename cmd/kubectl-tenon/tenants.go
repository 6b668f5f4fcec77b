package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/model/node"
)

// tenantProblems returns the problems of namespaces: pods of class SYSTEM that
// are older than the right to it, and quotas that never count. What could not be
// read is written to errOut.
func tenantProblems(ctx context.Context, c client.Client, errOut io.Writer) []string {
	return append(systemPods(ctx, c, errOut), uncountedQuotas(ctx, c, errOut)...)
}

// systemPods returns a line for each namespace with pods of class SYSTEM that may
// not have them.
func systemPods(ctx context.Context, c client.Client, errOut io.Writer) []string {
	unread := func(what string, err error) []string {
		fmt.Fprintf(errOut, "it is not known whether pods have class SYSTEM without a right to it: %s\n", unreadText(what, err))
		return nil
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingLabels{kube.LabelQOSClass: string(node.System)}); err != nil {
		return unread("pods", err)
	}
	named := map[string][]string{}
	for i := range pods.Items {
		if p := &pods.Items[i]; kube.Class(p) == node.System && !kube.HasEnded(p) {
			named[p.Namespace] = append(named[p.Namespace], p.Name)
		}
	}
	if len(named) == 0 {
		return nil
	}
	var spaces corev1.NamespaceList
	if err := c.List(ctx, &spaces); err != nil {
		return unread("namespaces", err)
	}
	manager := managerLease(ctx, c)
	if len(manager.Unread) > 0 {
		fmt.Fprintf(errOut, "it is not known which namespace is that of Tenon: %s\n", strings.Join(manager.Unread, ", "))
		return nil
	}
	var lines []string
	for _, s := range spaces.Items {
		n := tenant.Namespace{Name: s.Name, Labels: s.Labels}
		for _, lease := range manager.Leases {
			if lease.Namespace == s.Name {
				n.Home = s.Name
			}
		}
		if names := named[s.Name]; len(names) > 0 && !n.Allows(tenant.System) {
			slices.Sort(names)
			lines = append(lines, fmt.Sprintf(`namespace %s may not have class SYSTEM, and its pods %s have it: they run on the own CPUs of others, and nothing bounds them; delete them, or label the namespace %s%s: "true"`, s.Name, listed(names), tenant.LabelPrefix, tenant.System))
		}
	}
	return lines
}

// uncountedQuotas returns a line for each ResourceQuota with resources that
// Kubernetes never counts.
func uncountedQuotas(ctx context.Context, c client.Client, errOut io.Writer) []string {
	var quotas corev1.ResourceQuotaList
	if err := c.List(ctx, &quotas); err != nil {
		fmt.Fprintf(errOut, "the ResourceQuotas are not checked: %s\n", unreadText("ResourceQuotas", err))
		return nil
	}
	var lines []string
	for i := range quotas.Items {
		q := &quotas.Items[i]
		var names []string
		for _, n := range tenant.Uncounted(q) {
			names = append(names, string(n))
		}
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("ResourceQuota %s/%s bounds no batch resources (%s): %s", q.Namespace, q.Name, strings.Join(names, ", "), tenant.InsteadOfQuota))
		}
	}
	return lines
}
