package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
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
)

// access has the flags of kubectl that select the cluster and the user.
type access struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
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

// namespace returns the given namespace. If it is "", it returns that of the context.
func (a *access) namespace(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	found, _, err := a.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", err)
	}
	return found, nil
}

// client returns a client for nodes, pods, reports, profiles, the objects to
// which profiles refer, Leases and events.
func (a *access) client() (client.Client, error) {
	found, err := a.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return clientOf(found, &warnings{})
}

// strictClient is like client, but stores the warnings of the API server in
// said. The API server refuses unknown fields of its objects, as for kubectl
// apply. It can do this only for JSON.
func (a *access) strictClient(said *warnings) (client.Client, error) {
	found, err := a.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
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
		corev1.AddToScheme(scheme), schedulingv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), configv1alpha1.AddToScheme(scheme),
	); err != nil {
		return nil, err
	}
	// The fixed list of kinds saves a request to the API server.
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	kinds.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	kinds.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	kinds.Add(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), meta.RESTScopeRoot)
	kinds.Add(v1alpha1.GroupVersion.WithKind("NodeReport"), meta.RESTScopeRoot)
	kinds.Add(configv1alpha1.GroupVersion.WithKind("ClusterColocationProfile"), meta.RESTScopeRoot)
	c, err := client.New(found, client.Options{Scheme: scheme, Mapper: kinds})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return c, nil
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
// CPUs with or without these changes.
func (a *access) webhook(ctx context.Context) podpages.Webhook {
	var w podpages.Webhook
	unread := func(what string, err error) {
		if err != nil {
			w.Unread = append(w.Unread, fmt.Sprintf("%s (%v)", what, err))
		}
	}
	var err error
	if w.Profiles, err = a.profiles(ctx); err != nil || len(w.Profiles) == 0 {
		unread("colocation profiles", err)
		return w
	}
	c, err := a.client()
	if err != nil {
		unread("namespaces and priority classes, to which profiles refer", err)
		return w
	}
	var namespaces corev1.NamespaceList
	unread("namespaces, which profiles select", c.List(ctx, &namespaces))
	w.Namespaces = map[string]*corev1.Namespace{}
	for i := range namespaces.Items {
		w.Namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	var classes schedulingv1.PriorityClassList
	unread("priority classes, which profiles give", c.List(ctx, &classes))
	w.PriorityClasses = map[string]schedulingv1.PriorityClass{}
	for _, class := range classes.Items {
		w.PriorityClasses[class.Name] = class
	}
	return w
}

// nodes reads all nodes and their reports.
func (a *access) nodes(ctx context.Context) ([]nodepages.Node, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	return nodesOf(ctx, c)
}

func nodesOf(ctx context.Context, c client.Client) ([]nodepages.Node, error) {
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

// cluster reads all nodes, their reports, and all pods.
func (a *access) cluster(ctx context.Context, now time.Time) (*podpages.Cluster, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	nodes, err := nodesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("list the pods of all namespaces: %w", err)
	}
	return podpages.New(nodes, pods.Items, now), nil
}
