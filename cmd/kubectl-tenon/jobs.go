package main

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// podMetrics is the use of a pod. Its resource has the name of pods.
var podMetrics = schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}

// ofJobs selects the pods that the Job controller made. Each of its versions sets this
// label.
var ofJobs = client.HasLabels{"job-name"}

// jobs counts what Jobs requested on nodes. waits says that these are all nodes.
func jobs(ctx context.Context, c client.Client, all []prospect.Outlook, waits bool) (sum prospect.Jobs, unread string) {
	left, err := namespacesLeftAlone(ctx, c)
	if err != nil {
		return sum, unreadText("namespaces", err)
	}
	if err := addExcluded(ctx, c, left); err != nil {
		return sum, unreadText("webhooks of tenon-manager", err)
	}
	count, running := prospect.CountJobs(all, waits), map[client.ObjectKey]bool{}
	for next := ""; ; {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, ofJobs, client.Limit(pageSize), client.Continue(next)); err != nil {
			return sum, unreadText("pods of all namespaces", err)
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if !left[p.Namespace] && couldBeBatch(p) && count.Add(jobPodOf(p)) {
				running[client.ObjectKeyFromObject(p)] = true
			}
		}
		if next = pods.Continue; next == "" {
			break
		}
	}
	used, measured := usedBy(ctx, c, running)
	return count.Done(used, measured), ""
}

// namespacesLeftAlone returns the namespaces whose pods Tenon leaves alone.
func namespacesLeftAlone(ctx context.Context, c client.Client) (map[string]bool, error) {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces, client.HasLabels{kube.LabelIgnore}); err != nil {
		return nil, err
	}
	left := map[string]bool{}
	for _, n := range namespaces.Items {
		left[n.Name] = kube.IsIgnoredNamespace(n.Labels)
	}
	return left, nil
}

// addExcluded adds the namespaces whose pods no profile makes batch work: that of the
// manager, and those that its webhooks leave out. Their Jobs belong to the cluster. Without
// webhooks, or without the right to read them, only kube-system is known.
func addExcluded(ctx context.Context, c client.Client, left map[string]bool) error {
	left[metav1.NamespaceSystem] = true
	hooks, err := managerWebhooks(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	left[serviceNamespace(hooks)] = true
	for _, hook := range hooks {
		if hook.NamespaceSelector == nil {
			continue
		}
		for _, r := range hook.NamespaceSelector.MatchExpressions {
			if r.Key == corev1.LabelMetadataName && r.Operator == metav1.LabelSelectorOpNotIn {
				for _, name := range r.Values {
					left[name] = true
				}
			}
		}
	}
	return nil
}

// couldBeBatch reports whether a pod of a Job runs as a service because its owner has not
// chosen a class. One with batch resources, or without requests, is BE already.
func couldBeBatch(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "Job" || schema.FromAPIVersionAndKind(owner.APIVersion, "").Group != batchv1.GroupName {
		return false
	}
	cpu, memory := kube.Requested(p)
	return !kube.IsIgnored(p) && cpu == 0 && memory == 0 && kube.Class(p) == "" && kube.ClassWithDefault(p) == node.LS
}

func jobPodOf(p *corev1.Pod) prospect.JobPod {
	a := kube.Native(p)
	out := prospect.JobPod{Node: printable.Text(p.Spec.NodeName), CPU: a.CPURequest.Or(0), Memory: a.MemoryRequest.Or(0), Runs: p.Status.Phase == corev1.PodRunning, Ended: kube.HasEnded(p)}
	if p.Status.StartTime != nil {
		out.Begin = p.Status.StartTime.Unix()
	} else {
		out.Begin = p.CreationTimestamp.Unix()
	}
	if !out.Ended {
		return out
	}
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && !t.FinishedAt.IsZero() {
			out.End = max(out.End, t.FinishedAt.Unix())
		}
	}
	return out
}

// usedBy returns what pods use now, and of how many this is known: of none without
// metrics-server or without the right to read its numbers. It has none of a pod that is
// young, or whose containers fail again and again.
func usedBy(ctx context.Context, c client.Client, running map[client.ObjectKey]bool) (used unit.MilliCPU, measured int) {
	if len(running) == 0 {
		return 0, 0
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(podMetrics.GroupVersion().WithKind(podMetrics.Kind + "List"))
	if err := c.List(ctx, &list, ofJobs); err != nil {
		return 0, 0 // the page says that it is not known
	}
	for i := range list.Items {
		if !running[client.ObjectKeyFromObject(&list.Items[i])] {
			continue
		}
		cpu, err := usageOf(&list.Items[i])
		if err != nil {
			continue // as above
		}
		used, measured = used+cpu, measured+1
	}
	return used, measured
}

// usageOf returns the CPU that the containers of a pod use.
func usageOf(of *unstructured.Unstructured) (sum unit.MilliCPU, err error) {
	var read struct {
		Containers []struct {
			Usage corev1.ResourceList `json:"usage"`
		} `json:"containers"`
	}
	text, err := of.MarshalJSON()
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return 0, fmt.Errorf("read the use of %s: %w", of.GetName(), err)
	}
	for _, c := range read.Containers {
		sum += quantity.CPU(*c.Usage.Cpu(), unit.Up)
	}
	return sum, nil
}
