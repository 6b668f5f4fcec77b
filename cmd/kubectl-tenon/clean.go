package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/agent/printable"
)

// A cleanClient reads objects of which each text that a page prints is one line. The API
// server checks the names of objects, but not each text in them: who may make a pod, an
// event or a Lease in some namespace could otherwise write lines into the page of an
// administrator, or move the cursor of the terminal.
type cleanClient struct{ client.Client }

// Get reads an object.
func (c cleanClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, o, options...)
	switch o := o.(type) {
	case *corev1.Pod:
		cleanPod(o)
	case *v1alpha1.NodeReport:
		o.Status = printable.Value(o.Status)
	}
	return err
}

// List reads objects.
func (c cleanClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Client.List(ctx, list, options...)
	switch list := list.(type) {
	case *corev1.PodList:
		for i := range list.Items {
			cleanPod(&list.Items[i])
		}
	case *corev1.EventList:
		for i := range list.Items {
			e := &list.Items[i]
			e.Reason, e.Message = printable.Value(e.Reason), printable.Value(e.Message)
		}
	case *coordinationv1.LeaseList:
		for i := range list.Items {
			list.Items[i].Spec.HolderIdentity = printable.Value(list.Items[i].Spec.HolderIdentity)
		}
	case *v1alpha1.NodeReportList:
		for i := range list.Items {
			list.Items[i].Status = printable.Value(list.Items[i].Status)
		}
	}
	return err
}

// cleanPod leaves annotations as they are: they hold data, and pages quote them.
func cleanPod(p *corev1.Pod) {
	p.Spec.SchedulerName = printable.Value(p.Spec.SchedulerName)
	p.OwnerReferences = printable.Value(p.OwnerReferences)
	p.Status.Conditions = printable.Value(p.Status.Conditions)
}
