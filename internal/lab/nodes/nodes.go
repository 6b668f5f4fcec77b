// Package nodes reads the nodes of a Kubernetes cluster that the lab tests:
// their size, and how much of it is free beside the pods of other users.
package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// The names of resources.
const (
	CPU         = "cpu"
	BatchCPU    = "kubernetes.io/batch-cpu"
	BatchMemory = "kubernetes.io/batch-memory"
)

// ClassLabel is the label of a pod that names its class.
const ClassLabel = "koordinator.sh/qosClass"

// Amounts are the resources of a node or of a pod.
type Amounts struct {
	CPU         unit.MilliCPU
	Memory      unit.Bytes
	BatchCPU    unit.MilliCPU
	BatchMemory unit.Bytes
	Pods        int
}

func (a Amounts) minus(b Amounts) Amounts {
	return Amounts{a.CPU - b.CPU, a.Memory - b.Memory, a.BatchCPU - b.BatchCPU, a.BatchMemory - b.BatchMemory, a.Pods - b.Pods}
}

// amountsOf parses a list of resources of the API. A resource that the list
// does not name is 0. What a node has is rounded down, and what a pod requests
// is rounded up.
func amountsOf(list map[string]string, r unit.Rounding) (a Amounts, err error) {
	read := func(name string, per int64) (n int64) {
		text, named := list[name]
		if !named || err != nil {
			return 0
		}
		n, is := unit.ParseQuantity(text, per, r)
		if !is {
			err = fmt.Errorf("%s %.80q: want a quantity such as 1500m or 2Gi", name, text)
		}
		return n
	}
	a.CPU, a.Memory = unit.MilliCPU(read(CPU, 1000)), unit.Bytes(read("memory", 1))
	a.BatchCPU, a.BatchMemory = unit.MilliCPU(read(BatchCPU, 1)), unit.Bytes(read(BatchMemory, 1)) // batch-cpu is in thousandths of a CPU
	a.Pods = int(read("pods", 1))
	return a, err
}

// A Node is a node according to the cluster.
type Node struct {
	Name    string
	Address string  // of its network: InternalIP
	CPUs    int     // capacity
	Offers  Amounts // allocatable
	Free    Amounts // of these, not requested by pods of other users
	Policy  string  // CPU manager policy of the kubelet; empty: not known
	Here    bool    // the lab itself runs on this node

	Kernel, OS, Kubelet, Runtime string
	Memory                       unit.Bytes
}

// Machine returns what the cluster knows of the node's hardware and kernel. If the
// lab itself runs there, it returns what this machine knows.
func (n Node) Machine(fs proc.FS) report.Machine {
	if !n.Here {
		return report.Machine{Kernel: n.Kernel, OS: n.OS, CPUs: n.CPUs, MemoryBytes: int64(n.Memory)}
	}
	m := testbed.ThisMachine(fs)
	m.CPUs = n.CPUs
	return m
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
		Addresses             []struct{ Type, Address string }
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

// Affinity binds pods to nodes. The scheduler chooses among them.
func Affinity(names ...string) kubectl.Object {
	var terms []kubectl.Object
	for _, name := range names {
		terms = append(terms, kubectl.Object{"matchFields": []kubectl.Object{{"key": "metadata.name", "operator": "In", "values": []string{name}}}})
	}
	return kubectl.Object{"nodeAffinity": kubectl.Object{"requiredDuringSchedulingIgnoredDuringExecution": kubectl.Object{"nodeSelectorTerms": terms}}}
}

// Enter prepares a site that only sends load, and a namespace for the pods of an
// experiment of the given kind. Closing the site removes the objects. It first
// removes those of a lab that was killed: they would count as pods of others.
func Enter(ctx context.Context, c testbed.Setting, space kubectl.Space) (site *testbed.Site, _ *kubectl.Space, err error) {
	if space.Client, err = kubectl.Find(space.Context, space.Namespace); err != nil {
		return nil, nil, err
	}
	if site, err = testbed.Away(c); err != nil {
		return nil, nil, err
	}
	space.Tell = site.Status.Now
	site.Undo = append(site.Undo, space.Leave)
	site.Status.Now("looking at the cluster")
	if err = space.Enter(ctx); err != nil {
		return nil, nil, errors.Join(err, site.Close())
	}
	return site, &space, nil
}

// Find returns the nodes with the given names. Without names, it returns all
// nodes that take ordinary pods. It must be called while no pod of the
// experiment is on these nodes.
func Find(ctx context.Context, k kubectl.Client, names []string) (found []Node, err error) {
	var all struct{ Items []nodeObject }
	if err := k.Get(ctx, &all, "nodes"); err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(all.Items, func(n nodeObject) bool { return n.Metadata.Name == name }) {
			return nil, fmt.Errorf("--node %s: the cluster has no such node", name)
		}
	}
	var unfit []string
	for _, n := range all.Items {
		named := slices.Contains(names, n.Metadata.Name)
		if len(names) > 0 && !named {
			continue
		}
		if why := n.takesPods(); why != "" && !named {
			unfit = append(unfit, n.Metadata.Name+": "+why)
			continue
		}
		t, err := n.node()
		if err == nil {
			err = t.addRoom(ctx, k)
		}
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Metadata.Name, err)
		}
		found = append(found, t)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no node takes the jobs: %s", cmp.Or(strings.Join(unfit, "; "), "the cluster has none"))
	}
	return found, nil
}

// Named returns the node with a name, without what is free there and without the
// policy of its kubelet. So it needs no right to read pods.
func Named(ctx context.Context, k kubectl.Client, name string) (Node, error) {
	var n nodeObject
	if err := k.Get(ctx, &n, "node", name); err != nil {
		return Node{}, err
	}
	t, err := n.node()
	switch {
	case err != nil:
		return t, fmt.Errorf("node %s: %w", name, err)
	case t.CPUs < 1:
		return t, fmt.Errorf("node %s has the CPU capacity %q: want at least one CPU", name, n.Status.Capacity["cpu"])
	}
	return t, nil
}

// node describes a node.
func (n nodeObject) node() (Node, error) {
	info := n.Status.NodeInfo
	t := Node{Name: n.Metadata.Name, Kernel: info.KernelVersion, OS: info.OSImage, Kubelet: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return t, fmt.Errorf("find out whether it is this machine: %w", err)
	}
	t.Here = len(boot) > 0 && strings.TrimSpace(string(boot)) == info.BootID
	for _, a := range n.Status.Addresses {
		if a.Type == "InternalIP" && t.Address == "" {
			t.Address = a.Address
		}
	}
	whole, err := amountsOf(n.Status.Capacity, unit.Down)
	if err == nil {
		t.Offers, err = amountsOf(n.Status.Allocatable, unit.Down)
	}
	t.CPUs, t.Memory = int(whole.CPU/1000), whole.Memory
	return t, err
}

// addRoom adds what is free on a node, and the policy of its kubelet.
func (t *Node) addRoom(ctx context.Context, k kubectl.Client) error {
	used, err := usedByOthers(ctx, k, t.Name)
	if err != nil {
		return err
	}
	t.Free = t.Offers.minus(used)
	var config struct {
		KubeletConfig struct {
			CPUManagerPolicy string `json:"cpuManagerPolicy"`
		} `json:"kubeletconfig"`
	}
	// Not every user may read the configuration of a kubelet.
	if k.Raw(ctx, &config, "/api/v1/nodes/"+t.Name+"/proxy/configz") == nil {
		t.Policy = config.KubeletConfig.CPUManagerPolicy
	}
	return nil
}

// usedByOthers returns the sum of the requests of all pods of a node. It is
// called while no job of an experiment is on the node.
func usedByOthers(ctx context.Context, k kubectl.Client, node string) (sum Amounts, err error) {
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
	if err := k.Get(ctx, &pods, "pods", "--all-namespaces", "--field-selector", "spec.nodeName="+node+",status.phase!=Succeeded,status.phase!=Failed"); err != nil {
		return sum, err
	}
	for _, p := range pods.Items {
		sum.Pods++
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			a, err := amountsOf(c.Resources.Requests, unit.Up)
			if err != nil {
				return sum, fmt.Errorf("pod %s/%s: %w", p.Metadata.Namespace, p.Metadata.Name, err)
			}
			// When an init container ends, its requests are free again. The sum
			// counts them nevertheless, so that the sum is never too small.
			sum = sum.minus(Amounts{-a.CPU, -a.Memory, -a.BatchCPU, -a.BatchMemory, 0})
		}
	}
	return sum, nil
}

// Places returns how many pods with these requests find room on the node.
func (t Node) Places(need Amounts) int {
	n := t.Free.Pods
	for _, r := range [][2]int64{
		{int64(need.CPU), int64(t.Free.CPU)}, {int64(need.Memory), int64(t.Free.Memory)},
		{int64(need.BatchCPU), int64(t.Free.BatchCPU)}, {int64(need.BatchMemory), int64(t.Free.BatchMemory)},
	} {
		if r[0] > 0 {
			n = min(n, int(max(r[1], 0)/r[0]))
		}
	}
	return n
}
