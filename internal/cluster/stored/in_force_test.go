package stored

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestAPendingResizeIsNotInForce resizes a pod from 4 to 6 CPUs. The new
// resources count when the kubelet has accepted them.
func TestAPendingResizeIsNotInForce(t *testing.T) {
	cpus := func(n string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(n)} }
	both := func(n string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: cpus(n), Limits: cpus(n)}
	}
	was := both("4")
	for name, x := range map[string]struct {
		kind          corev1.PodConditionType
		status        corev1.ConditionStatus
		of            corev1.ContainerStatus
		request, want string
	}{
		"pending":                      {corev1.PodResizePending, corev1.ConditionTrue, corev1.ContainerStatus{Name: "c", Resources: &was}, "4", "4"},
		"pending after another resize": {corev1.PodResizePending, corev1.ConditionTrue, corev1.ContainerStatus{Name: "c", Resources: &was, AllocatedResources: cpus("3")}, "4", "4"},
		"pending without a status":     {corev1.PodResizePending, corev1.ConditionTrue, corev1.ContainerStatus{Name: "other", Resources: &was}, "6", "6"},
		"no longer pending":            {corev1.PodResizePending, corev1.ConditionFalse, corev1.ContainerStatus{Name: "c", Resources: &was}, "6", "6"},
		"in progress":                  {corev1.PodResizeInProgress, corev1.ConditionTrue, corev1.ContainerStatus{Name: "c", Resources: &was}, "6", "6"},
	} {
		p := &corev1.Pod{
			Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "c", Resources: both("6")}}, Containers: []corev1.Container{{Name: "c", Resources: both("6")}}},
			Status: corev1.PodStatus{
				Conditions:            []corev1.PodCondition{{Type: x.kind, Status: x.status}},
				InitContainerStatuses: []corev1.ContainerStatus{x.of}, ContainerStatuses: []corev1.ContainerStatus{x.of},
			},
		}
		got := InForce(p)
		for _, c := range append(got.Spec.InitContainers, got.Spec.Containers...) {
			if c.Resources.Requests.Cpu().String() != x.request || c.Resources.Limits.Cpu().String() != x.want {
				t.Errorf("%s: requests %v, limits %v, want %s and %s", name, c.Resources.Requests.Cpu(), c.Resources.Limits.Cpu(), x.request, x.want)
			}
		}
		if p.Spec.Containers[0].Resources.Requests.Cpu().String() != "6" || p.Spec.InitContainers[0].Resources.Limits.Cpu().String() != "6" {
			t.Errorf("%s: the pod was changed", name)
		}
	}
}
