package containerstart

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// twoNodes returns a machine of two NUMA nodes with four CPUs each.
func twoNodes() node.Topology {
	t := node.Topology{Memory: []node.NUMAMemory{{NUMA: 0, Size: 8 << 30}, {NUMA: 1, Size: 8 << 30}}}
	for c := range 8 {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c), L3: node.CacheID(c / 4), NUMA: node.NUMANode(c / 4), Socket: node.SocketID(c / 4)})
	}
	return t
}

// A kernelOf simulates the cpusets of a node. It also simulates a loop, which
// ticks when a test wakes it.
type kernelOf struct {
	topology node.Topology
	version  int
	groups   map[node.CgroupPath]bool // the cgroups that exist
	knobs    node.Knobs
	state    policy.State
	missing  []string // wants for cgroups that do not exist
}

// tick makes the decision for a list of pods, and writes it to the simulated
// cpusets.
func (k *kernelOf) tick(pods []corev1.Pod) {
	workloads, _ := kube.Workloads(pods, kube.Layout{}, func(p node.CgroupPath) bool { return k.groups[p] })
	k.decide(workloads)
}

func (k *kernelOf) decide(workloads []node.Workload) {
	for i := range workloads {
		workloads[i].Usage.Memory = node.Some(unit.Bytes(64 << 20))
	}
	s := node.Snapshot{At: time.Unix(1, 0), Topology: k.topology, Workloads: workloads, Knobs: k.knobs}
	var wants []plan.Want
	k.state, wants = policy.Decide(policy.Config{}, k.state, s)
	for _, w := range wants {
		if w.Intent != plan.Set {
			continue
		}
		if !k.groups[w.Knob.Cgroup] {
			k.missing = append(k.missing, fmt.Sprint(w.Knob))
			continue
		}
		if _, touched := k.knobs.Before[w.Knob]; !touched {
			k.knobs.Before[w.Knob] = k.knobs.Now[w.Knob]
		}
		k.knobs.Now[w.Knob] = w.Value
	}
}

// add makes a cgroup as the kernel and the runtime do. On cgroup v1, the cgroup
// gets the CPUs and memory nodes of its parent.
func (k *kernelOf) add(p node.CgroupPath) {
	k.groups[p] = true
	for _, file := range []node.File{node.FileCPUs, node.FileMems} {
		var v node.Value = node.CPUs{}
		if up, is := k.knobs.Now[node.Knob{Cgroup: p.Parent(), File: file}]; is && k.version == 1 {
			v = up
		} else if k.version == 1 && file == node.FileCPUs {
			v = node.CPUs{Set: k.topology.All()}
		} else if k.version == 1 {
			v = node.CPUs{Set: unit.CPUSetOf(0, 1)}
		}
		k.knobs.Now[node.Knob{Cgroup: p, File: file}] = v
	}
}

// cpusOf returns the CPUs or NUMA nodes on which a process in a cgroup may run.
func (k *kernelOf) cpusOf(p node.CgroupPath, file node.File) unit.CPUSet {
	for ; p != ""; p = p.Parent() {
		if v, _ := k.knobs.Now[node.Knob{Cgroup: p, File: file}].(node.CPUs); !v.Set.Empty() {
			return v.Set
		}
	}
	return unit.CPUSet{}
}

// TestAContainerStartsOnTheCPUsOfItsContract starts the containers of a pod.
// The scheduler has chosen the CPUs of the pod and written them to an
// annotation, the contract. When the runtime may start a container, the
// container's cgroup must have the CPUs of this container in the contract, and
// the memory of the pod's NUMA node. A pod without a contract must have the
// CPUs that the agent chose.
func TestAContainerStartsOnTheCPUsOfItsContract(t *testing.T) {
	amounts := func(cpu string) corev1.ResourceRequirements {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi")}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	for _, version := range []int{1, 2} {
		for _, chosen := range []bool{true, false} {
			p := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pi", UID: "u", Annotations: map[string]string{kube.AnnotationCPUSetScheduler: "true"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pi", Resources: amounts("2")}, {Name: "side", Resources: amounts("1")}}},
				Status:     corev1.PodStatus{Phase: corev1.PodPending},
			}
			m := pick.Compile(twoNodes())
			d, _, _ := kube.DemandOf(&p)
			// The scheduler chose CPUs that the node itself would not choose.
			o, why := m.Fit(m.Seats(unit.CPUSetOf(4, 5, 6, 7), 1, nil), d.Request)
			if why != cpus.Fits {
				t.Fatal(why)
			}
			c := place.ContractOf(m, d, o)
			if chosen {
				notes := kube.ContractAnnotations(&p, m, c)
				maps.Copy(p.Annotations, notes)
			}
			k := &kernelOf{topology: twoNodes(), version: version, groups: map[node.CgroupPath]bool{}, knobs: node.Knobs{
				Kernel: node.Kernel{CgroupVersion: version, PageSize: 4096}, Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{},
			}}
			l := kube.Layout{}
			k.add(l.Pod(&p))
			var loop *Containers
			loop = New(func() {
				loop.Begin()
				k.tick(loop.AddTo([]corev1.Pod{p}, time.Now()))
				loop.End()
			})
			resolver := Resolver{&podSource{known: []corev1.Pod{p}}, loop}
			had := map[string]unit.CPUSet{}
			for _, name := range []string{"pi", "side"} {
				group := l.Container(l.Pod(&p), "containerd://"+name)
				k.add(group)
				of := nri.Pod{Namespace: p.Namespace, Name: p.Name, UID: "u", Annotations: p.Annotations}
				if err := resolver.Starting(t.Context(), of, nri.Created{Name: name, ID: "containerd://" + name}); err != nil {
					t.Fatal(err)
				}
				had[name] = k.cpusOf(group, node.FileCPUs)
				if want := c.Containers[name]; chosen && had[name] != want {
					t.Errorf("cgroup v%d: container %s starts on CPUs %v, and its contract says %v", version, name, had[name], want)
				}
				if mems, want := k.cpusOf(group, node.FileMems), unit.CPUSetOf(0); chosen && mems != want {
					t.Errorf("cgroup v%d: container %s starts with the memory of NUMA nodes %v, want %v", version, name, mems, want)
				}
			}
			if had["pi"].Len() != 2 || had["side"].Len() != 1 || !had["pi"].Intersect(had["side"]).Empty() {
				t.Errorf("cgroup v%d, contract %t: the containers start on CPUs %v and %v", version, chosen, had["pi"], had["side"])
			}
			if len(k.missing) > 0 {
				t.Errorf("cgroups that do not exist: %v", k.missing)
			}
		}
	}
}
