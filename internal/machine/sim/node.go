// Package sim simulates a node in memory. It has the methods of the real node,
// and refuses what the kernel refuses, on both cgroup versions. It does so by
// rules. The conformance suite has a fact with the name of each rule, and
// checks it on a real kernel. A small model divides CPU among tasks, so that
// tests can run policies in virtual time.
package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Options describe the machine to simulate. The zero Options mean two CPUs and
// cgroup v2.
type Options struct {
	// Version is the cgroup version, 1 or 2; 0 means 2.
	Version int
	// RecursiveProtection is the mount option memory_recursiveprot of v2. Only the
	// facts of the kernel show it, because the simulator does not reclaim memory.
	RecursiveProtection bool
	// Topology is the CPU topology; zero means two CPUs in one socket.
	Topology node.Topology
	// Resctrl describes how L3 caches and memory bandwidth can be divided. Nil
	// means that the machine has no resctrl.
	Resctrl *Resctrl
	// Isolation lists the isolation mechanisms of the kernel in addition to
	// cpu.idle. Nil means that there are none.
	Isolation *Isolation
	// DividesBurst is a fault of Linux 5.14 to 6.9: a write of cpu.max divides cpu.max.burst by 1000.
	DividesBurst bool
	// Without names rules that this node does not apply. Tests use it to show
	// that each rule is needed.
	Without []string
}

// Node is a simulated node. It is safe for concurrent use.
type Node struct {
	mu       sync.Mutex
	now      time.Time
	options  Options
	version  int // Options.Version, or its default
	topology node.Topology
	rules    []rule

	groups    map[node.CgroupPath]*group
	tasks     map[int]*task
	lastPID   int
	workloads map[node.WorkloadID]node.Workload
	before    map[node.Knob]node.Value
	busy      map[unit.CPU]time.Duration
	divided   *resctrlState   // nil: no resctrl
	isolated  *isolationState // nil: no isolation mechanism
	knobs     knob.Table
}

// A group is a cgroup with its files and its CPU time.
type group struct {
	files     map[string]string
	cpu       time.Duration
	throttled time.Duration
}

// A task is a process. It exists until Stop reaps it.
type task struct {
	at     node.CgroupPath
	memory unit.Bytes
	demand unit.MilliCPU
	// control is the control group of the task; "" is the default one.
	control string
	dying   bool               // it has received a fatal signal
	has     map[node.File]bool // the knobs whose best-effort attribute the thread has
}

// New makes a node.
func New(o Options) *Node {
	n := &Node{
		now:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		options: o, version: cmp.Or(o.Version, 2), topology: o.Topology,
		groups: map[node.CgroupPath]*group{}, tasks: map[int]*task{}, lastPID: 1000,
		workloads: map[node.WorkloadID]node.Workload{},
		before:    map[node.Knob]node.Value{},
		busy:      map[unit.CPU]time.Duration{},
	}
	n.knobs = n.adapters()
	if len(n.topology.CPUs) == 0 {
		n.topology.CPUs = []node.LogicalCPU{{ID: 0, Core: 0}, {ID: 1, Core: 1}}
	}
	n.rules = slices.DeleteFunc(rulesOf(n.version), func(r rule) bool { return slices.Contains(o.Without, r.name) })
	if o.DividesBurst {
		n.rules = append(n.rules, dividesBurst)
	}
	root := &group{files: maps.Clone(rootFiles[n.version])}
	if n.version == 1 {
		root.files["cpuset.cpus"], root.files["cpuset.mems"] = n.topology.All().String(), n.memoryNodes().String()
	}
	n.groups[""] = root
	if o.Resctrl != nil {
		n.divided = newDivided(*o.Resctrl, o.Without)
	}
	if o.Isolation != nil {
		n.isolated = newIsolated(*o.Isolation, o.Without)
	}
	return n
}

// memoryNodes returns the set of all NUMA nodes.
func (n *Node) memoryNodes() unit.CPUSet {
	var s unit.CPUSet
	for _, c := range n.topology.CPUs {
		s = s.With(unit.CPU(c.NUMA))
	}
	return s
}

func (n *Node) kernel() node.Kernel {
	return node.Kernel{CgroupVersion: n.version, PageSize: pageSize, RecursiveProtection: n.options.RecursiveProtection && n.version == 2}
}

// Manage adds a workload to the snapshots. It replaces a workload with the same
// ID.
func (n *Node) Manage(w node.Workload) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workloads[w.ID] = w
}

// Forget removes a workload from the snapshots.
func (n *Node) Forget(id node.WorkloadID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.workloads, id)
}

// Snapshot returns the managed workloads and the knobs of their cgroups.
func (n *Node) Snapshot(context.Context) (node.Snapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := node.Snapshot{
		At:           n.now,
		Topology:     n.topology,
		Capabilities: node.Capabilities{},
		Usage:        node.Usage{CPU: node.Some(n.groups[""].cpu), Memory: node.Some(n.memoryOf("")), Steal: node.Some(time.Duration(0))},
		Busy:         maps.Clone(n.busy),
		Devices:      []node.BlockDevice{disk},
		Knobs:        node.Knobs{Kernel: n.kernel(), Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}},
	}
	for _, m := range []node.Feature{
		node.FeatureCPUIdle, node.FeatureCPUWeight, node.FeatureCPUMax, node.FeatureCPUBurst, node.FeatureCPUSets, node.FeatureMemoryLimit, node.FeatureCgroupFreezer,
	} {
		s.Capabilities[m] = node.Answer{Verdict: node.Yes, Why: "simulated"}
	}
	protects := node.Yes
	if n.version == 1 {
		protects = node.No
	}
	s.Capabilities[node.FeatureMemoryProtect] = node.Answer{Verdict: protects, Why: "simulated"}
	n.canIO(s.Capabilities)
	for _, w := range n.workloads {
		if g := n.groups[w.Cgroup]; g != nil {
			w.Usage = node.Usage{CPU: node.Some(g.cpu), Throttled: node.Some(g.throttled), Memory: node.Some(n.memoryOf(w.Cgroup))}
		}
		s.Workloads = append(s.Workloads, w)
		if w.Class == node.BE && n.groups[w.Cgroup] != nil {
			s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileRun}] = n.readRun(w.Cgroup)
		}
		for _, from := range []node.CgroupPath{w.Cgroup, w.ContentionRoot} {
			for p := from; p != ""; p = p.Parent() {
				n.readKnobs(p, s.Knobs.Now)
			}
		}
	}
	slices.SortFunc(s.Workloads, func(a, b node.Workload) int { return strings.Compare(string(a.ID), string(b.ID)) })
	n.fillControls(&s)
	n.fillIsolation(&s)
	for k, v := range n.before {
		if n.groups[k.Cgroup] != nil {
			s.Knobs.Before[k] = v
		}
	}
	return s, nil
}

// shownFiles lists the files whose knobs a snapshot contains for every group.
var shownFiles = node.FilesOf(node.CategoryGroup, node.CategoryIO, node.CategoryMark, node.CategoryThreads, node.CategoryOrder)

func (n *Node) readKnobs(p node.CgroupPath, to map[node.Knob]node.Value) {
	if n.groups[p] == nil {
		return
	}
	for _, f := range shownFiles {
		k := node.Knob{Cgroup: p, File: f}
		if v, err := n.knobs.Read(k); err == nil {
			to[k] = v
		}
	}
}

// Apply performs one step. After an error, no file of the step has changed.
func (n *Node) Apply(_ context.Context, s plan.Step) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch s.Knob.File.Category() {
	case node.CategoryResctrl:
		return n.applyControl(s)
	case node.CategoryMark, node.CategoryThreads, node.CategoryScheduler, node.CategoryOrder:
		return n.applyIsolation(s)
	}
	g := n.groups[s.Knob.Cgroup]
	if g == nil {
		return fmt.Errorf("apply %v: the cgroup is gone", s)
	}
	found, err := n.knobs.Read(s.Knob)
	if err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if v, isRun := s.To.(node.Run); isRun && v.EndsProcesses() {
		return n.end(s.Knob, v)
	}
	files := maps.Clone(g.files)
	err = n.knobs.Write(s.Knob, s.To)
	if empty := (node.CPUs{}); s.Release && s.To == empty && errors.Is(err, syscall.ENOSPC) {
		err = n.knobs.Write(s.Knob, node.CPUs{Set: n.effectiveSet(s.Knob.Cgroup.Parent(), string(s.Knob.File))}) // the real node does the same
	}
	if err != nil {
		g.files = files
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if s.Release {
		delete(n.before, s.Knob)
	} else if _, touched := n.before[s.Knob]; !touched {
		n.before[s.Knob] = found
	}
	return nil
}
