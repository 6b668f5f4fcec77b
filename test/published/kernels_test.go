package published

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/blockio"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/capability"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/model/node"
)

// kernelsPage shows what a node gets by kernel.
const kernelsPage = root + "docs/kernels.md"

// A kernelTree is a kernel as its documentation describes it. The files are those
// of a cgroup, by controller.
type kernelTree struct {
	name     string
	version  int // of cgroups, as distributions with this kernel mount them
	files    map[string]string
	pressure bool // /proc/pressure, Linux 4.20
	traces   bool // BPF programs can trace the scheduler, Linux 5.5, if the kernel was built with BTF
	// calls are features that a system call shows. A made-up tree cannot have them,
	// so they come from the documentation, too.
	calls []node.Feature
}

// The files of cgroup v1 and v2, by the first kernel that has them:
// Documentation/admin-guide/cgroup-v1, cgroup-v2.rst, and the logs of the kernel.
const (
	v1CPU    = "cpu.shares cpu.cfs_quota_us cpu.cfs_period_us"
	v2CPU    = "cpu.weight cpu.max"
	v2CPUSet = "cpuset.cpus cpuset.cpus.partition" // 5.0
	v2Memory = "memory.max memory.high memory.low memory.min"
	burst    = " cpu.max.burst"  // 5.14
	idle     = " cpu.idle"       // 5.15
	reclaim  = " memory.reclaim" // 5.19
)

func v1(more string) map[string]string {
	return map[string]string{"cpu": v1CPU + more, "cpuset": "cpuset.cpus", "memory": "memory.limit_in_bytes", "freezer": "freezer.state"}
}

func v2(more string) map[string]string {
	return map[string]string{"cpu": v2CPU + more + " cpu.pressure", "cpuset": v2CPUSet, "memory": v2Memory, "cgroup": "cgroup.freeze"}
}

// since519 does the same as v2, with the files of Linux 5.19.
func since519(more string) map[string]string {
	files := v2(burst + idle + more)
	files["memory"] += reclaim
	return files
}

var (
	since514 = []node.Feature{node.FeatureCoreSched}
	since612 = []node.Feature{node.FeatureCoreSched, node.FeatureSchedExt, node.FeatureEEVDFSlice}
)

var kernelTrees = []kernelTree{
	{"3.10 (CentOS 7)", 1, v1(""), false, false, nil},
	{"3.10 with the plugin of document 5", 1, v1(" cpu.bvt_warp_ns"), false, false, nil},
	{"4.19", 1, v1(""), false, false, nil},
	{"4.19 (Alibaba Cloud Linux 2)", 1, v1(" cpu.bvt_warp_ns"), false, false, nil},
	{"5.10", 2, v2(""), true, true, nil},
	{"5.10 (Alibaba Cloud Linux 3, Anolis OS)", 1, v1(" cpu.bvt_warp_ns cpu.identity"), true, true, nil},
	{"5.10 (openEuler)", 1, v1(" cpu.qos_level"), true, true, nil},
	{"5.15", 2, v2(burst + idle), true, true, since514},
	{"6.1", 2, since519(""), true, true, since514},
	{"6.6 (Anolis OS)", 2, since519(" cpu.priority"), true, true, since514},
	{"6.12", 2, since519(""), true, true, since612},
	{"6.18", 2, since519(""), true, true, since612},
}

// make writes the tree, and returns what the probe of tenon doctor sees in it.
func (k kernelTree) make(t *testing.T) node.Capabilities {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self := strconv.Itoa(os.Getpid())
	write("proc/"+self+"/task/"+self+"/schedstat", "391451 12000 7\n")
	if k.pressure {
		write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	}
	mounts := ""
	if k.version == 2 {
		mounts = "24 1 0:21 / " + dir + "/cgroup rw - cgroup2 cgroup2 rw\n"
		write("cgroup/cgroup.controllers", "cpuset cpu memory\n")
		write("cgroup/cgroup.subtree_control", "cpuset cpu memory\n")
		write("cgroup/kubepods/cgroup.subtree_control", "")
	}
	number := 30
	for controller, files := range k.files {
		group := "cgroup/kubepods/"
		if k.version == 1 {
			number++
			group = "cgroup/" + controller + "/kubepods/"
			mounts += fmt.Sprintf("%d 1 0:%d / %s/cgroup/%s rw - cgroup cgroup rw,%s\n", number, number, dir, controller, controller)
		}
		write(group+"cgroup.procs", "")
		for file := range strings.FieldsSeq(files) {
			write(group+file, "")
		}
	}
	write("proc/self/mountinfo", mounts)
	fs := proc.FS{Proc: dir + "/proc", Sys: dir + "/sys"}
	tree, err := cgroup.Detect(fs.Proc)
	if err != nil {
		t.Fatal(err)
	}
	can := capability.Look(capability.Node{
		FS: fs, Tree: tree, Topology: topology.New(fs), Devices: blockio.New(fs, tree), Controls: cachectl.New(fs.Proc, tree, nil),
	})
	// These answers are of the kernel that runs the test.
	for _, f := range node.FilesOf(node.CategoryThreads) {
		can[f.Needs()] = node.Answer{Verdict: node.No}
	}
	for _, f := range k.calls {
		can[f] = node.Answer{Verdict: node.Yes}
	}
	can[node.FeatureHardwareSMT] = node.Answer{Verdict: node.Yes}
	can[node.FeatureBPF] = node.Answer{Verdict: node.No}
	if k.traces {
		can[node.FeatureBPF] = node.Answer{Verdict: node.Unknown} // it depends on how the kernel was built
	}
	return can
}

// TestWhatANodeGetsByKernel makes the table of the page.
func TestWhatANodeGetsByKernel(t *testing.T) {
	m := newTable("kernel", "cgroups", "bound of batch CPU", "burst", "memory", "pressure (PSI)", "long slices", "isolation mechanisms", "first with `strongest`")
	for _, k := range kernelTrees {
		can := k.make(t)
		has := func(f node.Feature) string { return map[bool]string{true: "yes", false: "no"}[can.Has(f)] }
		for _, f := range []node.Feature{node.FeatureCPUWeight, node.FeatureCPUMax, node.FeatureCPUSets, node.FeatureMemoryLimit, node.FeatureSchedStat} {
			if !can.Has(f) {
				t.Errorf("%s: %s: %v", k.name, f, can[f])
			}
		}
		memory := "a limit"
		if can.Has(node.FeatureMemoryProtect) {
			memory = "a limit, and protection"
		}
		if can.Has(node.FeatureMemoryReclaim) {
			memory = "a limit, protection, and reclaim"
		}
		pressure := "no"
		if can.Has(node.FeaturePSINode) {
			pressure = "of the node"
		}
		if can.Has(node.FeaturePSICgroup) {
			pressure = "of the node and of services"
		}
		chosen := isolation.Mechanisms(isolation.Config{Enable: true}, can, node.Isolation{})
		var usable []string
		for _, s := range chosen.Mechanisms {
			switch s.Can {
			case node.Yes:
				usable = append(usable, "`"+string(s.Mechanism)+"`")
			case node.Unknown:
				usable = append(usable, "`"+string(s.Mechanism)+"` (BPF)")
			}
		}
		m.line(k.name, fmt.Sprintf("v%d", k.version), "quota, CPU sets, weight", has(node.FeatureCPUBurst), memory, pressure, has(node.FeatureEEVDFSlice), strings.Join(usable, ", "), "`"+string(chosen.Mechanism)+"`")
	}
	compareTables(t, kernelsPage, map[string]string{"kernels": m.String()})
}
