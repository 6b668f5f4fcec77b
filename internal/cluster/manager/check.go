package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// A Target says where Check looks for Tenon.
type Target struct {
	Agents   client.ObjectKey // the DaemonSet of the agents
	Config   client.ObjectKey // the ConfigMap with the strategies
	Webhooks bool             // webhooks should answer
}

// An Installation is what Check found of Tenon in a cluster. The lists have the names
// of nodes, sorted.
type Installation struct {
	// Wanted is the number of nodes on which the DaemonSet wants an agent. Agents are
	// those on which the pod of one is, and Silent those of Agents without a report, or
	// with one that is older than an agent in order makes it.
	Wanted         int
	Agents, Silent []string
	// Offering are the nodes that report and for which colocation is enabled. Bare are
	// those of Offering whose status lacks one of the batch resources. An amount of 0 is
	// not a lack.
	Offering, Bare []string
	// ConfigFaults are the faults of the ConfigMap, and NodeFaults those of the labels and
	// annotations of the nodes of Agents, by node. A key of the ConfigMap with a fault
	// counts as missing here. A running agent or manager keeps its last valid content, so
	// a fault may show its effect only after a restart.
	ConfigFaults []config.Fault
	NodeFaults   map[string][]config.Fault
	// Webhook is the reason why the webhooks did not bound a BE pod: the refusal of the
	// API server, or ErrUnbound. It is nil if they did, or if none should answer.
	Webhook error
}

// ErrUnbound means that the API server accepted a BE pod that no webhook had bounded.
var ErrUnbound = errors.New("no webhook bounded a BE pod")

// Healthy reports whether Tenon works on each node that should have it, as its
// configuration says.
func (i Installation) Healthy() bool {
	return i.Wanted > 0 && len(i.Agents) == i.Wanted && len(i.Silent) == 0 && len(i.Bare) == 0 &&
		len(i.ConfigFaults) == 0 && len(i.NodeFaults) == 0 && i.Webhook == nil
}

// Check looks whether the agents report, whether the nodes have batch resources, whether
// the configuration has faults, and whether a webhook bounds a BE pod. It stores nothing: the API server creates the pod
// as a dry run. An error means that the state could not be read.
func Check(ctx context.Context, rc *rest.Config, t Target) (Installation, error) {
	known, err := newScheme()
	if err != nil {
		return Installation{}, fmt.Errorf("make the list of types: %w", err)
	}
	c, err := client.New(rc, client.Options{Scheme: known})
	if err != nil {
		return Installation{}, fmt.Errorf("connect to the API server: %w", err)
	}
	var i Installation
	if err := i.findAgents(ctx, c, t.Agents); err != nil {
		return i, err
	}
	if err := i.findReports(ctx, c, t.Config); err != nil {
		return i, err
	}
	if t.Webhooks {
		i.Webhook = askWebhooks(ctx, c, t.Agents.Namespace)
	}
	return i, nil
}

// findAgents reads on which nodes the agents should run, and on which they do.
func (i *Installation) findAgents(ctx context.Context, c client.Client, agents client.ObjectKey) error {
	var set appsv1.DaemonSet
	if err := c.Get(ctx, agents, &set); err != nil {
		return fmt.Errorf("read DaemonSet %v: %w", agents, err)
	}
	i.Wanted = int(set.Status.DesiredNumberScheduled)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read the selector of DaemonSet %v: %w", agents, err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(agents.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("list the pods of DaemonSet %v: %w", agents, err)
	}
	for k := range pods.Items {
		if p := &pods.Items[k]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			i.Agents = append(i.Agents, p.Spec.NodeName)
		}
	}
	slices.Sort(i.Agents)
	i.Agents = slices.Compact(i.Agents)
	return nil
}

// findReports reads what the agents report, and what the status of their nodes has.
func (i *Installation) findReports(ctx context.Context, c client.Client, configMap client.ObjectKey) error {
	var m corev1.ConfigMap
	if err := c.Get(ctx, configMap, &m); err != nil {
		return fmt.Errorf("read ConfigMap %v: %w", configMap, err)
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	var reports v1alpha1.NodeReportList
	if err := c.List(ctx, &reports); err != nil {
		return fmt.Errorf("list the reports: %w", err)
	}
	i.judge(m.Data, nodepages.Nodes(nodes.Items, reports.Items), time.Now())
	return nil
}

// judge compares the nodes that have an agent with the settings in the data of the
// ConfigMap.
func (i *Installation) judge(data map[string]string, nodes []nodepages.Node, now time.Time) {
	settings, faults := config.ParseConfigMap(data)
	i.ConfigFaults = faults
	for _, n := range nodes {
		if !slices.Contains(i.Agents, n.Name) {
			continue
		}
		own, faults := settings.Node(n.Labels, n.Annotations)
		if len(faults) > 0 {
			if i.NodeFaults == nil {
				i.NodeFaults = map[string][]config.Fault{}
			}
			i.NodeFaults[n.Name] = faults
		}
		if n.IsSilent(now) {
			i.Silent = append(i.Silent, n.Name)
			continue
		}
		if !own.Policy.Overcommit.Enable {
			continue
		}
		i.Offering = append(i.Offering, n.Name)
		for k := range kinds {
			if _, has := n.Status.Allocatable[k.batchName()]; !has {
				i.Bare = append(i.Bare, n.Name)
				break
			}
		}
	}
}

// askWebhooks has the API server create a BE pod without storing it. The webhooks give
// such a pod the limits that it lacks.
func askWebhooks(ctx context.Context, c client.Client, namespace string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "tenon-check-", Labels: map[string]string{kube.LabelQOSClass: string(node.BE)}}}
	requests := corev1.ResourceList{kube.BatchCPU: resource.MustParse("100"), kube.BatchMemory: resource.MustParse("64Mi")}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: requests}}}
	if err := c.Create(ctx, p, client.DryRunAll); err != nil {
		return fmt.Errorf("create a BE pod, without storing it: %w", err)
	}
	if limit := p.Spec.Containers[0].Resources.Limits[kube.BatchCPU]; limit.Value() != 100 {
		return ErrUnbound
	}
	return nil
}
