package site

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

// Root is the cgroup under which the lab builds its copy of kubelet's tree.
const Root node.CgroupPath = "tenon-lab"

// A Pods value is kubelet's cgroup tree with the two pods of the experiment:
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
	Root      node.CgroupPath
	Burstable bool   // the batch pod has CPU requests
	Job       string // name of the batch work; empty: ffmpeg
	Tested    unit.CPUSet
}

func (p Pods) kubepods() node.CgroupPath { return p.Root.Join("kubepods") }

// sensitive is where the service's class meets the others.
func (p Pods) sensitive() node.CgroupPath { return p.kubepods().Join("burstable") }

// Batch is where the batch work's class meets the others.
func (p Pods) Batch() node.CgroupPath {
	if p.Burstable {
		return p.sensitive()
	}
	return p.kubepods().Join("besteffort")
}

// NGINXPod is the cgroup of the service's pod.
func (p Pods) NGINXPod() node.CgroupPath { return p.sensitive().Join("pod-nginx") }

// JobPod is the cgroup of the batch work's pod.
func (p Pods) JobPod() node.CgroupPath { return p.Batch().Join("pod-" + p.jobName()) }

// NGINX is the cgroup of the service's container.
func (p Pods) NGINX() node.CgroupPath { return p.NGINXPod().Join("nginx") }

// JobGroup is the cgroup of the batch work's container.
func (p Pods) JobGroup() node.CgroupPath { return p.JobPod().Join(p.jobName()) }

// Spinner is the cgroup of the spinner.
func (p Pods) Spinner() node.CgroupPath { return p.Root.Join("spinner") }
func (p Pods) jobName() string          { return cmp.Or(p.Job, "ffmpeg") }

// Workloads describes the pods to Tenon as its Kubernetes adapter would.
func (p Pods) Workloads() []node.Workload {
	return []node.Workload{
		{ID: "nginx", Class: node.LS, Cgroup: p.NGINXPod(), ContentionRoot: p.sensitive()},
		{ID: node.WorkloadID(p.jobName()), Class: node.BE, Cgroup: p.JobPod(), ContentionRoot: p.Batch()},
	}
}

// A weighed group is a cgroup and the cpu.shares that kubelet gives it.
type weighed struct {
	path   node.CgroupPath
	shares int64
}

// groups lists the cgroups from the top down.
func (p Pods) groups() []weighed {
	all := unit.CPUs(p.Tested.Len())
	service, request := sharesOf(all), unit.MilliCPU(0)
	if p.Burstable {
		request = batchRequest(p.Tested.Len())
	}
	batch := sharesOf(request)
	list := []weighed{
		{p.kubepods(), sharesOf(all)},
		{p.sensitive(), sharesOf(all + request)},
		{p.NGINXPod(), service},
		{p.NGINX(), service},
	}
	if !p.Burstable {
		list = append(list, weighed{p.Batch(), batch})
	}
	return append(list, weighed{p.JobPod(), batch}, weighed{p.JobGroup(), batch})
}

// sharesOf is kubelet's MilliCPUToShares (pkg/kubelet/cm/helpers_linux.go).
func sharesOf(m unit.MilliCPU) int64 {
	return min(max(int64(m)*1024/1000, unit.MinShares), unit.MaxShares)
}

// weightOf returns the weight for these shares: on cgroup v2 the kubelet maps
// 2..262144 linearly to 1..10000 (CPUSharesToCPUWeight), which is not the
// kernel's own scale.
func weightOf(shares int64, version int) unit.Weight {
	if version == 1 {
		return unit.WeightOfShares(shares)
	}
	return unit.WeightOf(1 + (shares-2)*9999/262142)
}

// A maker makes and removes cgroups under the journal; *host.Host.
type maker interface {
	MakeGroup(p node.CgroupPath) error
	RemoveGroup(p node.CgroupPath) error
}

// Build makes the tree with the kubelet's values.
func (p Pods) Build(m maker, t *cgroup.Tree) error {
	if err := m.MakeGroup(p.Root); err != nil {
		return err
	}
	// Before there are children: on cgroup v1 they copy the set when they are
	// made, and then keep their parent from shrinking; on v2 they follow it.
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

// BuildSpinner makes the cgroup of the spinner beside kubepods: idle, so that
// all other work precedes it.
func (p Pods) BuildSpinner(m maker, t *cgroup.Tree) error {
	if err := m.MakeGroup(p.Spinner()); err != nil {
		return err
	}
	err := t.WriteCPUWeight(string(p.Spinner()), cgroup.CPUWeight{Idle: true})
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // the spinner's own SCHED_IDLE must do
	}
	return err
}

// Clear removes every group below root, and root: all of them are the lab's.
// Processes that are still inside are ended: nginx's workers when their
// master was killed, for instance.
func Clear(root node.CgroupPath, m maker, t *cgroup.Tree) error {
	if !t.Exists(string(root)) {
		return nil
	}
	deadline := time.Now().Add(3 * time.Second)
	for {
		left, err := killAll(t, root)
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("clear cgroup %s: %d processes do not end: %w", root, left, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return removeAll(root, m, t)
}

func killAll(t *cgroup.Tree, p node.CgroupPath) (left int, err error) {
	pids, err := t.Procs(string(p))
	for _, pid := range pids {
		left++
		err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}
	children, _ := t.Children(string(p))
	for _, c := range children {
		n, e := killAll(t, p.Join(c))
		left, err = left+n, errors.Join(err, e)
	}
	return left, err
}

func removeAll(p node.CgroupPath, m maker, t *cgroup.Tree) error {
	children, _ := t.Children(string(p))
	for _, c := range children {
		if err := removeAll(p.Join(c), m, t); err != nil {
			return err
		}
	}
	return m.RemoveGroup(p)
}

// batchRequest is what the burstable batch pod requests: 50 CPUs beside a
// service of 80, as in the published experiment without priorities.
func batchRequest(tested int) unit.MilliCPU { return unit.CPUs(tested) * 50 / 80 }
