package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/model/node"
)

// A podView is the loop's knowledge of the node's pods.
type podView struct {
	workloads []node.Workload
	arriving  []node.Workload // pods that have no cgroup yet
	status    nodereport.Pods
	// running lists the pods of all classes that have started and not ended.
	running []*corev1.Pod
	// pods maps cgroups to the pods that the API server can evict.
	pods map[node.CgroupPath]evictablePod
	// metrics maps the pods with an objective for requests to the place of their metrics.
	metrics map[node.WorkloadID]metricsPlace
	// native maps the cgroups of pods and containers to the limits that the kubelet enforces.
	native map[node.CgroupPath]kube.Amounts
	// lastCorrect is the value that native had when the original values in the
	// journal were last correct.
	lastCorrect map[node.CgroupPath]kube.Amounts
	// change corrects a value of the journal. It returns nil unless the pod was
	// resized after the value was journaled.
	change func(node.Knob, node.Value) node.Value
}

// natives maps the cgroups of pods and containers to the limits that the kubelet enforces.
func natives(pods []corev1.Pod, l kube.Layout) map[node.CgroupPath]kube.Amounts {
	all := make(map[node.CgroupPath]kube.Amounts, len(pods))
	for i := range pods {
		if p := &pods[i]; !kube.HasEnded(p) {
			maps.Copy(all, kube.Natives(p, l))
		}
	}
	return all
}

// objectiveOf returns the objective in force of a pod of the given class: that of
// its annotation, or otherwise that of the ConfigMap. Only latency-sensitive pods
// have one.
func objectiveOf(p *corev1.Pod, class node.Class, byConfigMap config.PodObjectives) node.Objective {
	if !class.Sensitive() {
		return node.Objective{}
	}
	o, said, _ := kube.ObjectiveOf(p, class)
	if !said {
		o = byConfigMap.Of(p.Namespace, p.Labels)
	}
	return byConfigMap.Limit(o)
}

// A metricsPlace is where a pod shows its metrics: its address, or the reason why
// its requests must not be read. The address is empty for the sources query and socket.
type metricsPlace struct {
	address string
	trouble node.SourceTrouble
}

// metricsOf returns where a pod with an objective shows its metrics. A pod with the
// network of its node could name a port of any program there.
func metricsOf(p *corev1.Pod, o node.RequestObjective, byConfigMap config.PodObjectives) metricsPlace {
	ip, err := netip.ParseAddr(p.Status.PodIP)
	switch why := byConfigMap.Refuses(o); {
	case why != "":
		return metricsPlace{trouble: why}
	case o.Source == node.SourceQuery, o.Source == node.SourceSocket: // a port of the node belongs to the pod as well if its cgroup has the connection
		return metricsPlace{}
	case p.Spec.HostNetwork:
		return metricsPlace{trouble: node.TroubleHostNetwork}
	case err != nil, !ip.IsGlobalUnicast(): // without an address, or with one of the node or of its metadata service
		return metricsPlace{trouble: node.TroubleNoAddress}
	}
	return metricsPlace{address: ip.String()}
}

// Metrics returns the address at which a pod of the last Workloads shows its
// metrics, or the reason why its requests must not be read.
func (c *Follower) Metrics(pod node.WorkloadID) (address string, why node.SourceTrouble) {
	m := c.view.metrics[pod]
	return m.address, m.trouble
}

// noteRebase receives the result of a correction of the journal (view.change).
// After an error, it restores in native the limits for which the journal is
// correct. So the next tick finds the same difference and tries again.
func (c *Follower) noteRebase(err error) {
	if err == nil {
		c.keep()
		return
	}
	c.log.Warn("a release of knobs would restore limits from before pods were resized", "error", err)
	maps.Copy(c.view.native, c.view.lastCorrect)
}

// workloads returns the known pods as workloads.
func (c *Follower) workloads() []node.Workload {
	known := c.pods.Known()
	before := c.view.native
	if before == nil { // from an earlier daemon
		before = natives(c.last.Pods, c.layout())
	}
	c.take(known)
	l := c.layout()
	exists := func(p node.CgroupPath) bool { return c.tree.Exists(string(p)) }
	v := podView{pods: map[node.CgroupPath]evictablePod{}, metrics: map[node.WorkloadID]metricsPlace{}, native: natives(c.last.Pods, l), lastCorrect: before, arriving: kube.Arriving(c.last.Pods, l, exists)}
	queries := false
	var remarks []string
	v.workloads, remarks = kube.Workloads(c.last.Pods, l, exists)
	c.cfg.spaces.Apply(v.workloads)
	remarks = append(remarks, unbind(v.workloads, c.last.Facts)...)
	remarks = append(remarks, c.unsent...)
	of := c.podsByCgroup(l)
	remarks = append(remarks, c.giveUp(v.workloads, of)...)
	for i := range v.workloads {
		w := &v.workloads[i]
		p := of[w.Cgroup]
		if p == nil {
			continue
		}
		w.Objective = objectiveOf(p, w.Class, c.cfg.node.Objectives)
		if o := w.Objective.Requests; o.Stated() {
			v.metrics[w.ID] = metricsOf(p, o, c.cfg.node.Objectives)
			queries = queries || o.Source == node.SourceQuery
		}
		v.running = append(v.running, p)
		if !evictable(p) {
			continue
		}
		grace := graceOf(p)
		v.pods[w.Cgroup] = evictablePod{apiserver.PodName{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, grace}
		w.Grace, w.EvictionExempt = node.Some(grace), c.evictions.exempt(p.UID)
	}
	alone := c.ignored(l, exists)
	v.running = append(v.running, alone...)
	c.tellIgnored(alone)
	v.status = nodereport.Pods{From: known.From, At: known.At, Trouble: known.Trouble, ByClass: map[node.Class]int{}, Unmanaged: len(of) - len(v.workloads), Remarks: remarks}
	v.status.Containers = whereContainersAre(c.last.Pods, l, v.workloads, exists)
	for i := range v.workloads {
		v.status.ByClass[v.workloads[i].Class]++
	}
	c.resized = addResized(c.resized, before, v.native, time.Now())
	v.change = rebase(before, v.native, c.resized, c.last.Facts.NoQuotas)
	c.queries.Store(queries)
	c.view = v
	c.evictions.follow(v.pods)
	return v.workloads
}

// ignored returns the running pods that Tenon leaves alone. The scheduler counts
// the batch resources that they request, so these must stay in the node status.
func (c *Follower) ignored(l kube.Layout, exists func(node.CgroupPath) bool) (all []*corev1.Pod) {
	for i := range c.last.Pods {
		if p := &c.last.Pods[i]; kube.IsIgnored(p) && !kube.HasEnded(p) && exists(l.Pod(p)) {
			all = append(all, p)
		}
	}
	return all
}

// tellIgnored tells the plugin of the container runtime which pods Tenon leaves
// alone.
func (c *Follower) tellIgnored(pods []*corev1.Pod) {
	if len(pods) == 0 {
		c.alone.Store(nil)
		return
	}
	uids := make(map[string]bool, len(pods))
	for _, p := range pods {
		uids[kube.UID(p)] = true
	}
	c.alone.Store(&uids)
}

// whereContainersAre compares the cgroups of the containers of a node with those
// of their pods. exists reports whether a cgroup exists.
func whereContainersAre(pods []corev1.Pod, l kube.Layout, workloads []node.Workload, exists func(node.CgroupPath) bool) (at nodereport.Containers) {
	other := l
	other.Systemd = !l.Systemd
	for i := range pods {
		p := &pods[i]
		if kube.HasEnded(p) {
			continue
		}
		expected, before := l.Pod(p), other.Pod(p)
		moved := !exists(expected) && exists(before)
		for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if st.State.Running == nil {
				continue
			}
			at.Running, at.Expected = at.Running+1, expected
			if moved {
				at.OtherDriver, at.Example = at.OtherDriver+1, before
			}
		}
	}
	for i := range workloads {
		for _, c := range workloads[i].Containers {
			if workloads[i].Cgroup.Contains(c.Cgroup) {
				at.Inside++
			} else {
				at.Outside, at.Example = at.Outside+1, c.Cgroup
			}
		}
	}
	return at
}

// binder returns which other component assigns CPUs to containers on this node:
// a name for the report, and a sentence. Both are "" without such a component.
func binder(f kubelet.Facts) (name, reason string) {
	switch {
	case f.CPUManagerPolicy == "static":
		return "static", "the kubelet binds CPUs here (cpuManagerPolicy: static)"
	case f.CPUDriver != "":
		return "dra", "the driver " + f.CPUDriver + " binds CPUs here"
	}
	return "", ""
}

// unbind removes the CPU demands of pods if the kubelet or a driver assigns
// CPUs. Otherwise Tenon and that component would overwrite each other's cpusets.
func unbind(workloads []node.Workload, f kubelet.Facts) (remarks []string) {
	_, why := binder(f)
	if why == "" {
		return nil
	}
	for i := range workloads {
		w := &workloads[i]
		switch {
		case w.Class == node.LSE || w.Class == node.LSR:
			remarks = append(remarks, fmt.Sprintf("pod %s is %s and is treated as LS: %s", w.ID, w.Class, why))
		case hold.Demands(w):
			remarks = append(remarks, fmt.Sprintf("pod %s demands CPUs and gets none: %s", w.ID, why))
		}
		withoutCPUs(w)
	}
	return remarks
}

// isDeleted reports whether a pod that is missing in a list was deleted. The
// list of the API server has all pods except static ones. A kubelet that has
// just started may list only some pods: it learns them in the order of their
// creation (pkg/kubelet: HandlePodAdditions). So if it lists a newer pod, the
// missing pod was deleted. isDeleted returns false for static pods, because
// they come from another source, without a time of creation.
func isDeleted(p *corev1.Pod, known kubelet.Known) bool {
	if !isFromAPI(p) {
		return false
	}
	return known.From == "API server" || slices.ContainsFunc(known.Pods, func(o corev1.Pod) bool {
		return o.Annotations["kubernetes.io/config.source"] == "api" && p.CreationTimestamp.Time.Before(o.CreationTimestamp.Time)
	})
}

// podsByCgroup returns the known pods that have not ended, by cgroup.
func (c *Follower) podsByCgroup(l kube.Layout) map[node.CgroupPath]*corev1.Pod {
	of := make(map[node.CgroupPath]*corev1.Pod, len(c.last.Pods))
	for i := range c.last.Pods {
		if p := &c.last.Pods[i]; !kube.HasEnded(p) {
			of[l.Pod(p)] = p
		}
	}
	return of
}

// giveUp takes the CPUs away from pods that were deleted by force but still
// have processes. A scheduler may already have given these CPUs to other pods.
func (c *Follower) giveUp(workloads []node.Workload, of map[node.CgroupPath]*corev1.Pod) (remarks []string) {
	for i := range workloads {
		w := &workloads[i]
		p := of[w.Cgroup]
		if p == nil || !c.deleted[kube.UID(p)] || !hold.Demands(w) {
			continue
		}
		remarks = append(remarks, fmt.Sprintf("pod %s was deleted and gave up its CPUs: its processes share those that no pod owns until they end", w.ID))
		withoutCPUs(w)
	}
	return remarks
}

// withoutCPUs removes all CPU demands of a workload.
func withoutCPUs(w *node.Workload) {
	w.Overrides.CPUs = node.CPUOverride{}
	if w.Class == node.LSE || w.Class == node.LSR {
		w.Class = node.LS
	}
}

// graceMargin is the time that Tenon waits after the end of a pod's grace
// period. At that end, the kubelet kills the pod's processes, which takes a
// moment. Tenon kills the processes that are left after graceMargin.
const graceMargin = 5 * time.Second

func graceOf(p *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	return time.Duration(seconds)*time.Second + graceMargin
}

// evictable reports whether the API server can evict a pod. It cannot evict static pods.
func evictable(p *corev1.Pod) bool { return p.UID != "" && isFromAPI(p) }

// isFromAPI reports whether the kubelet got a pod from the API server. Static
// pods and their mirror pods have another source.
func isFromAPI(p *corev1.Pod) bool {
	source := p.Annotations["kubernetes.io/config.source"]
	return p.Annotations[corev1.MirrorPodAnnotationKey] == "" && (source == "" || source == "api")
}

// dropPodCgroups drops a workload of a rule if its cgroup contains the cgroup
// of a pod or lies in one. There, the pods determine the class.
func dropPodCgroups(rules, pods []node.Workload) (left []node.Workload, remarks []string) {
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
