package policy

import (
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAContainerStartsInABoundedPodOnV1 bounds a BE pod of two containers with limits on
// cgroup v1, and ends one of them. The container runtime writes the limit of the new
// container, which the kernel refuses above the quota of the pod. So the pod must get
// this quota, the container that runs must keep the bound, and the bound must be back
// when the new one runs. The same without limits of the other containers.
func TestAContainerStartsInABoundedPodOnV1(t *testing.T) {
	for _, limited := range []bool{true, false} {
		n := newScene(machine(8, 1, 1, 1), 1)
		n.config.Suppress.Enable, n.config.Suppress.ThresholdPercent, n.config.Suppress.MinPercent = true, 50, 5
		n.add(node.Workload{ID: "shop/web", Class: node.LS, Cgroup: "kubepods/web", ContentionRoot: "kubepods/web"})
		const pod = node.CgroupPath("kubepods/burstable/job")
		n.add(node.Workload{ID: "shop/job", Class: node.BE, Cgroup: pod, ContentionRoot: pod, CPUManagedExternally: true})
		job := func() *node.Workload {
			return &n.snap.Workloads[slices.IndexFunc(n.snap.Workloads, func(w node.Workload) bool { return w.ID == "shop/job" })]
		}
		quota := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUMax} }
		now := func(p node.CgroupPath) node.CPUMax { return n.snap.Knobs.Now[quota(p)].(node.CPUMax) }
		start := func(name string, limit unit.MilliCPU) {
			t.Helper()
			p := pod.Join(name)
			n.makeGroup(p)
			c := node.Container{Name: name, Cgroup: p}
			if limit > 0 {
				if why := n.refusal(plan.Step{Knob: quota(p), To: node.Limit(limit)}); why != "" {
					t.Errorf("the container %s cannot start: %s", name, why)
				}
				n.snap.Knobs.Now[quota(p)] = node.Limit(limit)
				c.CPULimit = node.Some(limit)
			}
			job().Containers = append(job().Containers, c)
		}
		tick := func() {
			t.Helper()
			n.pass(spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"shop/web": 2000, "shop/job": 1500}})
			n.decide(t)
		}
		if limited {
			n.snap.Knobs.Now[quota(pod)] = node.Limit(6000) // what the kubelet writes: the sum of the limits
			start("first", 2000)
		} else {
			start("first", 0)
		}
		start("second", 4000)
		for range 3 {
			tick()
		}
		bound := now(pod)
		if !facts.IsQuota(bound) || facts.MilliOf(bound) >= 4000 {
			t.Fatalf("limited %v: the pod is not bounded: %v", limited, bound)
		}

		for k := range n.snap.Knobs.Now {
			if k.Cgroup == pod.Join("second") {
				delete(n.snap.Knobs.Now, k)
				delete(n.snap.Knobs.Before, k)
			}
		}
		job().Containers, job().StartLimit = job().Containers[:1:1], node.Some(unit.MilliCPU(4000))
		for range 4 {
			tick()
			if first := now(pod.Join("first")); !facts.IsQuota(first) || facts.MilliOf(first) > facts.MilliOf(bound)+500 {
				t.Errorf("limited %v: while the second container waits, the first one has %v, and the bound was %v", limited, first, bound)
			}
		}
		start("second", 4000)
		job().StartLimit = node.Maybe[unit.MilliCPU]{}
		for range 3 {
			tick()
		}
		if again := now(pod); !facts.IsQuota(again) || facts.MilliOf(again) > facts.MilliOf(bound)+500 || now(pod.Join("second")).CompareWidth(again) > 0 {
			t.Errorf("limited %v: with both containers again the pod has %v and the second one %v; the bound was %v", limited, again, now(pod.Join("second")), bound)
		}
	}
}

// TestAHeldBoundStaysHeldAfterAStartOnV1 has a service that waits while a container of a
// bounded BE pod waits to start on cgroup v1, and in the tick in which the container runs.
// BE must not grow then. The quota of the pod is raised for the start, and is no CPU that BE
// had: the pod must get the bound back that it had before.
func TestAHeldBoundStaysHeldAfterAStartOnV1(t *testing.T) {
	for _, running := range []int{0, 1} { // containers beside the one that starts
		n := newScene(machine(8, 1, 1, 1), 1)
		n.config.Suppress.Enable, n.config.Suppress.ThresholdPercent, n.config.Suppress.MinPercent = true, 50, 5
		n.add(node.Workload{ID: "shop/web", Class: node.LS, Cgroup: "kubepods/web", ContentionRoot: "kubepods/web"})
		const pod = node.CgroupPath("kubepods/burstable/job")
		job := node.Workload{ID: "shop/job", Class: node.BE, Cgroup: pod, ContentionRoot: pod, CPUManagedExternally: true}
		n.add(job)
		quota := node.Knob{Cgroup: pod, File: node.FileCPUMax}
		set := func(change func(*node.Workload)) {
			change(&n.snap.Workloads[slices.IndexFunc(n.snap.Workloads, func(w node.Workload) bool { return w.ID == "shop/job" })])
		}
		if running == 1 {
			n.makeGroup(pod.Join("first"))
			set(func(w *node.Workload) { w.Containers = []node.Container{{Name: "first", Cgroup: pod.Join("first")}} })
		}
		tick := func(web unit.MilliCPU, violated bool) unit.MilliCPU {
			t.Helper()
			n.pass(spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"shop/web": web, "shop/job": 1000}, violated: violated})
			n.decide(t)
			return facts.MilliOf(n.snap.Knobs.Now[quota].(node.CPUMax))
		}
		var bound unit.MilliCPU
		for range 5 {
			bound = tick(2500, false)
		}
		if bound < 1450 || bound > 1550 {
			t.Fatalf("%d running: the pod is bounded to %v, want about 1500m", running, bound)
		}

		set(func(w *node.Workload) { w.StartLimit = node.Some[unit.MilliCPU](3000) })
		for range 3 {
			if got := tick(2500, false); got != 3000 {
				t.Fatalf("%d running: while a container waits to start, the pod has %v, want 3000m", running, got)
			}
		}
		if got := tick(500, true); got != 3000 { // the service uses less, and waits
			t.Fatalf("%d running: while the service waits as well, the pod has %v, want 3000m", running, got)
		}
		second := node.Knob{Cgroup: pod.Join("second"), File: node.FileCPUMax}
		n.makeGroup(second.Cgroup)
		n.snap.Knobs.Now[second] = node.Limit(3000)
		set(func(w *node.Workload) {
			w.StartLimit = node.Maybe[unit.MilliCPU]{}
			w.Containers = append(slices.Clone(w.Containers), node.Container{Name: "second", Cgroup: second.Cgroup, CPULimit: node.Some[unit.MilliCPU](3000)})
		})
		if got := tick(500, true); got > bound {
			t.Errorf("%d running: the service waits, and the pod has %v after the start; the bound was %v", running, got, bound)
		}
		if got := tick(500, false); got > bound+unit.CPUs(8).Percent(suppress.Growth) {
			t.Errorf("%d running: a second later the pod has %v: that is more than the growth of a second beyond %v", running, got, bound)
		}
	}
}
