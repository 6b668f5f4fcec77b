package daemon

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/model/node"
)

// A podView is the loop's view of the node's pods.
type podView struct {
	workloads []node.Workload
	arriving  []node.Workload // pods without a cgroup
	status    nodereport.Pods
	// running are the pods of all classes that have started and not ended.
	running []*corev1.Pod
	// pods are the pods that the API server can evict, by cgroup.
	pods map[node.CgroupPath]endable
	// native are the limits that the kubelet enforces for each pod and
	// container.
	native map[node.CgroupPath]kube.Amounts
	// before is native at the last time when the journal was correct.
	before map[node.CgroupPath]kube.Amounts
	// change corrects a journaled value for resizes since then.
	change func(node.Knob, node.Value) node.Value
}

// natives returns the limits that the kubelet enforces for each pod and
// container.
func natives(pods []corev1.Pod, l kube.Layout) map[node.CgroupPath]kube.Amounts {
	all := make(map[node.CgroupPath]kube.Amounts, len(pods))
	for i := range pods {
		if p := &pods[i]; !kube.Ended(p) {
			maps.Copy(all, kube.Natives(p, l))
		}
	}
	return all
}

// rebased takes the result of a rebase by view.change. After an error the saved
// and the current pods stay different, so that the next rebase corrects the journal.
func (c *cluster) rebased(err error) {
	if err == nil {
		c.keep()
		return
	}
	c.log.Warn("a release of knobs would restore limits from before pods were resized", "error", err)
	maps.Copy(c.view.native, c.view.before)
}

// workloads returns the known pods as workloads.
func (c *cluster) workloads() []node.Workload {
	known := c.pods.Known()
	before := c.view.native
	if before == nil { // from an earlier daemon
		before = natives(c.last.Pods, c.layout())
	}
	c.take(known)
	l := c.layout()
	exists := func(p node.CgroupPath) bool { return c.tree.Exists(string(p)) }
	v := podView{pods: map[node.CgroupPath]endable{}, native: natives(c.last.Pods, l), before: before, arriving: kube.Arriving(c.last.Pods, l, exists)}
	var remarks []string
	v.workloads, remarks = kube.Workloads(c.last.Pods, l, exists)
	c.cfg.spaces.Apply(v.workloads)
	remarks = append(remarks, unbind(v.workloads, c.last.Facts)...)
	remarks = append(remarks, c.unsent...)
	of := map[node.CgroupPath]*corev1.Pod{}
	living := 0
	for i := range c.last.Pods {
		p := &c.last.Pods[i]
		if kube.Ended(p) {
			continue
		}
		living++
		of[l.Pod(p)] = p
	}
	for i := range v.workloads {
		w := &v.workloads[i]
		p := of[w.Cgroup]
		if p == nil {
			continue
		}
		v.running = append(v.running, p)
		if !evictable(p) {
			continue
		}
		grace := graceOf(p)
		v.pods[w.Cgroup] = endable{apiserver.PodName{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, grace}
		w.Grace, w.EvictionExempt = node.Some(grace), c.evictions.exempt(p.UID)
	}
	v.status = nodereport.Pods{From: known.From, At: known.At, Trouble: known.Trouble, Unmanaged: living - len(v.workloads), Remarks: remarks}
	c.resized = resized(c.resized, before, v.native, time.Now())
	v.change = rebase(before, v.native, c.resized, c.last.Facts.NoQuotas)
	c.view = v
	c.evictions.follow(v.pods)
	return v.workloads
}

// binds reports whether a kubelet assigns CPUs to containers itself.
func binds(f kubelet.Facts) bool { return f.CPUManagerPolicy == "static" }

// unbind leaves the CPUs of pods to a kubelet that assigns them itself, because
// two owners would overwrite each other.
func unbind(workloads []node.Workload, f kubelet.Facts) (remarks []string) {
	if !binds(f) {
		return nil
	}
	for i := range workloads {
		if w := &workloads[i]; w.Class == node.LSE || w.Class == node.LSR {
			remarks = append(remarks, fmt.Sprintf("pod %s is %s and is treated as LS: the kubelet binds CPUs here (cpuManagerPolicy: static)", w.ID, w.Class))
			w.Class = node.LS
		}
	}
	return remarks
}

// graceMargin is the time after a pod's grace period until Tenon ends its
// remaining processes. The kubelet also ends them, but needs a moment for that.
const graceMargin = 5 * time.Second

func graceOf(p *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	return time.Duration(seconds)*time.Second + graceMargin
}

// evictable reports whether the API server can evict a pod. It cannot evict a
// static pod.
func evictable(p *corev1.Pod) bool {
	source := p.Annotations["kubernetes.io/config.source"]
	return p.UID != "" && p.Annotations[corev1.MirrorPodAnnotationKey] == "" && (source == "" || source == "api")
}

// beside drops workloads of rules whose cgroup contains, or lies in, the cgroup
// of a pod, because the pod determines the class there.
func beside(rules, pods []node.Workload) (left []node.Workload, remarks []string) {
	for _, w := range rules {
		i := slices.IndexFunc(pods, func(p node.Workload) bool { return p.Cgroup.Contains(w.Cgroup) || w.Cgroup.Contains(p.Cgroup) })
		if i < 0 {
			left = append(left, w)
			continue
		}
		remarks = append(remarks, fmt.Sprintf("rule %q takes %s, which belongs to pod %s: the pod determines its class itself", w.Rule, w.Cgroup, pods[i].ID))
	}
	return left, remarks
}
