package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

func TestClassOfAPodByItsLabel(t *testing.T) {
	for word, want := range map[string]node.Class{"LSE": node.LSE, "LSR": node.LSR, "LS": node.LS, "BE": node.BE, "SYSTEM": node.System, "be": "", "": "", "LSX": ""} {
		p := pod("p", label(LabelQOSClass, word), annotation(AnnotationACKQOSClass, "LSR"))
		if got := Class(&p); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestClassOfAPodByTheAnnotationOfOldACK(t *testing.T) {
	p := pod("p", annotation("alibabacloud.com/qosClass", "BE"))
	if Class(&p) != node.BE || ClassWithDefault(&p) != node.BE {
		t.Errorf("class %q", Class(&p))
	}
}

// The pages of ACK show pods that have the class BE and no priority, although
// the webhook of Koordinator refuses such pods.
func TestBEWithoutPriorityIsAccepted(t *testing.T) {
	p := pod("p", be, container("c", "", "batch-cpu=1k batch-memory=1Gi"))
	w := onePod(t, p)
	if w.Class != node.BE || w.Priority != 0 || PriorityWithDefault(&p) != PriorityBatch {
		t.Errorf("class %s, priority %d, %s", w.Class, w.Priority, PriorityWithDefault(&p))
	}
}

func TestClassOfAPodWithoutALabel(t *testing.T) {
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want node.Class
		rule string
	}{
		"Guaranteed": {pod("p", container("c", "", "cpu=1 memory=1Gi")), node.LS, "Kubernetes QoS class Guaranteed"},
		"Burstable":  {pod("p", container("c", "cpu=1", "")), node.LS, "Kubernetes QoS class Burstable"},
		"BestEffort": {pod("p", container("c", "", "")), node.BE, "Kubernetes QoS class BestEffort"},
		"only batch": {pod("p", container("c", "", "batch-cpu=1k")), node.BE, "Kubernetes QoS class BestEffort"},
		"system":     {pod("p", priority(2000000000), in(SystemNamespace), container("c", "", "")), node.System, "Kubernetes QoS class BestEffort, system-critical priority"},
		"critical":   {pod("p", priority(2000000000), container("c", "", "")), node.LS, "Kubernetes QoS class BestEffort, system-critical priority"},
		"only near":  {pod("p", priority(1999999999), in(SystemNamespace), container("c", "", "")), node.BE, "Kubernetes QoS class BestEffort"},
		"by status":  {pod("p", func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable }), node.LS, "Kubernetes QoS class Burstable"},
	} {
		if Class(&c.pod) != "" {
			t.Errorf("%s: has the class %s of a label", name, Class(&c.pod))
		}
		got, rule := classAndRule(&c.pod)
		if got != c.want || rule != c.rule {
			t.Errorf("%s: %s by %q, want %s by %q", name, got, rule, c.want, c.rule)
		}
	}
}

func TestQOSClassIsThatOfKubernetes(t *testing.T) {
	podLevel := func(requests, limits string) podChange {
		return func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
		}
	}
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want corev1.PodQOSClass
	}{
		"equal in all containers":      {pod("p", container("a", "cpu=1 memory=1Gi", "cpu=1000m memory=1Gi"), container("b", "", "cpu=1 memory=1Gi")), corev1.PodQOSGuaranteed},
		"one container without limits": {pod("p", container("a", "", "cpu=1 memory=1Gi"), container("b", "", "")), corev1.PodQOSBurstable},
		"no memory":                    {pod("p", container("a", "", "cpu=1")), corev1.PodQOSBurstable},
		"less than the limit":          {pod("p", container("a", "cpu=500m memory=1Gi", "cpu=1 memory=1Gi")), corev1.PodQOSBurstable},
		"an init container asks":       {pod("p", initContainer("i", "cpu=1", "", false), container("a", "", "")), corev1.PodQOSBurstable},
		"zeros are nothing":            {pod("p", container("a", "cpu=0 memory=0", "")), corev1.PodQOSBestEffort},
		"of the pod as a whole":        {pod("p", podLevel("", "cpu=1 memory=1Gi"), container("a", "", "")), corev1.PodQOSGuaranteed},
		"batch resources do not count": {pod("p", container("a", "", "batch-cpu=1k batch-memory=1Gi")), corev1.PodQOSBestEffort},
	} {
		if got := QOSClass(&c.pod); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPriorityBandsAndTheLabelThatGoesBefore(t *testing.T) {
	for name, c := range map[string]struct {
		pod               corev1.Pod
		want, withDefault PriorityClass
		number            int
	}{
		"koord-prod":     {pod("p", priority(9000)), PriorityProd, PriorityProd, 9000},
		"koord-mid":      {pod("p", priority(7999)), PriorityMid, PriorityMid, 7999},
		"koord-batch":    {pod("p", priority(5000)), PriorityBatch, PriorityBatch, 5000},
		"koord-free":     {pod("p", priority(3999)), PriorityFree, PriorityFree, 3999},
		"between":        {pod("p", be, priority(6000)), "", PriorityBatch, 6000},
		"none, LS":       {pod("p", container("c", "cpu=1", "")), "", PriorityProd, 0},
		"label":          {pod("p", priority(9500), label(LabelPriorityClass, "koord-batch")), PriorityBatch, PriorityBatch, 9500},
		"label alone":    {pod("p", label(LabelPriorityClass, "koord-free")), PriorityFree, PriorityFree, 3500},
		"label unknown":  {pod("p", priority(9500), label(LabelPriorityClass, "gold")), PriorityProd, PriorityProd, 9500},
		"above all four": {pod("p", priority(2000001000)), "", PriorityProd, 2000001000},
	} {
		if name == "above all four" {
			container("c", "cpu=1", "")(&c.pod)
		}
		if got, or := Priority(&c.pod), PriorityWithDefault(&c.pod); got != c.want || or != c.withDefault || priorityOf(&c.pod) != c.number {
			t.Errorf("%s: %q, with default %q, %d; want %q, %q, %d", name, got, or, priorityOf(&c.pod), c.want, c.withDefault, c.number)
		}
	}
}

func in(namespace string) podChange { return func(p *corev1.Pod) { p.Namespace = namespace } }
