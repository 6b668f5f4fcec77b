package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const pageSize unit.Bytes = 4096

// newFiles holds the files of a new cgroup with their content, by cgroup version.
var newFiles = withLimits(node.LimitFiles, map[int]map[string]string{
	1: {
		"cpu.shares": "1024", "cpu.idle": "0",
		"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.cfs_burst_us": "0",
		"cpuset.cpus": "", "cpuset.mems": "",
		"memory.limit_in_bytes":          knob.NoLimitV1.String(),
		"blkio.throttle.read_bps_device": "", "blkio.throttle.write_bps_device": "",
		"blkio.throttle.read_iops_device": "", "blkio.throttle.write_iops_device": "",
		"blkio.bfq.weight": "100", "blkio.bfq.weight_device": "default 100",
		"freezer.state": "THAWED", "freezer.self_freezing": "0", "freezer.parent_freezing": "0",
	},
	2: {
		"cpu.weight": "100", "cpu.idle": "0", "cpu.max": "max 100000", "cpu.max.burst": "0",
		"cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.effective": "", "cpuset.mems.effective": "",
		"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max",
		"io.max": "", "io.weight": "default 100", "io.latency": "",
		"cgroup.subtree_control": "",
		"cgroup.freeze":          "0", "cgroup.events": "", "cgroup.kill": "",
	},
})

// withLimits adds the files of limits to those of new cgroups.
func withLimits(limits []node.LimitFile, files map[int]map[string]string) map[int]map[string]string {
	for _, l := range limits {
		files[2][string(l.File)] = "max"
		if !l.V2Only {
			files[1][string(l.File)] = "max"
		}
	}
	return files
}

// numberFiles lists the files of the limits for which is returns true, as a rule
// names its files.
func numberFiles(is func(node.LimitFile) bool) string {
	var files []string
	for _, l := range node.LimitFiles {
		if is(l) {
			files = append(files, string(l.File))
		}
	}
	return strings.Join(files, " ")
}

// rootFiles holds the files of the root cgroup with their content, by cgroup version.
var rootFiles = map[int]map[string]string{
	1: {
		"cpu.shares": "1024", "cpu.idle": "0",
		"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.cfs_burst_us": "0",
		"memory.limit_in_bytes": knob.NoLimitV1.String(),
	},
	2: {"cgroup.subtree_control": controllers, "cpuset.cpus.effective": "", "cpuset.mems.effective": ""},
}

// controllers lists the controllers that MakeGroup enables for child cgroups,
// as on the real node.
const controllers = "cpuset cpu io memory pids"

// An op is an operation on the node that rules can refuse.
type op struct {
	n    *Node
	kind string // write, attach, remove, fork
	path node.CgroupPath
	g    *group
	gone bool // the group does not exist; g is a placeholder
	file string
	text string // without leading and trailing space
	pid  int
}

// ask returns the error of the first rule that refuses an operation, or nil.
func (n *Node) ask(o op) error {
	for _, r := range n.rules {
		if r.refuse == nil || r.operation != o.kind || (r.files != "" && !slices.Contains(strings.Fields(r.files), o.file)) {
			continue
		}
		if errno := r.refuse(o); errno != 0 {
			return errno
		}
	}
	return nil
}

// ReadFile reads one kernel file.
func (n *Node) ReadFile(p node.CgroupPath, file string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text, err := n.show(p, file)
	return text + "\n", err
}

// WriteFile writes one kernel file.
func (n *Node) WriteFile(p node.CgroupPath, file, text string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.write(p, file, text)
}

func (n *Node) show(p node.CgroupPath, file string) (string, error) {
	g := n.groups[p]
	if g == nil {
		return "", &fs.PathError{Op: "read", Path: string(p.Join(file)), Err: syscall.ENOENT}
	}
	text, exists := g.files[file]
	if !exists {
		return "", &fs.PathError{Op: "read", Path: string(p.Join(file)), Err: syscall.ENOENT}
	}
	if own, is := strings.CutSuffix(file, ".effective"); is {
		return n.effectiveSet(p, own).String(), nil
	}
	if run, is := n.showRun(p, file); is {
		return run, nil
	}
	return text, nil
}

// effectiveSet returns the effective CPUs or memory nodes of a group of cgroup
// v2. file is cpuset.cpus or cpuset.mems.
func (n *Node) effectiveSet(p node.CgroupPath, file string) unit.CPUSet {
	switch {
	case p == "" && file == "cpuset.mems":
		return n.memoryNodes()
	case p == "":
		return n.topology.All()
	}
	own, _ := unit.ParseCPUSet(n.groups[p].files[file])
	for _, r := range n.rules {
		if r.derive != nil {
			own = r.derive(own, n.effectiveSet(p.Parent(), file))
		}
	}
	return own
}

func (n *Node) write(p node.CgroupPath, file, text string) error {
	o := op{n: n, kind: "write", path: p, g: n.groups[p], file: file, text: strings.TrimSpace(text)}
	if o.g == nil {
		o.g, o.gone = &group{files: maps.Clone(newFiles[n.version])}, true
	}
	if err := n.ask(o); err != nil {
		return &fs.PathError{Op: fmt.Sprintf("write %q to", text), Path: string(p.Join(file)), Err: err}
	}
	for _, r := range n.rules {
		if r.settle != nil && slices.Contains(strings.Fields(r.files), file) {
			o.text = r.settle(o)
		}
	}
	if file == "cgroup.subtree_control" {
		o.text = passOn(o.g.files[file], o.text)
	}
	if slices.Contains(strings.Fields(deviceFiles), file) {
		o.text = o.replaceDevice()
	}
	o.g.files[file] = o.text
	if mayThaw(file) {
		n.bury()
	}
	return nil
}

// passOn applies a change of cgroup.subtree_control, such as "+cpu -pids", to a list.
func passOn(have, change string) string {
	on := map[string]bool{}
	for _, c := range strings.Fields(have) {
		on[c] = true
	}
	for _, c := range strings.Fields(change) {
		on[c[1:]] = c[0] == '+'
	}
	maps.DeleteFunc(on, func(_ string, is bool) bool { return !is })
	return strings.Join(slices.Sorted(maps.Keys(on)), " ")
}

// knobFiles returns the files of a group.
func (g *group) knobFiles(version int) knob.Files { return knob.Files{Version: version, Text: g.files} }

// number returns the number in a file. For "max", it returns the largest number.
func (g *group) number(file string) int64 { return g.knobFiles(0).Number(file) }

// bandwidth returns the CPU quota (-1: none) and the period in µs, for both
// cgroup versions.
func (g *group) bandwidth(version int) (quota, period int64) { return g.knobFiles(version).Bandwidth() }

func (g *group) set(file string) unit.CPUSet { return g.knobFiles(0).CPUs(file) }

// children returns the direct children of p.
func (n *Node) children(p node.CgroupPath) []node.CgroupPath {
	var below []node.CgroupPath
	for q := range n.groups {
		if q != "" && q.Parent() == p && q != p {
			below = append(below, q)
		}
	}
	slices.Sort(below)
	return below
}

// MakeGroup creates a cgroup and its missing ancestors. On v2, it enables the controllers
// for them. On v1, a new cgroup gets the CPUs and memory nodes of its parent.
func (n *Node) MakeGroup(p node.CgroupPath) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.make(p)
}

func (n *Node) make(p node.CgroupPath) error {
	if n.groups[p] != nil {
		return nil
	}
	parent := p.Parent()
	if err := n.make(parent); err != nil {
		return err
	}
	if n.version == 2 && parent != "" {
		if err := n.write(parent, "cgroup.subtree_control", "+"+strings.Join(strings.Fields(controllers), " +")); err != nil {
			return fmt.Errorf("make %s: %w", p, err)
		}
	}
	g := &group{files: maps.Clone(newFiles[n.version])}
	if n.version == 1 {
		up := n.groups[parent]
		g.files["cpuset.cpus"], g.files["cpuset.mems"] = up.files["cpuset.cpus"], up.files["cpuset.mems"]
		for _, f := range []node.File{node.FileCPUs, node.FileMems} { // the parent's value may be Tenon's
			if v, touched := n.before[node.Knob{Cgroup: parent, File: f}]; touched {
				n.before[node.Knob{Cgroup: p, File: f}] = v
			}
		}
	}
	n.groups[p] = g
	return nil
}

// RemoveGroup removes a cgroup. If it does not exist, RemoveGroup returns nil.
func (n *Node) RemoveGroup(p node.CgroupPath) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.groups[p] == nil {
		return nil
	}
	if err := n.ask(op{n: n, kind: "remove", path: p, g: n.groups[p]}); err != nil {
		return &fs.PathError{Op: "remove", Path: string(p), Err: err}
	}
	maps.DeleteFunc(n.groups, func(q node.CgroupPath, _ *group) bool { return q != "" && p.Contains(q) })
	maps.DeleteFunc(n.before, func(k node.Knob, _ node.Value) bool { return p.Contains(k.Cgroup) })
	if n.isolated != nil {
		maps.DeleteFunc(n.isolated.orders.groups, func(q node.CgroupPath, _ node.SchedulerGroup) bool { return p.Contains(q) })
		maps.DeleteFunc(n.isolated.ticked, func(k node.Knob, _ node.Value) bool { return p.Contains(k.Cgroup) })
	}
	return nil
}

var errNoTask = errors.New("no such task was started here")
