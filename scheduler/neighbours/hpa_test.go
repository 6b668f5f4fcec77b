// Package neighbours_test asks the code of other controllers of Kubernetes about
// batch work as Tenon's webhook makes it. It is in this module because the module
// contains the controllers of Kubernetes anyway.
package neighbours_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/neighbour"
)

// use is a metrics API in which each pod uses half a CPU.
type use struct {
	metrics.MetricsClient
	pods []*corev1.Pod
}

func (u use) GetResourceMetric(context.Context, corev1.ResourceName, string, labels.Selector, string) (metrics.PodMetricsInfo, time.Time, error) {
	all := metrics.PodMetricsInfo{}
	for _, p := range u.pods {
		all[p.Name] = metrics.PodMetric{Timestamp: time.Now(), Window: time.Minute, Value: 500}
	}
	return all, time.Now(), nil
}

// TestAnAutoscalerOfBatchWorkNeedsAValue asks the replica calculator of the HPA
// controller about two pods that request half a CPU and use half a CPU each, as
// services and as the webhook translates them. By utilization it scales the
// services only; by a value it scales both. package neighbour must say the same.
func TestAnAutoscalerOfBatchWorkNeedsAValue(t *testing.T) {
	for class, translated := range map[string]bool{"LS": false, "BE": true} {
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		u := use{}
		var pods []corev1.Pod
		for i := range 2 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i), Labels: map[string]string{"koordinator.sh/qosClass": class},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d4f", Controller: new(true)}}}}
			p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}}}}
			p, _ = admission.Mutate(admission.Request{Pod: p})
			started := metav1.NewTime(time.Now().Add(-time.Hour))
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started}}}
			if err := store.Add(p); err != nil {
				t.Fatal(err)
			}
			u.pods, pods = append(u.pods, p), append(pods, *p)
		}
		c := podautoscaler.NewReplicaCalculator(u, corelisters.NewPodLister(store), time.Minute, time.Minute)
		byUse, _, _, _, err := c.GetResourceReplicas(t.Context(), 2, 50, corev1.ResourceCPU, podautoscaler.Tolerances{}, "shop", labels.Everything(), "")
		if translated == (err == nil) || !translated && byUse != 4 {
			t.Errorf("class %s by utilization of 50 %%: %d replicas, %v", class, byUse, err)
		}
		t.Logf("class %s by utilization: %d replicas, %v", class, byUse, err)
		byValue, _, _, err := c.GetRawResourceReplicas(t.Context(), 2, 250, corev1.ResourceCPU, podautoscaler.Tolerances{}, "shop", labels.Everything(), "")
		if err != nil || byValue != 4 {
			t.Errorf("class %s by a value of 250m: %d replicas, %v; want 4", class, byValue, err)
		}
		for kind, found := range map[autoscalingv2.MetricTargetType]bool{autoscalingv2.UtilizationMetricType: translated, autoscalingv2.AverageValueMetricType: false} {
			h := autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "h"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
				Metrics:        []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: kind}}}},
			}}
			got := neighbour.Find(neighbour.Objects{HPAs: []autoscalingv2.HorizontalPodAutoscaler{h}}, pods, func(p *corev1.Pod) *corev1.Pod { return p })
			if (len(got) == 1) != found {
				t.Errorf("class %s, %s: %+v, want a finding %v", class, kind, got, found)
			}
		}
	}
}
