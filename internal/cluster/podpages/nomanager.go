package podpages

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// isUnnamed reports whether a pod asks for CPUs and names no scheduler. The
// webhook makes such a pod one of tenon-scheduler.
func isUnnamed(p candidate) bool {
	return p.demand != nil && !p.pinned && schedulers.Of(p.Pod) == corev1.DefaultSchedulerName
}

// placeUnnamed changes the answer for a pod of isUnnamed while tenon-manager does
// not run. The cluster's own scheduler then places the pod by its requests only,
// so the pod does not wait for CPUs.
func (c *Cluster) placeUnnamed(page *FitPage, f *FitPod, p candidate, want *manifest.Wanted) {
	if f.Answer == FitPlaced {
		page.NotLookedAt = append(page.NotLookedAt, fmt.Sprintf(
			"which node %s gets: while tenon-manager does not run, the cluster's own scheduler chooses it without a look at CPUs, and the node then chooses the CPUs if it can", want.Name))
		return
	}
	p.demand = nil
	answers := c.askAll(p)
	if len(answers) == 0 || len(answers[0].why) > 0 {
		return // it waits for its requests
	}
	f.Answer, f.Node, f.starts = FitUnmet, answers[0].node.Name, true
	answers[0].node.take(p.Pod)
	f.Reasons = append([]Reason{{Why: fmt.Sprintf(
		"no webhook names tenon-scheduler in the pod, because %s; so the pod goes to the cluster's own scheduler, and has no CPUs of its own until its node can give them (if that scheduler has the plugin TenonCPUs itself, the pod waits)", want.NoManager)}}, f.Reasons...)
}
