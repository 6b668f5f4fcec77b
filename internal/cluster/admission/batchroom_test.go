package admission

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/cluster/kube"
)

// TestBatchPodsAddNoNode checks the annotation for cluster-autoscaler: pods that use
// batch resources have it, and pods that count like services do not. A delay that the
// author has written stays.
func TestBatchPodsAddNoNode(t *testing.T) {
	const own2 = "requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"
	for name, x := range map[string]struct {
		labels, annotations, resources string
		off                            bool
		want                           string
	}{
		"translated":             {be, "", own2, false, scaleUpDelay},
		"with batch resources":   {be, "", "requests: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}", false, scaleUpDelay},
		"without any resources":  {be, "", "", false, scaleUpDelay},
		"with a delay":           {be, kube.AnnotationScaleUpDelay + `: "1m"`, own2, false, "1m"},
		"a service":              {"koordinator.sh/qosClass: LS", "", own2, false, ""},
		"of no class":            {"", "", own2, false, ""},
		"where it keeps its cpu": {be, "", own2, true, ""},
		"that keeps its amounts": {be, `config.koordinator.sh/skip-update-resources: "true"`, own2, false, ""},
	} {
		p, v := Mutate(Request{Pod: pod(t, x.labels, x.annotations, x.resources), ColocationOff: x.off})
		if got := p.Annotations[kube.AnnotationScaleUpDelay]; got != x.want || !v.Allowed() {
			t.Errorf("%s: the delay is %q, want %q; %s", name, got, x.want, v.Message())
		}
	}
	if d, err := time.ParseDuration(scaleUpDelay); err != nil || d < 24*time.Hour {
		t.Errorf("cluster-autoscaler reads the delay as %v, %v", d, err)
	}
}
