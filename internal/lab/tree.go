package lab

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// Root is the cgroup under which the lab builds its copy of kubelet's tree.
const Root node.CgroupPath = "tenon-lab"

// A pods value is kubelet's cgroup tree with the two pods of the experiment:
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
type pods struct {
	root      node.CgroupPath
	burstable bool   // the batch pod has CPU requests
	job       string // what the batch work is called; empty: ffmpeg
	tested    unit.CPUSet
}

func (p pods) kubepods() node.CgroupPath { return p.root.Join("kubepods") }

// sensitive is where the service's class meets the others.
func (p pods) sensitive() node.CgroupPath { return p.kubepods().Join("burstable") }

// batch is where the batch work's class meets the others.
func (p pods) batch() node.CgroupPath {
	if p.burstable {
		return p.sensitive()
	}
	return p.kubepods().Join("besteffort")
}

func (p pods) nginxPod() node.CgroupPath { return p.sensitive().Join("pod-nginx") }
func (p pods) jobPod() node.CgroupPath   { return p.batch().Join("pod-" + p.jobName()) }
func (p pods) nginx() node.CgroupPath    { return p.nginxPod().Join("nginx") }
func (p pods) jobGroup() node.CgroupPath { return p.jobPod().Join(p.jobName()) }
func (p pods) spinner() node.CgroupPath  { return p.root.Join("spinner") }
func (p pods) jobName() string           { return cmp.Or(p.job, "ffmpeg") }

// workloads describes the pods to Tenon as its Kubernetes adapter would.
func (p pods) workloads() []node.Workload {
	return []node.Workload{
		{ID: "nginx", Class: node.LS, Cgroup: p.nginxPod(), Meet: p.sensitive()},
		{ID: node.WorkloadID(p.jobName()), Class: node.BE, Cgroup: p.jobPod(), Meet: p.batch()},
	}
}

// A weighed group is a cgroup and the cpu.shares that kubelet gives it.
type weighed struct {
	path   node.CgroupPath
	shares int64
}

// groups lists the cgroups from the top down.
func (p pods) groups() []weighed {
	all := unit.CPUs(p.tested.Len())
	service, request := sharesOf(all), unit.MilliCPU(0)
	if p.burstable {
		request = batchRequest(p.tested.Len())
	}
	batch := sharesOf(request)
	list := []weighed{
		{p.kubepods(), sharesOf(all)},
		{p.sensitive(), sharesOf(all + request)},
		{p.nginxPod(), service},
		{p.nginx(), service},
	}
	if !p.burstable {
		list = append(list, weighed{p.batch(), batch})
	}
	return append(list, weighed{p.jobPod(), batch}, weighed{p.jobGroup(), batch})
}

// sharesOf is kubelet's MilliCPUToShares (pkg/kubelet/cm/helpers_linux.go).
func sharesOf(m unit.MilliCPU) int64 {
	return min(max(int64(m)*1024/1000, unit.MinShares), unit.MaxShares)
}

// weightOf is what a group with these shares gets: on cgroup v2 kubelet maps
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

// build makes the tree and gives each group what kubelet would.
func (p pods) build(m maker, t *cgroup.Tree) error {
	if err := m.MakeGroup(p.root); err != nil {
		return err
	}
	// Before there are children: on cgroup v1 they copy the set when they are
	// made, and then keep their parent from shrinking; on v2 they follow it.
	if err := t.WriteCPUs(string(p.root), p.tested); err != nil {
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

// buildSpinner makes the group of the spinner beside kubepods: idle, so that
// everything else comes first.
func (p pods) buildSpinner(m maker, t *cgroup.Tree) error {
	if err := m.MakeGroup(p.spinner()); err != nil {
		return err
	}
	err := t.WriteCPUWeight(string(p.spinner()), cgroup.CPUWeight{Idle: true})
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // the spinner's own SCHED_IDLE must do
	}
	return err
}

// clear removes every group below root, and root: all of them are the lab's.
// Processes that are still inside are ended: nginx's workers when their
// master was killed, for instance.
func clear(root node.CgroupPath, m maker, t *cgroup.Tree) error {
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
