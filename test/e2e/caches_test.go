package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// hardware is the division of the CPUs, as the kernel describes it in sysfs. The
// tests read it without Tenon's own code.
type hardware struct {
	cores, caches, nodes []unit.CPUSet
	memory               []string // the number of the NUMA node, for each of nodes
}

func readHardware(t *testing.T) (h hardware) {
	t.Helper()
	sets := func(pattern string) (all []unit.CPUSet, files []string) {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[unit.CPUSet]bool{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set, err := unit.ParseCPUSet(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if !seen[set] {
				all = append(all, set)
			}
			seen[set] = true
		}
		return all, files
	}
	h.cores, _ = sets("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	h.caches, _ = sets("/sys/devices/system/cpu/cpu[0-9]*/cache/index3/shared_cpu_list")
	var files []string
	h.nodes, files = sets("/sys/devices/system/node/node[0-9]*/cpulist")
	for _, file := range files {
		h.memory = append(h.memory, strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "node"))
	}
	return h
}

// within returns the index of the set that contains all CPUs, or -1.
func within(sets []unit.CPUSet, cpus unit.CPUSet) int {
	for i, set := range sets {
		if cpus.Minus(set).Empty() {
			return i
		}
	}
	return -1
}

// TestServicesGetCachesOfTheirOwn has three services. One demands the CPUs of an
// L3 cache, one those of a core, and one all that are left in the other NUMA node.
// Each must get CPUs of one cache or node, whole cores, and the memory of that
// node. No CPU has two owners.
func TestServicesGetCachesOfTheirOwn(t *testing.T) {
	needRoot(t)
	h := readHardware(t)
	if len(h.nodes) != 2 || len(h.caches) < 4 || len(h.cores) < 8 {
		t.Skipf("needs two NUMA nodes with two L3 caches each; this machine has %d nodes, %d caches and %d cores. "+
			"TestTenondOnSeveralCaches of test/vm has such a machine", len(h.nodes), len(h.caches), len(h.cores))
	}
	cache, core := h.caches[0].Len(), h.cores[0].Len()
	rest := h.nodes[0].Len() - core
	demands := map[string]int{"cache": cache, "core": core, "rest": rest}
	rules := ""
	for name, n := range demands {
		rules += "- {name: " + name + `, class: LSE, cgroups: ["ROOT/services/` + name + `"], requests: {cpu: ` + strconv.Itoa(n) + "}}\n"
	}
	s := plantSite(t, strings.Replace(`apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
period: 100ms
rules:
RULES- {name: web, class: LS, cgroups: ["ROOT/services/*"]}
- {name: job, class: BE, cgroups: ["ROOT/batch/*"]}
`, "RULES", rules, 1))
	all := s.cpus("services")
	for name := range demands {
		s.run("services/"+name, "sleep", "600")
	}
	s.before = s.dump(t)
	whole := s.wholeSets()
	d := s.tenond()
	for name, n := range demands {
		eventually(t, name+" has its CPUs", func() bool { return s.cpus("services/"+name).Len() == n })
	}

	owned := unit.CPUSet{}
	for name := range demands {
		cpus := s.cpus("services/" + name)
		if !cpus.Intersect(owned).Empty() {
			t.Errorf("%s has CPUs %v, of which others own %v", name, cpus, cpus.Intersect(owned))
		}
		owned = owned.Union(cpus)
		if name != "rest" && within(h.caches, cpus) < 0 {
			t.Errorf("%s has CPUs %v, which are not in one of the L3 caches %v", name, cpus, h.caches)
		}
		for _, c := range h.cores {
			if part := c.Intersect(cpus); !part.Empty() && part != c {
				t.Errorf("%s has CPUs %v and thus a part of the core %v", name, cpus, c)
			}
		}
		node := within(h.nodes, cpus)
		if node < 0 {
			t.Errorf("%s has CPUs %v, which are not in one of the NUMA nodes %v", name, cpus, h.nodes)
			continue
		}
		dir, err := s.tree.Dir("cpuset", string(s.path("services/"+name)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "cpuset.mems"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(text)); got != h.memory[node] {
			t.Errorf("%s has CPUs %v and the memory of nodes %q, want %s", name, cpus, got, h.memory[node])
		}
		t.Logf("%s: CPUs %v, cache %d, NUMA node %d", name, cpus, within(h.caches, cpus), node)
	}
	for _, group := range []string{service, job} {
		eventually(t, group+" has the other CPUs", func() bool { return s.cpus(group) == all.Minus(owned) })
	}
	d.stop()
	for file, text := range whole {
		if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) != "" {
			s.before[file] = text
		}
	}
	s.restore()
}
