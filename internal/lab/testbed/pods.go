package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Root is the cgroup below which the lab builds a copy of the kubelet's tree.
const Root node.CgroupPath = "tenon-lab"

// Pods is the kubelet's cgroup tree with the two pods of the experiment:
//
//	kubepods                                 cpu.shares of all allocatable CPUs
//	├── burstable                            sum of the requests of its pods
//	│   ├── pod-nginx/nginx                  requests = tested CPUs, no limit
//	│   └── pod-ffmpeg/ffmpeg                only with requests (burstable mode)
//	└── besteffort                           shares 2
//	    └── pod-ffmpeg/ffmpeg                shares 2
//
// (kubernetes: pkg/kubelet/cm/qos_container_manager_linux.go setCPUCgroupConfig,
// helpers_linux.go ResourceConfigForPod.)
type Pods struct {
	Root    node.CgroupPath
	Request unit.MilliCPU // CPU request of the batch pod; 0: it is BestEffort
	Service string        // name of the service; empty: nginx
	Job     string        // name of the batch work; empty: ffmpeg
	Tested  unit.CPUSet
}

func (p Pods) kubepods() node.CgroupPath { return p.Root.Join("kubepods") }

// serviceRoot is the contention root of the service's class.
func (p Pods) serviceRoot() node.CgroupPath { return p.kubepods().Join("burstable") }

// Batch is the contention root of the batch work's class.
func (p Pods) Batch() node.CgroupPath {
	if p.Request > 0 {
		return p.serviceRoot()
	}
	return p.kubepods().Join("besteffort")
}

// NGINXPod returns the cgroup of the service's pod.
func (p Pods) NGINXPod() node.CgroupPath { return p.serviceRoot().Join("pod-" + p.ServiceName()) }

// JobPod returns the cgroup of the batch work's pod.
func (p Pods) JobPod() node.CgroupPath { return p.Batch().Join("pod-" + p.JobName()) }

// NGINX returns the cgroup of the service's container.
func (p Pods) NGINX() node.CgroupPath { return p.NGINXPod().Join(p.ServiceName()) }

// JobGroup returns the cgroup of the batch work's container.
func (p Pods) JobGroup() node.CgroupPath { return p.JobPod().Join(p.JobName()) }

// Spinner returns the cgroup of the spinner.
func (p Pods) Spinner() node.CgroupPath { return p.Root.Join("spinner") }

// JobName returns the name of the batch work.
func (p Pods) JobName() string { return cmp.Or(p.Job, "ffmpeg") }

// ServiceName returns the name of the service.
func (p Pods) ServiceName() string { return cmp.Or(p.Service, "nginx") }

// Workloads describes the pods as Tenon describes pods of a cluster.
func (p Pods) Workloads() []node.Workload {
	return []node.Workload{
		{ID: node.WorkloadID(p.ServiceName()), Class: node.LS, Cgroup: p.NGINXPod(), ContentionRoot: p.serviceRoot()},
		{ID: node.WorkloadID(p.JobName()), Class: node.BE, Cgroup: p.JobPod(), ContentionRoot: p.Batch()},
	}
}

// A weightedGroup is a cgroup and the cpu.shares that the kubelet gives it.
type weightedGroup struct {
	path   node.CgroupPath
	shares int64
}

// groups lists the cgroups, parents first.
func (p Pods) groups() []weightedGroup {
	all := unit.CPUs(p.Tested.Len())
	service, batch := sharesOf(all), sharesOf(p.Request)
	list := []weightedGroup{
		{p.kubepods(), sharesOf(all)},
		{p.serviceRoot(), sharesOf(all + p.Request)},
		{p.NGINXPod(), service},
		{p.NGINX(), service},
	}
	if p.Request == 0 {
		list = append(list, weightedGroup{p.Batch(), batch})
	}
	return append(list, weightedGroup{p.JobPod(), batch}, weightedGroup{p.JobGroup(), batch})
}

// sharesOf computes cpu.shares as MilliCPUToShares of the kubelet does
// (pkg/kubelet/cm/helpers_linux.go).
func sharesOf(m unit.MilliCPU) int64 {
	return min(max(int64(m)*1024/1000, unit.MinShares), unit.MaxShares)
}

// weightOf converts cpu.shares to a weight. On cgroup v2 it uses the scale of
// the kubelet, which maps 2..262144 linearly to 1..10000
// (CPUSharesToCPUWeight).
func weightOf(shares int64, version int) unit.Weight {
	if version == 1 {
		return unit.WeightOfShares(shares)
	}
	return unit.WeightOf(1 + (shares-2)*9999/262142)
}

// A maker creates and removes cgroups, and records this in the journal.
// *host.Host implements it.
type maker interface {
	MakeGroup(p node.CgroupPath) error
	RemoveGroup(p node.CgroupPath) error
}

// Build makes the tree with the values that the kubelet sets.
func (p Pods) Build(m maker, t *cgroup.Tree) error {
	if err := m.MakeGroup(p.Root); err != nil {
		return err
	}
	// Set the CPUs before there are children. On cgroup v1 a new child copies
	// the CPUs of its parent, and after that the parent cannot have fewer CPUs.
	// On v2 a child has the CPUs of its parent.
	if err := t.WriteCPUs(string(p.Root), p.Tested); err != nil {
		return err
	}
	for _, g := range p.groups() {
		if err := m.MakeGroup(g.path); err != nil {
			return err
		}
		if err := t.WriteCPUWeight(string(g.path), cgroup.CPUWeight{Weight: weightOf(g.shares, t.Version())}); err != nil {
			return err
		}
	}
	return nil
}

// BatchGroups lists the cgroups of the batch work that get the weight of its CPU
// request: that of its class, whose only pod it is, that of the pod, and that of the
// container.
func (p Pods) BatchGroups() []node.CgroupPath {
	return []node.CgroupPath{p.Batch(), p.JobPod(), p.JobGroup()}
}

// WeightOfRequest returns the weight that the kubelet gives a pod with a CPU request.
func WeightOfRequest(request unit.MilliCPU, version int) cgroup.CPUWeight {
	return cgroup.CPUWeight{Weight: weightOf(sharesOf(request), version)}
}

// BuildSpinner makes the cgroup of the spinner as a sibling of kubepods. It has
// the least weight, or is idle, so that all other work runs before it.
func (p Pods) BuildSpinner(m maker, t *cgroup.Tree, leastWeight bool) error {
	if err := m.MakeGroup(p.Spinner()); err != nil {
		return err
	}
	if leastWeight {
		return t.WriteCPUWeight(string(p.Spinner()), cgroup.CPUWeight{Weight: weightOf(unit.MinShares, t.Version())})
	}
	err := t.WriteCPUWeight(string(p.Spinner()), cgroup.CPUWeight{Idle: true})
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // the spinner's policy SCHED_IDLE must suffice
	}
	return err
}

// Clear removes root and every cgroup below it. All of them belong to the lab.
// It kills the processes that are still in them, such as nginx's workers after
// their master was killed.
func Clear(root node.CgroupPath, m maker, t *cgroup.Tree) error {
	return clearBut(root, "", m, t)
}

// ClearBatch removes every cgroup except the service's cgroup and its parents.
func (p Pods) ClearBatch(m maker, t *cgroup.Tree) error { return clearBut(p.Root, p.NGINX(), m, t) }

// clearBut removes root and every cgroup below it. If there is a cgroup keep,
// it leaves keep, the parents of keep, and all cgroups below keep as they are.
func clearBut(root, keep node.CgroupPath, m maker, t *cgroup.Tree) error {
	if !t.Exists(string(root)) {
		return nil
	}
	if keep != "" && !t.Exists(string(keep)) {
		keep = ""
	}
	deadline := time.Now().Add(3 * time.Second)
	for {
		left, err := killAll(t, root, keep)
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("clear cgroup %s: %d processes have not ended: %w", root, left, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return removeAll(root, keep, m, t)
}

// isKept reports whether p is the cgroup keep, or one of its parents.
func isKept(p, keep node.CgroupPath) bool { return keep != "" && p.Contains(keep) }

func killAll(t *cgroup.Tree, p, keep node.CgroupPath) (left int, err error) {
	if !isKept(p, keep) {
		var pids []int
		pids, err = t.Procs(string(p))
		for _, pid := range pids {
			left++
			err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
		}
	}
	if p == keep {
		return left, err // the service has made cgroups below it
	}
	children, e := t.Children(string(p))
	if !errors.Is(e, cgroup.ErrGone) {
		err = errors.Join(err, e)
	}
	for _, c := range children {
		n, e := killAll(t, p.Join(c), keep)
		left, err = left+n, errors.Join(err, e)
	}
	return left, err
}

func removeAll(p, keep node.CgroupPath, m maker, t *cgroup.Tree) error {
	if p == keep {
		return nil
	}
	children, err := t.Children(string(p))
	if errors.Is(err, cgroup.ErrGone) {
		err = nil
	}
	for _, c := range children {
		err = errors.Join(err, removeAll(p.Join(c), keep, m, t))
	}
	if err != nil || isKept(p, keep) {
		return err
	}
	return m.RemoveGroup(p)
}
