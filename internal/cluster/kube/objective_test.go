package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// TestAnObjectiveIsReadFromTheAnnotation checks what the annotation of a pod says,
// and that a fault makes it say nothing. Only services may have an objective.
func TestAnObjectiveIsReadFromTheAnnotation(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		given  bool
		class  node.Class
		want   time.Duration
		faults int
	}{
		"by annotation":                 {`{"runQueueDelay": "2ms"}`, true, node.LS, 2 * time.Millisecond, 0},
		"own CPUs":                      {`{"runQueueDelay": "2ms"}`, true, node.LSE, 2 * time.Millisecond, 0},
		"no annotation":                 {"", false, node.LSR, 0, 0},
		"the value of a chart is unset": {"", true, node.LS, 0, 0},
		"none by its own word":          {`{}`, true, node.LS, 0, 0},
		"a fault":                       {`{"runQueueDelay": "2m"}`, true, node.LS, 0, 1},
		"an unknown key":                {`{"p98": "2ms"}`, true, node.LS, 0, 1},
		"requests without their source": {`{"p99": "2ms"}`, true, node.LS, 0, 2},
		"best-effort":                   {`{"runQueueDelay": "2ms"}`, true, node.BE, 0, 1},
		"best-effort by ConfigMap":      {"", false, node.BE, 0, 0},
		"system":                        {`{"runQueueDelay": "2ms"}`, true, node.System, 0, 1},
	} {
		p := &corev1.Pod{}
		p.Namespace, p.Labels = "shop", map[string]string{"app": "web", LabelQOSClass: string(tc.class)}
		if tc.given {
			p.Annotations = map[string]string{AnnotationObjective: tc.text}
		}
		o, said, _ := ObjectiveOf(p, tc.class)
		if got := o.RunQueueDelay.Or(0); got != tc.want || said != (tc.given && tc.text != "" && tc.faults == 0) {
			t.Errorf("%s: %v, said %v; want %v", name, got, said, tc.want)
		}
		if faults := Faults(p); len(faults) != tc.faults {
			t.Errorf("%s: faults %v, want %d", name, faults, tc.faults)
		}
	}
}
