package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/concurrency/sweep"
	"tenon.sh/tenon/internal/model/unit"
)

// The names of the batch resources.
const (
	batchCPU    = "kubernetes.io/batch-cpu"
	batchMemory = "kubernetes.io/batch-memory"
)

// amounts are the resources of a node or of a pod.
type amounts struct {
	cpu         unit.MilliCPU
	memory      unit.Bytes
	batchCPU    unit.MilliCPU
	batchMemory unit.Bytes
	pods        int
}

func (a amounts) minus(b amounts) amounts {
	return amounts{a.cpu - b.cpu, a.memory - b.memory, a.batchCPU - b.batchCPU, a.batchMemory - b.batchMemory, a.pods - b.pods}
}

// amountsOf parses a list of resources of the API. A resource that the list
// does not name is 0.
func amountsOf(list map[string]string) (a amounts, err error) {
	read := func(name string, parse func(string) error) {
		if text := list[name]; text != "" && err == nil {
			if e := parse(text); e != nil {
				err = fmt.Errorf("%s %q: %w", name, text, e)
			}
		}
	}
	read("cpu", func(s string) (e error) { a.cpu, e = unit.ParseMilliCPU(s); return e })
	read("memory", func(s string) (e error) { a.memory, e = unit.ParseBytes(s); return e })
	read(batchMemory, func(s string) (e error) { a.batchMemory, e = unit.ParseBytes(s); return e })
	read(batchCPU, func(s string) error { // an amount of batch-cpu is in milli-CPUs
		n, e := unit.ParseBytes(s)
		a.batchCPU = unit.MilliCPU(n)
		return e
	})
	read("pods", func(s string) (e error) { a.pods, e = strconv.Atoi(s); return e })
	return a, err
}

// A testedNode is a node according to the cluster.
type testedNode struct {
	name   string
	cpus   int     // capacity
	free   amounts // what pods of others leave
	policy string  // CPU manager policy of the kubelet; empty: not known
	here   bool    // the lab itself runs on this node

	kernel, os, kubelet, runtime string
	memory                       unit.Bytes
}

// A nodeObject is the part of a node that the lab reads.
type nodeObject struct {
	Metadata struct{ Name string }
	Spec     struct {
		Unschedulable bool
		Taints        []struct{ Key, Effect string }
	}
	Status struct {
		Conditions []struct{ Type, Status string }
		NodeInfo   struct {
			BootID, KernelVersion, OSImage, ContainerRuntimeVersion, KubeletVersion string
		}
		Capacity, Allocatable map[string]string
	}
}

// takesPods returns the reason why a node takes no ordinary pods, or "".
func (n nodeObject) takesPods() string {
	switch {
	case n.Spec.Unschedulable:
		return "it is cordoned"
	case slices.ContainsFunc(n.Spec.Taints, func(t struct{ Key, Effect string }) bool { return t.Effect != "PreferNoSchedule" }):
		return "it has a taint"
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return "it is not ready"
		}
	}
	return ""
}

// findNodes chooses the tested nodes, and computes how much of them others
// leave free.
func (b *bench) findNodes(ctx context.Context) error {
	b.Status.Now("looking at the cluster")
	var all struct{ Items []nodeObject }
	if err := b.kubectl.Get(ctx, &all, "nodes"); err != nil {
		return err
	}
	for _, name := range b.Nodes {
		if !slices.ContainsFunc(all.Items, func(n nodeObject) bool { return n.Metadata.Name == name }) {
			return fmt.Errorf("--node %s: the cluster has no such node", name)
		}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var unfit []string
	for _, n := range all.Items {
		named := slices.Contains(b.Nodes, n.Metadata.Name)
		if len(b.Nodes) > 0 && !named {
			continue
		}
		if why := n.takesPods(); why != "" && !named {
			unfit = append(unfit, n.Metadata.Name+": "+why)
			continue
		}
		t, err := b.describe(ctx, n, strings.TrimSpace(string(boot)))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Metadata.Name, err)
		}
		b.nodes = append(b.nodes, t)
	}
	if len(b.nodes) == 0 {
		return fmt.Errorf("no node takes the jobs: %s", cmp.Or(strings.Join(unfit, "; "), "the cluster has none"))
	}
	return nil
}

func (b *bench) describe(ctx context.Context, n nodeObject, boot string) (testedNode, error) {
	info := n.Status.NodeInfo
	t := testedNode{
		name: n.Metadata.Name, here: boot != "" && boot == info.BootID,
		kernel: info.KernelVersion, os: info.OSImage, kubelet: info.KubeletVersion, runtime: info.ContainerRuntimeVersion,
	}
	has, err := amountsOf(n.Status.Allocatable)
	whole, err2 := amountsOf(n.Status.Capacity)
	if err := errors.Join(err, err2); err != nil {
		return t, err
	}
	t.cpus, t.memory = int(whole.cpu/1000), whole.memory
	used, err := b.usedByOthers(ctx, t.name)
	if err != nil {
		return t, err
	}
	t.free = has.minus(used)
	var config struct {
		KubeletConfig struct {
			CPUManagerPolicy string `json:"cpuManagerPolicy"`
		} `json:"kubeletconfig"`
	}
	// Not every user may read the configuration of a kubelet.
	if b.kubectl.Raw(ctx, &config, "/api/v1/nodes/"+t.name+"/proxy/configz") == nil {
		t.policy = config.KubeletConfig.CPUManagerPolicy
	}
	return t, nil
}

// usedByOthers returns the sum of the requests of all pods of a node. No job of
// an experiment is on the node at this time.
func (b *bench) usedByOthers(ctx context.Context, node string) (sum amounts, err error) {
	type container struct {
		RestartPolicy string
		Resources     struct{ Requests map[string]string }
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Namespace, Name string }
			Spec     struct{ InitContainers, Containers []container }
		}
	}
	if err := b.kubectl.Get(ctx, &pods, "pods", "--all-namespaces", "--field-selector", "spec.nodeName="+node+",status.phase!=Succeeded,status.phase!=Failed"); err != nil {
		return sum, err
	}
	for _, p := range pods.Items {
		sum.pods++
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			a, err := amountsOf(c.Resources.Requests)
			if err != nil {
				return sum, fmt.Errorf("pod %s/%s: %w", p.Metadata.Namespace, p.Metadata.Name, err)
			}
			// When an init container ends, its requests are free again. The sum
			// counts them nevertheless, so that it is never too small.
			sum = sum.minus(amounts{-a.cpu, -a.memory, -a.batchCPU, -a.batchMemory, 0})
		}
	}
	return sum, nil
}

// places returns how many pods with these requests find room on the node.
func (t testedNode) places(need amounts) int {
	n := t.free.pods
	for _, r := range [][2]int64{
		{int64(need.cpu), int64(t.free.cpu)}, {int64(need.memory), int64(t.free.memory)},
		{int64(need.batchCPU), int64(t.free.batchCPU)}, {int64(need.batchMemory), int64(t.free.batchMemory)},
	} {
		if r[0] > 0 {
			n = min(n, int(max(r[1], 0)/r[0]))
		}
	}
	return n
}

// refuse returns the reason why the nodes cannot run a cell, or "".
func (b *bench) refuse(cell sweep.Cell) string {
	most := unit.MilliCPU(0)
	for _, t := range b.nodes {
		most = max(most, unit.CPUs(t.cpus))
		if why := b.unfitReason(cell, t); why != "" {
			return why
		}
	}
	if cell.Strategy == sweep.Burst && b.Burst(cell.Limit) >= most {
		return fmt.Sprintf("its quota of %g CPUs is no limit on %g: it is the same as unbounded", b.Burst(cell.Limit).Cores(), most.Cores())
	}
	need, places := b.requests(cell), 0
	var rooms []string
	for _, t := range b.nodes {
		places += t.places(need)
		rooms = append(rooms, t.room(cell))
	}
	if places < cell.Jobs {
		return fmt.Sprintf("there is room for %d of its jobs at once: %s", places, strings.Join(rooms, ", "))
	}
	return ""
}

// unfitReason returns why no job of a cell can run on a node, if this is
// because of the strategy.
func (b *bench) unfitReason(cell sweep.Cell, t testedNode) string {
	switch {
	case cell.Strategy == sweep.Static && t.policy != "static":
		return fmt.Sprintf("the kubelet of node %s has CPU manager policy %q, not static", t.name, cmp.Or(t.policy, "not readable"))
	case cell.Strategy == sweep.Static && cell.Limit%1000 != 0:
		return "the kubelet gives exclusive CPUs for whole numbers of CPUs only"
	case cell.Strategy == sweep.Static && cell.Memory == 0:
		return "the kubelet gives exclusive CPUs to pods with a memory limit only: name one with --memory"
	case cell.Strategy == sweep.Tenon && t.free.batchCPU <= 0:
		return fmt.Sprintf("node %s offers no %s: kubectl tenon explain node %[1]s says why", t.name, batchCPU)
	}
	return ""
}

// room describes what a node has free for the jobs of a cell.
func (t testedNode) room(cell sweep.Cell) string {
	cpu, memory, of := t.free.cpu, t.free.memory, "CPUs"
	if cell.Strategy == sweep.Tenon {
		cpu, memory, of = t.free.batchCPU, t.free.batchMemory, "CPUs as batch resources"
	}
	return fmt.Sprintf("node %s has %g of %d %s and %.1f GiB free", t.name, max(cpu, 0).Cores(), t.cpus, of, float64(max(memory, 0))/(1<<30))
}

// requests returns the requests of a job of a cell.
func (b *bench) requests(cell sweep.Cell) amounts {
	need := amounts{cpu: cell.Limit, memory: cell.Memory}
	switch cell.Strategy {
	case sweep.Tenon:
		return amounts{batchCPU: cell.Limit, batchMemory: cmp.Or(cell.Memory, minBatchMemory)}
	case sweep.Unbounded, sweep.Control:
		need.cpu = b.share(cell.Jobs)
	}
	return need
}

// minBatchMemory is the memory of a best-effort job that has no memory limit.
// Without batch-memory, the node would not count the job.
const minBatchMemory = unit.Bytes(256) << 20

// share returns the CPU request of each of n jobs without a limit. It divides
// equally what the node with the least room has free. A small amount stays
// free, so that a small pod of others does not keep a job out.
func (b *bench) share(n int) unit.MilliCPU {
	least := b.nodes[0].free.cpu
	for _, t := range b.nodes {
		least = min(least, t.free.cpu)
	}
	each := (n + len(b.nodes) - 1) / len(b.nodes)
	return max(least*95/100/unit.MilliCPU(each), 1)
}
