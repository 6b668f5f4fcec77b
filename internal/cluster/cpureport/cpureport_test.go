package cpureport

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// server returns a machine with two sockets, two caches per socket, four cores
// per cache and two threads per core. Each socket counts its cores from 0. The
// numbers of the two CPUs of a core differ by 16.
func server() node.Topology {
	var t node.Topology
	for c := range 32 {
		core := c % 16
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(core % 8), L3: node.CacheID(core / 4), NUMA: node.NUMANode(core / 8), Socket: node.SocketID(core / 8),
		})
	}
	return t
}

func TestAReportOfTheClusterSaysTheSame(t *testing.T) {
	slow := server()
	for i := range slow.CPUs {
		slow.CPUs[i].Kind = node.CoreKind(slow.CPUs[i].L3 % 2)
	}
	for name, r := range map[string]place.Report{
		"empty":  {Topology: server()},
		"hybrid": {Topology: slow, Keep: 2},
		"held": {Topology: server(), Keep: 1, Reserved: unit.CPUSetOf(0, 16), Manager: "static", Pods: map[place.UID]cpus.Allocation{
			"a": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(1, 17)},
			"b": {Policy: cpus.Shared, CPUs: unit.CPUSetOf(2), Domain: unit.CPUSetOf(0, 1, 2, 3), CPU: 500, Exclusive: cpus.PCPULevel},
			"c": {Policy: cpus.Pool, CPUs: unit.CPUSetOf(4, 5), Domain: unit.CPUSetOf(4, 5), CPU: 1500, Exclusive: cpus.NUMANodeLevel},
		}},
		"refused": {Topology: server(), Keep: 1, Pods: map[place.UID]cpus.Allocation{"a": {}, "b": {Policy: cpus.Shared}}},
	} {
		text, err := json.Marshal(Convert(r))
		if err != nil {
			t.Fatal(err)
		}
		var sent v1alpha1.CPUs
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		back, err := Read(&sent)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if a, b := pick.Compile(r.Topology).Hash(), pick.Compile(back.Topology).Hash(); a != b {
			t.Errorf("%s: the topology is another one: %s", name, text)
		}
		back.Topology = r.Topology
		if diff := cmp.Diff(r, back, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("%s (-said +read):\n%s", name, diff)
		}
	}
}

func TestAWrongReportNamesItsField(t *testing.T) {
	for want, spoil := range map[string]func(*v1alpha1.CPUs){
		"caches: no CPU":         func(c *v1alpha1.CPUs) { c.Caches = nil },
		"caches[1].cpus: ":       func(c *v1alpha1.CPUs) { c.Caches[1].CPUs = "0-" },
		"is in two caches":       func(c *v1alpha1.CPUs) { c.Caches[1].CPUs = "0" },
		"cores: ":                func(c *v1alpha1.CPUs) { c.Cores = "x" },
		"a CPU is in two cores":  func(c *v1alpha1.CPUs) { c.Cores = "0,16;0" },
		"cores: CPU 99 is in no": func(c *v1alpha1.CPUs) { c.Cores = "0,99" },
		"reserved: ":             func(c *v1alpha1.CPUs) { c.Reserved = "-1" },
		`pods[0].policy: "mine"`: func(c *v1alpha1.CPUs) { c.Pods = []v1alpha1.PodCPUs{{Policy: "mine"}} },
		"pods[0].cpus: ":         func(c *v1alpha1.CPUs) { c.Pods = []v1alpha1.PodCPUs{{Policy: "exclusive", CPUs: "9-1"}} },
		"pods[0].domain: ":       func(c *v1alpha1.CPUs) { c.Pods = []v1alpha1.PodCPUs{{Policy: "pool", Domain: "?"}} },
	} {
		c := Convert(place.Report{Topology: server()})
		spoil(c)
		if _, err := Read(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
