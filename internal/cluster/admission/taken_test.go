package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
)

// TestAnUpdateThatTakesCPUsWarns changes running pods. If the change takes CPUs
// away from the pod, the author must get a warning, and the change must be
// accepted.
func TestAnUpdateThatTakesCPUsWarns(t *testing.T) {
	const (
		ack   = kube.AnnotationCPUSetScheduler + `: "true"`
		burst = kube.AnnotationCPUPolicy + ": " + kube.StaticBurst
		spec  = kube.AnnotationResourceSpec + `: '{"preferredCPUBindPolicy": "ConstrainedBurst"}'`
		four  = "requests: {cpu: 4}, limits: {cpu: 4}"
		seats = "requests: {cpu: 1500m}, limits: {cpu: 4}"
	)
	for name, c := range map[string]struct{ labels, before, after, resources, want string }{
		"own CPUs, the annotation is removed": {"", ack, "", four,
			"metadata.annotations[cpuset-scheduler]: the pod gives up its 4 own CPUs now and shares the CPUs that no pod owns; other pods may get them. What was there before asks for CPUs again, and may bring others"},
		"own CPUs, the annotation says false": {"", ack, kube.AnnotationCPUSetScheduler + `: "false"`, four, "the pod gives up its 4 own CPUs now"},
		"own CPUs become a pool":              {"", ack, ack + ", " + burst, four, "metadata.annotations[cpu-policy]: the pod gives up its 4 own CPUs now and gets a pool of CPUs instead, which it shares"},
		"seats":                               {"", ack, "", seats, "the pod gives up its 4 seats now and runs on all CPUs that no pod owns"},
		"a pool":                              {"", spec, "", seats, "metadata.annotations[scheduling.koordinator.sh/resource-spec]: the pod gives up its pool of CPUs now"},
		"seats become a pool":                 {"", ack, ack + ", " + burst, seats, ""},
		"another annotation":                  {"", ack, ack + ", team: web", four, ""},
		"CPUs are demanded anew":              {"", "", ack, four, ""},
		"the class still demands them":        {lsr, ack, "", four, ""},
	} {
		t.Run(name, func(t *testing.T) {
			old, p := pod(t, c.labels, c.before, c.resources), pod(t, c.labels, c.after, c.resources)
			for _, waiting := range []bool{true, false} {
				old.Spec.NodeName, p.Spec.NodeName = "n", "n"
				want := c.want
				if waiting {
					old.Spec.NodeName, p.Spec.NodeName, want = "", "", ""
				}
				v := ValidateUpdate(old, p, tenant.Namespace{})
				if text := strings.Join(v.Texts(), "\n"); !v.Allowed() || (want == "") != (text == "") || !strings.Contains(text, want) || len(text) > maxWarning {
					t.Errorf("waiting %v: refusals %q, %d bytes of warnings %q; want %q", waiting, v.Message(), len(text), text, want)
				}
			}
			p.Status.Phase = corev1.PodSucceeded
			if v := ValidateUpdate(old, p, tenant.Namespace{}); len(v.Warnings) > 0 {
				t.Errorf("a pod that has ended: %q", v.Warnings)
			}
		})
	}
}

// TestAWarningCountsTheCPUsThatAPodHas resizes a pod with one CPU to two, which
// its kubelet defers. Then it changes the pod again.
func TestAWarningCountsTheCPUsThatAPodHas(t *testing.T) {
	const change = "the pod gives up its own CPU now and "
	for name, x := range map[string]struct{ allocated, annotation, request, want string }{
		"a resize to seats":         {"1", "true", "1500m", "spec.containers.resources: " + change + "gets 2 seats instead"},
		"the resize is taken back":  {"1", "true", "1", ""},
		"the annotation is removed": {"1", "false", "2", "metadata.annotations[cpuset-scheduler]: " + change + "shares"},
		"it has no own CPU yet":     {"500m", "", "1500m", ""},
	} {
		old := pod(t, "", kube.AnnotationCPUSetScheduler+`: "true"`, "requests: {cpu: 2}, limits: {cpu: 2}")
		if x.annotation == "" {
			old = pod(t, lsr, "", "requests: {cpu: 2}")
		}
		old.Spec.NodeName = "n"
		old.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred}}
		had := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(x.allocated)}
		old.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: old.Spec.Containers[0].Name, AllocatedResources: had, Resources: &corev1.ResourceRequirements{Requests: had, Limits: had}}}
		p := old.DeepCopy()
		if x.annotation != "" {
			p.Annotations[kube.AnnotationCPUSetScheduler] = x.annotation
			if x.request == "1" {
				p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse(x.request)
			}
		}
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(x.request)
		if text := strings.Join(ValidateUpdate(old, p, tenant.Namespace{}).Texts(), "\n"); (x.want == "") != (text == "") || !strings.Contains(text, x.want) {
			t.Errorf("%s: warnings %q, want %q", name, text, x.want)
		}
	}
}

// maxWarning is the length to which the API server cuts a warning if there are
// many (truncateItemRunes in k8s.io/apiserver/pkg/endpoints/filters).
const maxWarning = 256
