package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAPodSaysHowLongItRuns(t *testing.T) {
	for _, c := range []struct {
		text     string
		deadline int64
		want     time.Duration // 0: not known
		faults   int
	}{
		{"6h", 0, 6 * time.Hour, 0},
		{"90m", 60, 90 * time.Minute, 0},
		{"", 3600, time.Hour, 0},
		{"", 0, 0, 0},
		{"", 1 << 60, 0, 0},
		{"6 hours", 3600, 0, 1},
		{"0s", 0, 0, 1},
		{"-1h", 0, 0, 1},
		{"6", 0, 0, 1},
	} {
		p := &corev1.Pod{}
		if c.text != "" {
			p.Annotations = map[string]string{AnnotationDuration: c.text}
		}
		if c.deadline != 0 {
			p.Spec.ActiveDeadlineSeconds = &c.deadline
		}
		got, faults := DurationOf(p)
		if got.Or(0) != c.want || got.Known() != (c.want != 0) || len(faults) != c.faults || len(Faults(p)) != c.faults {
			t.Errorf("%q, %d: %v, %v", c.text, c.deadline, got, faults)
		}
	}
}
