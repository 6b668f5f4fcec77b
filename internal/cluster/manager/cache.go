package manager

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"tenon.sh/tenon/api/v1alpha1"
)

// The cache holds every node and every report of the cluster. Before an object
// enters the cache, a transform function drops the fields that the manager does
// not read. In a large cluster, a Node object has 20 KiB. Half of that is
// managedFields and the list of images. About 1 KiB remains.

// slimNode keeps the fields that determine batch resources, and which pods may run on
// the node. It keeps all labels, because the administrator's selectors may use any label.
func slimNode(o any) (any, error) {
	n, is := o.(*corev1.Node)
	if !is {
		return o, nil // a tombstone of a deleted object
	}
	slim := &corev1.Node{ObjectMeta: slimMeta(&n.ObjectMeta)}
	slim.Labels = n.Labels
	for key, value := range n.Annotations {
		if concernsBatch(key) {
			if slim.Annotations == nil {
				slim.Annotations = map[string]string{}
			}
			slim.Annotations[key] = value
		}
	}
	slim.Spec.Taints, slim.Spec.Unschedulable = n.Spec.Taints, n.Spec.Unschedulable
	slim.Status.Capacity, slim.Status.Allocatable = slimList(n.Status.Capacity), slimList(n.Status.Allocatable)
	return slim, nil
}

func slimList(list corev1.ResourceList) corev1.ResourceList {
	slim := corev1.ResourceList{}
	for k := range kinds {
		for _, name := range []corev1.ResourceName{k.nativeName(), k.batchName()} {
			if q, has := list[name]; has {
				slim[name] = q
			}
		}
	}
	return slim
}

func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp}
}

// slimReport keeps only the reported and the published amounts, how long services waited,
// and the services for which the manager asks Prometheus. Of the last answers it keeps only that there are
// some.
func slimReport(o any) (any, error) {
	r, is := o.(*v1alpha1.NodeReport)
	if !is {
		return o, nil
	}
	slim := &v1alpha1.NodeReport{ObjectMeta: slimMeta(&r.ObjectMeta)}
	s := &r.Status
	slim.Status = v1alpha1.NodeReportStatus{Reported: s.Reported, Run: s.Run, Sequence: s.Sequence, Batch: s.Batch, Published: s.Published}
	if o := s.Objectives; o != nil {
		slim.Status.Objectives = &v1alpha1.Objectives{}
		for _, one := range o.Services {
			kept := v1alpha1.ServiceObjective{Namespace: one.Namespace, Pod: one.Pod, Counted: one.Counted}
			if one.Requests != nil && one.Requests.Series != nil {
				kept.Requests = &v1alpha1.ServiceRequests{Series: one.Requests.Series}
			}
			if kept.Counted != nil || kept.Requests != nil {
				slim.Status.Objectives.Services = append(slim.Status.Objectives.Services, kept)
			}
		}
	}
	if s.Queried != nil {
		slim.Status.Queried = &v1alpha1.Queried{}
	}
	for _, a := range []*v1alpha1.BatchAmount{s.Batch.CPU, s.Batch.Memory} {
		for i := 0; a != nil && i < len(a.Terms); i++ {
			a.Terms[i].Text = ""
		}
	}
	return slim, nil
}

// withoutManagers removes managedFields from an object.
func withoutManagers(o any) (any, error) {
	if m, is := o.(metav1.Object); is {
		m.SetManagedFields(nil)
	}
	return o, nil
}

var (
	_ cache.TransformFunc = slimNode
	_ cache.TransformFunc = slimReport
	_ cache.TransformFunc = withoutManagers
)
