package stored

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
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

// TestAPendingResizeOfAWholePodIsNotInForce resizes a pod with resources at pod
// level from 4 to 6 CPUs. The status has what the kubelet has allocated. It
// includes the overhead of 250m.
func TestAPendingResizeOfAWholePodIsNotInForce(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	for name, x := range map[string]struct {
		status    corev1.ConditionStatus
		allocated corev1.ResourceList
		class     corev1.PodQOSClass
		// request is the CPU request of the pod without its overhead.
		request, limit string
	}{
		"pending":                            {corev1.ConditionTrue, list("4250m", "1Gi"), corev1.PodQOSBurstable, "4", "6"},
		"pending, of a Guaranteed pod":       {corev1.ConditionTrue, list("4250m", "1Gi"), corev1.PodQOSGuaranteed, "4", "4"},
		"pending, of an older kubelet":       {corev1.ConditionTrue, nil, corev1.PodQOSGuaranteed, "6", "6"},
		"no longer pending":                  {corev1.ConditionFalse, list("6250m", "1Gi"), corev1.PodQOSGuaranteed, "6", "6"},
		"pending, with CPU in no allocation": {corev1.ConditionTrue, corev1.ResourceList{"memory": resource.MustParse("1Gi")}, corev1.PodQOSBurstable, "6", "6"},
	} {
		p := &corev1.Pod{
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c"}},
				Resources:  &corev1.ResourceRequirements{Requests: list("6", "2Gi"), Limits: list("6", "2Gi")},
				Overhead:   corev1.ResourceList{"cpu": resource.MustParse("250m")},
			},
			Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: x.status}}, QOSClass: x.class, AllocatedResources: x.allocated,
				Resources: &corev1.ResourceRequirements{Requests: list("3997m", "1Gi"), Limits: list("9", "1Gi")}, // as read from cpu.weight and cpu.max
			},
		}
		got := InForce(p)
		if r := got.Spec.Resources; r.Requests.Cpu().String() != x.request || r.Limits.Cpu().String() != x.limit {
			t.Errorf("%s: requests %v, limits %v, want %s and %s", name, r.Requests.Cpu(), r.Limits.Cpu(), x.request, x.limit)
		}
		request := resource.MustParse(x.request)
		if got := kube.Native(got).CPURequest.Or(0); int64(got) != request.MilliValue()+250 {
			t.Errorf("%s: the pod requests %v", name, got)
		}
		if r := p.Spec.Resources; r.Requests.Cpu().String() != "6" || r.Limits.Cpu().String() != "6" || p.Status.AllocatedResources != nil && p.Status.AllocatedResources.Memory().String() != "1Gi" {
			t.Errorf("%s: the pod was changed: %v, %v", name, r, p.Status.AllocatedResources)
		}
	}
	if p := InForce(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}}, AllocatedResources: list("4", "1Gi")}}); p.Spec.Resources != nil {
		t.Errorf("a pod without resources at pod level has %v", p.Spec.Resources)
	}
}
