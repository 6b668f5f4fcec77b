package main

import (
	"context"
	"fmt"
	"io"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/neighbour"
	"tenon.sh/tenon/internal/model/node"
)

// vpa is the kind of vertical autoscalers.
var vpa = schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"}

// neighbourProblems returns a line for each object of another controller that
// does not work with batch work. What could not be read is written to errOut.
func (a *access) neighbourProblems(ctx context.Context, c client.Client, errOut io.Writer) []string {
	read := func(what string, list client.ObjectList, of ...client.ListOption) {
		if err := c.List(ctx, list, of...); err != nil && !apierrors.IsNotFound(err) { // without its CRD, a cluster has none
			fmt.Fprintf(errOut, "the %s are not checked: %s\n", what, unreadText(what, err))
		}
	}
	var pods corev1.PodList
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var vpas unstructured.UnstructuredList
	vpas.SetGroupVersionKind(vpa.GroupVersion().WithKind(vpa.Kind + "List"))
	var jobs batchv1.JobList
	read("pods of class BE", &pods, client.MatchingLabels{kube.LabelQOSClass: string(node.BE)})
	if len(pods.Items) > 0 {
		read("HorizontalPodAutoscalers", &hpas)
		read("VerticalPodAutoscalers", &vpas)
	}
	read("Jobs of Kueue", &jobs, client.HasLabels{neighbour.QueueLabel})
	objects := neighbour.Objects{HPAs: hpas.Items, VPAs: vpas.Items, Jobs: jobs.Items}
	created := func(p *corev1.Pod) *corev1.Pod { return p }
	if len(jobs.Items) > 0 {
		by := a.webhook(ctx, true)
		for _, what := range by.Unread {
			fmt.Fprintf(errOut, "Jobs of Kueue are checked without %s\n", what)
		}
		created = func(p *corev1.Pod) *corev1.Pod {
			if class, known := by.PriorityClasses[p.Spec.PriorityClassName]; known && p.Spec.Priority == nil {
				p = p.DeepCopy()
				p.Spec.Priority = &class.Value // as the API server does before it asks the webhook
			}
			changed, _ := admission.Mutate(admission.Request{Pod: p, Namespace: by.Namespaces[p.Namespace], Profiles: by.Profiles, PriorityClasses: by.PriorityClasses})
			return changed
		}
	}
	var lines []string
	for _, f := range neighbour.Find(objects, pods.Items, created) {
		lines = append(lines, printable.Text(neighbourText(f))) // a user may write any kind and name into a target
	}
	return lines
}

// neighbourText says what does not work, and what to do.
func neighbourText(f neighbour.Finding) string {
	names := ""
	for i, n := range f.Resources {
		if i > 0 {
			names += " and "
		}
		names += string(n)
	}
	switch f.Code {
	case neighbour.NoRequest:
		return fmt.Sprintf("HorizontalPodAutoscaler %s/%s scales %s %s by the utilization of %s, and its batch pods request none of it: it cannot scale; want averageValue, or another metric", f.Namespace, f.Name, f.Kind, f.Target, names)
	case neighbour.Resized:
		return fmt.Sprintf("VerticalPodAutoscaler %s/%s writes %s into new pods of %s %s, which have batch resources: the webhook refuses such pods; want updateMode Off", f.Namespace, f.Name, names, f.Kind, f.Target)
	}
	return fmt.Sprintf("Job %s/%s waits in a queue of Kueue for %s, and its pods will have batch resources: kubectl tenon translate makes a manifest for which Kueue books these", f.Namespace, f.Name, names)
}
