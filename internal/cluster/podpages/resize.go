package podpages

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// resizeText describes the resize of a pod that the kubelet has not done. It
// returns "" if there is none.
func resizeText(p *corev1.Pod) string {
	c := stored.PendingResize(p)
	if c == nil {
		return ""
	}
	verb := "has not yet done"
	switch c.Reason {
	case corev1.PodReasonDeferred:
		verb = "has deferred"
	case corev1.PodReasonInfeasible:
		verb = "refuses"
	}
	text := "the kubelet " + verb + " the resize"
	if request, asked := kube.Native(p).CPURequest.Value(); asked && request%unit.CPUs(1) == 0 {
		text += " to " + table.Count(int(request/unit.CPUs(1)), "CPU")
	} else if asked {
		text += fmt.Sprintf(" to %v CPU", request)
	}
	return text + after(": ", strings.TrimRight(c.Message, ". "))
}
