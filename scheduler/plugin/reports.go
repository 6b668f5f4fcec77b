package plugin

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/api/v1alpha1"
)

// reportsOf returns a source that can list and watch the reports of the nodes.
func reportsOf(h fwk.Handle) (cache.ListerWatcher, error) {
	c := h.KubeConfig()
	if c == nil {
		return nil, fmt.Errorf("%s: the scheduler has no address of the API server", Name)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	c.APIPath, c.GroupVersion = "/apis", &v1alpha1.GroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.AcceptContentTypes, c.ContentType = "application/json", "application/json" // a custom resource has no other form
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to the API server for reports: %w", Name, err)
	}
	return cache.NewListWatchFromClient(client, "nodereports", metav1.NamespaceAll, fields.Everything()), nil
}

// newReportInformer returns an informer for reports. It stores only the few
// fields that the ledger reads.
func newReportInformer(source cache.ListerWatcher) (cache.SharedIndexInformer, error) {
	informer := cache.NewSharedIndexInformer(source, &v1alpha1.NodeReport{}, 0, cache.Indexers{})
	err := informer.SetTransform(func(o any) (any, error) {
		r, ok := o.(*v1alpha1.NodeReport)
		if !ok {
			return o, nil
		}
		return &v1alpha1.NodeReport{
			ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion},
			Status:     v1alpha1.NodeReportStatus{Sequence: r.Status.Sequence, Run: r.Status.Run, CPUs: r.Status.CPUs},
		}, nil
	})
	return informer, err
}
