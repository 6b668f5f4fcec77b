package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A bound holds the limits of a container that Tenon manages.
type bound struct {
	CPU, Memory bool
	CPURequest  unit.MilliCPU
	CPULimit    node.Maybe[unit.MilliCPU]
	MemoryLimit node.Maybe[unit.Bytes]
}

func boundOf(w node.Workload, c node.Container, ours bool) (b bound, is bool) {
	if ours && !w.CPUManagedExternally {
		b.CPU, b.CPURequest, b.CPULimit = true, c.CPURequest.Or(0), c.CPULimit
	}
	if ours && !w.MemoryManagedExternally {
		b.Memory, b.MemoryLimit = true, c.MemoryLimit
	}
	return b, ours
}

func TestAContainerIsBoundedByItsBatchResourcesBeforeItExists(t *testing.T) {
	batch := func(cpu, memory string) corev1.ResourceRequirements {
		list := corev1.ResourceList{BatchCPU: resource.MustParse(cpu), BatchMemory: resource.MustParse(memory)}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	be := map[string]string{LabelQOSClass: "BE"}
	said := map[string]string{AnnotationExtended: `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"},"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"2Gi"}}}}`}
	one := bound{CPU: true, Memory: true, CPURequest: 500, CPULimit: node.Some[unit.MilliCPU](1000), MemoryLimit: node.Some[unit.Bytes](2 << 30)}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Resources: batch("250", "1Gi")}},
		Containers:     []corev1.Container{{Name: "main", Resources: batch("2k", "3Gi")}, {Name: "sidecar"}},
	}
	native := func(cpu, memory string) corev1.ResourceRequirements {
		limits := corev1.ResourceList{}
		if cpu != "" {
			limits[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			limits[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return corev1.ResourceRequirements{Limits: limits}
	}
	mixed := corev1.PodSpec{Containers: []corev1.Container{
		{Name: "main", Resources: batch("2k", "3Gi")}, {Name: "proxy", Resources: native("2", "1Gi")}, {Name: "log", Resources: native("", "1Gi")}, {Name: "zero", Resources: native("0", "0")},
	}}
	for name, c := range map[string]struct {
		pod  corev1.Pod
		of   string
		spec bool
		want bound
		is   bool
	}{
		"by its spec": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: spec}, "main", true,
			bound{true, true, 2000, node.Some[unit.MilliCPU](2000), node.Some[unit.Bytes](3 << 30)}, true},
		"an init container": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: spec}, "init", true,
			bound{true, true, 250, node.Some[unit.MilliCPU](250), node.Some[unit.Bytes](1 << 30)}, true},
		"whose limits the kubelet sets, beside one of batch resources": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: mixed}, "proxy", true, bound{}, false},
		"of which the kubelet sets only the memory":                    {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: mixed}, "log", true, bound{CPU: true}, true},
		"with limits of 0, which are none":                             {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: mixed}, "zero", true, bound{CPU: true, Memory: true}, true},
		"one that asks for nothing beside one that does":               {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: spec}, "sidecar", true, bound{CPU: true, Memory: true}, true},
		"without a label, as Kubernetes' BestEffort":                   {corev1.Pod{Spec: spec}, "main", true, bound{true, true, 2000, node.Some[unit.MilliCPU](2000), node.Some[unit.Bytes](3 << 30)}, true},
		"by the annotation of the webhook, for the runtime":            {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be, Annotations: said}}, "main", false, one, true},
		"that is not in the annotation of the webhook":                 {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be, Annotations: said}}, "other", false, bound{}, false},
		"without any amounts":                                          {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}}, "main", false, bound{}, false},
		"that is not in its pod":                                       {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: spec}, "other", true, bound{}, false},
		"of a service":                                                 {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelQOSClass: "LS"}}, Spec: spec}, "main", true, bound{}, false},
		"of BE without batch resources":                                {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}, "main", true, bound{}, false},
		"of an annotation that cannot be read":                         {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: be, Annotations: map[string]string{AnnotationExtended: "{"}}}, "main", false, bound{}, false},
	} {
		if got, is := boundOf(Starting(&c.pod, c.of, c.spec)); got != c.want || is != c.is {
			t.Errorf("a container %s: %+v %v, want %+v %v", name, got, is, c.want, c.is)
		}
	}
}

func TestSharesAreTheKubelets(t *testing.T) {
	for request, want := range map[unit.MilliCPU]uint64{0: 2, 1: 2, 100: 102, 1000: 1024, 70_000: 71680, 1 << 50: 262144} {
		if got := Shares(request); got != want {
			t.Errorf("%v: %d shares, want %d", request, got, want)
		}
	}
}
