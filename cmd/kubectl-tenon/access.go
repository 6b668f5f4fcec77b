package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/podpages"
	"tenon.sh/tenon/internal/cmdline"
)

// access has the flags of kubectl that select the cluster and the user, and the
// format of the answer.
type access struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	output     cmdline.Output
}

// addFlags adds the flags of kubectl, with kubectl's names. The namespace is a
// flag of single commands.
func (a *access) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "the kubeconfig file (default: that of kubectl)")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	names.CurrentContext.Description = "the context of the kubeconfig file (default: the current one)"
	clientcmd.BindOverrideFlags(&a.overrides, flags, names)
}

// config reads the kubeconfig.
func (a *access) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &a.overrides)
}

// errNoKubeconfig stands for the error of client-go, which names a variable that it
// does not read any more.
var errNoKubeconfig = errors.New("there is no kubeconfig: name one by the variable KUBECONFIG or the flag --kubeconfig")

// unset returns errNoKubeconfig if err says that there is none, and otherwise err.
func unset(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errNoKubeconfig
	}
	return err
}

// clientConfig returns how the cluster is reached.
func (a *access) clientConfig() (*rest.Config, error) {
	found, err := a.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", unset(err))
	}
	return found, nil
}

// namespace returns the given namespace. If it is "", it returns that of the context.
func (a *access) namespace(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	found, _, err := a.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", unset(err))
	}
	return found, nil
}

// client returns a client for nodes, pods, reports, profiles, the objects to
// which profiles refer, Leases, events, autoscalers, Jobs and the use of pods.
func (a *access) client() (client.Client, error) {
	found, err := a.clientConfig()
	if err != nil {
		return nil, err
	}
	return clientOf(found, &warnings{})
}

// strictClient is like client, but stores the warnings of the API server in
// said. The API server refuses unknown fields of its objects, as for kubectl
// apply. It can do this only for JSON.
func (a *access) strictClient(said *warnings) (client.Client, error) {
	found, err := a.clientConfig()
	if err != nil {
		return nil, err
	}
	found.ContentType = runtime.ContentTypeJSON
	c, err := clientOf(found, said)
	if err != nil {
		return nil, err
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict), nil
}

func clientOf(found *rest.Config, said *warnings) (client.Client, error) {
	found.WarningHandlerWithContext = said
	scheme := runtime.NewScheme()
	if err := errors.Join(
		corev1.AddToScheme(scheme), admissionv1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme), batchv1.AddToScheme(scheme), schedulingv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), configv1alpha1.AddToScheme(scheme),
	); err != nil {
		return nil, err
	}
	// The fixed list of kinds saves a request to the API server.
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("ResourceQuota"), meta.RESTScopeNamespace)
	kinds.Add(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), meta.RESTScopeRoot)
	kinds.Add(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), meta.RESTScopeNamespace)
	kinds.Add(vpa, meta.RESTScopeNamespace)
	kinds.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	kinds.AddSpecific(podMetrics, podMetrics.GroupVersion().WithResource("pods"), podMetrics.GroupVersion().WithResource("pod"), meta.RESTScopeNamespace)
	kinds.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	kinds.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	kinds.Add(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), meta.RESTScopeRoot)
	kinds.Add(v1alpha1.GroupVersion.WithKind("NodeReport"), meta.RESTScopeRoot)
	kinds.Add(configv1alpha1.GroupVersion.WithKind("ClusterColocationProfile"), meta.RESTScopeRoot)
	c, err := client.New(found, client.Options{Scheme: scheme, Mapper: kinds})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return cleanClient{c}, nil
}

// profiles reads the colocation profiles. Without their CRD, a cluster has none.
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

// webhook reads the inputs of the webhook that changes new pods. Unread lists
// what it cannot read. This is not an error, because most pods need the same
// CPUs with or without these changes. With leftAlone, the namespaces are read also if no
// profile selects them, because the webhook changes no pod of one that is left alone.
func (a *access) webhook(ctx context.Context, leftAlone bool) podpages.Webhook {
	var w podpages.Webhook
	unread := func(what string, err error) {
		if err != nil {
			w.Unread = append(w.Unread, fmt.Sprintf("%s (%v)", what, err))
		}
	}
	var err error
	if w.Profiles, err = a.profiles(ctx); err != nil || len(w.Profiles) == 0 && !leftAlone {
		unread("colocation profiles", err)
		return w
	}
	c, err := a.client()
	if err != nil {
		unread("namespaces and priority classes, to which profiles refer", err)
		return w
	}
	var namespaces corev1.NamespaceList
	unread("namespaces, which profiles select or which are left alone", c.List(ctx, &namespaces))
	w.Namespaces = map[string]*corev1.Namespace{}
	for i := range namespaces.Items {
		w.Namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	if len(w.Profiles) == 0 {
		return w
	}
	var classes schedulingv1.PriorityClassList
	unread("priority classes, which profiles give", c.List(ctx, &classes))
	w.PriorityClasses = map[string]schedulingv1.PriorityClass{}
	for _, class := range classes.Items {
		w.PriorityClasses[class.Name] = class
	}
	return w
}

// Rights that the plugin names if they are missing. The texts continue "you may
// not".
const (
	listNodes   = "list nodes"
	listReports = "list nodereports.tenon.sh"
	listPods    = "list pods of all namespaces"
)

// viewer is the ClusterRole of the chart with the rights of this plugin.
const viewer = "tenon-viewer"

// lackText returns why a right is missing.
func lackText(right string) string { return "you may not " + right }

// nodes reads all nodes and their reports. If one of the two may not be read,
// lacks says so; without both, there is an error.
func (a *access) nodes(ctx context.Context) (nodes []nodepages.Node, lacks podpages.Lacks, err error) {
	c, err := a.client()
	if err != nil {
		return nil, lacks, err
	}
	if nodes, lacks, err = nodesOf(ctx, c); err == nil && lacks.Nodes != "" && lacks.Reports != "" {
		err = fmt.Errorf("%s, and %s: an administrator can bind the ClusterRole %s to you", lacks.Nodes, lackText(listReports), viewer)
	}
	return nodes, lacks, err
}

func nodesOf(ctx context.Context, c client.Client) (all []nodepages.Node, lacks podpages.Lacks, err error) {
	var nodes corev1.NodeList
	switch err := c.List(ctx, &nodes); {
	case apierrors.IsForbidden(err):
		lacks.Nodes = lackText(listNodes)
	case err != nil:
		return nil, lacks, fmt.Errorf("list the nodes: %w", err)
	}
	var reports v1alpha1.NodeReportList
	switch err := c.List(ctx, &reports); {
	case apierrors.IsForbidden(err):
		lacks.Reports = lackText(listReports)
	case err != nil:
		return nil, lacks, fmt.Errorf("list nodereports.tenon.sh, which Tenon's chart brings: %w", err)
	}
	if lacks.Nodes != "" {
		return nodepages.Reported(reports.Items), lacks, nil
	}
	all = nodepages.Nodes(nodes.Items, reports.Items)
	for i := range all {
		if lacks.Reports != "" {
			all[i].Unread = "its report is not known: " + lacks.Reports
		}
	}
	return all, lacks, nil
}

// seenNodes is like nodes, and names on errOut what may not be read.
func (a *access) seenNodes(ctx context.Context, errOut io.Writer) ([]nodepages.Node, podpages.Lacks, error) {
	nodes, lacks, err := a.nodes(ctx)
	if err != nil {
		return nil, lacks, err
	}
	if lacks.Nodes != "" {
		fmt.Fprintf(errOut, "nodes without a report are not shown, and of the others only the report: %s\n", lacks.Nodes)
	}
	if lacks.Reports != "" {
		fmt.Fprintf(errOut, "the reports of the nodes are not shown: %s\n", lacks.Reports)
	}
	hint(errOut, lacks)
	return nodes, lacks, nil
}

// hint names the ClusterRole with the rights that are missing.
func hint(errOut io.Writer, lacks podpages.Lacks) {
	if lacks.Nodes != "" || lacks.Reports != "" {
		fmt.Fprintf(errOut, "the ClusterRole %s has this right: an administrator can bind it to you\n", viewer)
	}
}

// cluster reads all nodes, their reports, and all pods. If pods of all
// namespaces may not be listed, it reads those of one namespace, and if these may
// not be listed either, the pod name. What is missing is named on the pages.
func (a *access) cluster(ctx context.Context, errOut io.Writer, namespace, name string, now time.Time) (*podpages.Cluster, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	nodes, lacks, err := nodesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	hint(errOut, lacks)
	var pods corev1.PodList
	switch err := c.List(ctx, &pods); {
	case apierrors.IsForbidden(err):
		lacks.Pods = lackText(listPods)
		if pods.Items, err = podsOf(ctx, c, namespace, name); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("list the pods of all namespaces: %w", err)
	}
	return podpages.NewPartly(nodes, pods.Items, lacks, now), nil
}

// podsOf reads the pods of a namespace. If these may not be listed, it reads the
// pod name only. Without a namespace or name, it reads none.
func podsOf(ctx context.Context, c client.Client, namespace, name string) ([]corev1.Pod, error) {
	if namespace == "" {
		return nil, nil
	}
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.InNamespace(namespace))
	if err == nil || !apierrors.IsForbidden(err) {
		return pods.Items, err
	}
	if name == "" {
		return nil, nil
	}
	one, err := podOf(ctx, c, namespace, name)
	if one == nil {
		return nil, err
	}
	return []corev1.Pod{*one}, nil
}

// podOf reads a pod. It returns nil if there is none.
func podOf(ctx context.Context, c client.Client, namespace, name string) (*corev1.Pod, error) {
	var p corev1.Pod
	switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return &p, nil
}
