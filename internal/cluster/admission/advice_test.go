package admission

import (
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/cluster/kube"
)

// TestAKeyWithoutItsEffectWarns creates pods whose owners probably meant
// something else. The webhook must admit them, and warn.
func TestAKeyWithoutItsEffectWarns(t *testing.T) {
	const (
		ack  = kube.AnnotationCPUSetScheduler + `: "true"`
		full = kube.AnnotationResourceSpec + `: '{"requiredCPUBindPolicy":"FullPCPUs"}'`
		one  = "requests: {cpu: 1}, limits: {cpu: 1}"
	)
	for name, c := range map[string]struct{ labels, annotations, resources, want string }{
		"a label in lower case":           {"koordinator.sh/qosclass: LSR", "", one, "metadata.labels[koordinator.sh/qosclass]: unknown label: did you mean koordinator.sh/qosClass?"},
		"a wrong letter":                  {"", "scheduling.koordinator.sh/resource-spek: '{}'", one, "metadata.annotations[scheduling.koordinator.sh/resource-spek]: unknown annotation: did you mean scheduling.koordinator.sh/resource-spec?"},
		"a wrong domain":                  {"koordinater.sh/qosClass: LSR", "", one, "did you mean koordinator.sh/qosClass?"},
		"an annotation as a label":        {ack, "", one, "metadata.labels[cpuset-scheduler]: has no effect as a label: want it as an annotation"},
		"whole cores for a pod of no CPU": {"", full, one, "metadata.annotations[scheduling.koordinator.sh/resource-spec]: has no effect: "},
		"whole cores":                     {lsr, full, one, ""},
		"whole cores by ACK's key":        {"", ack + ", " + full, one, ""},
		"own CPUs and static-burst":       {lsr, ack + ", cpu-policy: static-burst", one, "metadata.annotations[cpu-policy]: gives the pod a pool, which it shares, and no CPUs of its own as class LSR does"},
		"limits above the request":        {lsr, ack, "requests: {cpu: 1}, limits: {cpu: 2}", "metadata.annotations[cpuset-scheduler]: has no effect: a pod of class LSR owns as many CPUs as it requests (1), and the CPU limits of its containers add up to 2000m"},
		"limits as the request":           {lsr, ack, one, ""},
		"a service without a CPU request": {"koordinator.sh/qosClass: LS", "", "requests: {memory: 1Gi}", "metadata.labels[koordinator.sh/qosClass]: the pod requests no CPU, so its CPU weight is the least one"},
		"a service with a CPU request":    {"koordinator.sh/qosClass: LS", "", own, ""},
		"no limits":                       {lsr, ack, "requests: {cpu: 1}", ""},
		"keys of others":                  {"app: cpu, policy: fast, priority: high, app.kubernetes.io/name: x", "koordinator.sh/cpuNormalizationRatio: '1', scheduling.koordinator.sh/device-allocated: '{}', cpuset: '{}'", one, ""},
	} {
		_, v := admit(Request{Pod: pod(t, c.labels, c.annotations, c.resources)})
		warned := slices.ContainsFunc(v.Texts(), func(text string) bool { return strings.Contains(text, c.want) })
		if !v.Allowed() || c.want != "" && !warned || c.want == "" && len(v.Warnings) > 0 {
			t.Errorf("%s: refused %q, warnings %q, want %q", name, v.Message(), v.Warnings, c.want)
		}
	}
}

// TestOwnCPUsInPartsOfACPUWarn gives two containers of an LSR pod limits that
// add up to its request. The annotation divides the CPUs of the pod among its
// containers only if each limit is a whole number.
func TestOwnCPUsInPartsOfACPUWarn(t *testing.T) {
	const ack = kube.AnnotationCPUSetScheduler + `: "true"`
	for resources, want := range map[[2]string]string{
		{"requests: {cpu: 1500m}, limits: {cpu: 1500m}", "requests: {cpu: 500m}, limits: {cpu: 500m}"}: `metadata.annotations[cpuset-scheduler]: has no effect: a pod of class LSR owns as many CPUs as it requests (2), and container "c" has the CPU limit 1500m: want whole CPUs in each container, or leave it out`,
		{"requests: {cpu: 1500m}, limits: {cpu: 1500m}", "requests: {cpu: 500m}, limits: {cpu: 1}"}:    "metadata.annotations[cpuset-scheduler]: has no effect: a pod of class LSR owns as many CPUs as it requests (2), and the CPU limits of its containers add up to 2500m: want limits that add up to the request, or leave it out",
		{"requests: {cpu: 1}, limits: {cpu: 1}", "requests: {cpu: 1}, limits: {cpu: 1}"}:               "",
	} {
		p, second := pod(t, lsr, ack, resources[0]), pod(t, "", "", resources[1]).Spec.Containers[0]
		p.Spec.Containers[0].Name = "c"
		second.Name = "d"
		p.Spec.Containers = append(p.Spec.Containers, second)
		_, v := admit(Request{Pod: p})
		if got := strings.Join(v.Texts(), "; "); !v.Allowed() || got != want {
			t.Errorf("%v: refused %q, warnings %q, want %q", resources, v.Message(), got, want)
		}
	}
}
