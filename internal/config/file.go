package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// file is the configuration file. Each field is a key.
type file struct {
	APIVersion node.Maybe[string]        `json:"apiVersion" oneof:"tenon.sh/v1alpha1"`
	Kind       node.Maybe[string]        `json:"kind" oneof:"NodeConfig"`
	Period     node.Maybe[time.Duration] `json:"period" range:"100ms..60s"`
	CPUs       node.Maybe[string]        `json:"cpus"`
	// MemoryBandwidth is the memory bandwidth for one L3 cache, in bytes per second.
	MemoryBandwidth node.Maybe[unit.Bytes] `json:"memoryBandwidth"`
	Signals         signals                `json:"signals"`
	History         history                `json:"history"`
	Observe         node.Maybe[bool]       `json:"observe"`
	Reserved        reserved               `json:"reserved"`
	Rules           []rule                 `json:"rules"`
	Slices          []Slice                `json:"slices"`
	// ContainerSockets are the sockets of the container runtimes, for rules with containers.
	ContainerSockets []string `json:"containerSockets"`
	Strategies
}

// A rule is the form of a match.Rule in the configuration file.
type rule struct {
	Name    node.Maybe[string] `json:"name"`
	Class   node.Maybe[string] `json:"class" oneof:"LSE LSR LS BE SYSTEM"`
	Cgroups []string           `json:"cgroups"`
	Units   []string           `json:"units"`
	// Containers are globs for the names of containers, or for labels in the form KEY=VALUE.
	Containers []string `json:"containers"`
	Requests   requests `json:"requests"`
	Limits     limits   `json:"limits"`
	// Priority has the same range as the priority of a Kubernetes pod.
	Priority  node.Maybe[int64]  `json:"priority" range:"-2147483648..2147483647"`
	Objective Objective          `json:"objective"`
	Slice     node.Maybe[string] `json:"slice"` // the name of an entry of Slices; the workloads share its workers
}

// requests are the amounts that a workload requests.
type requests struct {
	CPU    node.Maybe[unit.MilliCPU] `json:"cpu"`
	Memory node.Maybe[unit.Bytes]    `json:"memory"`
}

// limits are the limits of a workload.
type limits struct {
	CPU    node.Maybe[unit.MilliCPU] `json:"cpu"`
	Memory node.Maybe[unit.Bytes]    `json:"memory"`
}

// rule converts r for package match.
func (r rule) rule() match.Rule {
	return match.Rule{
		Name:          valueOf(r.Name),
		Class:         node.Class(valueOf(r.Class)),
		Cgroups:       r.Cgroups,
		Units:         r.Units,
		Containers:    r.Containers,
		CPURequest:    r.Requests.CPU,
		MemoryRequest: r.Requests.Memory,
		CPULimit:      r.Limits.CPU,
		MemoryLimit:   r.Limits.Memory,
		Priority:      int(valueOf(r.Priority)),
		Objective:     r.Objective.Node(),
	}
}

// sliceUses returns the use of slices by each rule.
func (f file) sliceUses() (all []sliceUse) {
	for _, r := range f.Rules {
		all = append(all, sliceUse{Rule: valueOf(r.Name), Class: valueOf(r.Class), Slice: r.Slice})
	}
	return all
}

// cpus returns the set in the key cpus. The empty set means all CPUs. It
// ignores errors, because the parser has already reported them.
func (f file) cpus() unit.CPUSet {
	set, _ := unit.ParseCPUSet(valueOf(f.CPUs)) //nolint:errcheck // the parser has reported the error
	return set
}

// valueOf returns the value of a key, or the zero value if the key is not set.
func valueOf[T any](m node.Maybe[T]) T {
	v, _ := m.Value()
	return v
}

// checkFile makes the checks of the file that the struct tags cannot express.
// It does not check the strategies.
func (c *checker) checkFile(f file) {
	c.need("apiVersion", f.APIVersion.Known(), "tenon.sh/v1alpha1")
	c.need("kind", f.Kind.Known(), "NodeConfig")
	if list, given := f.CPUs.Value(); given {
		if set, err := unit.ParseCPUSet(list); err != nil || set.Empty() {
			c.fault("cpus", quote(list)+": want CPUs such as 0-5,8")
		}
	}
	c.checkMemoryBandwidth(f.MemoryBandwidth)
	c.checkHistory(f.History)
	if v := valueOf(f.Reserved.CPU); v > unit.CPUs(unit.MaxCPUs) {
		c.fault("reserved.cpu", fmt.Sprintf("%v: want at most %d CPUs", v, unit.MaxCPUs))
	}
	c.checkMemory("reserved.memory", f.Reserved.Memory)
	for i, address := range f.ContainerSockets {
		kind, socket, _ := strings.Cut(address, "://")
		if !slices.Contains([]string{"docker", "podman", "containerd"}, kind) || !path.IsAbs(socket) {
			c.fault(fmt.Sprintf("containerSockets[%d]", i), quote(address)+": want docker://, podman:// or containerd:// and the path of a socket, such as docker:///run/docker.sock")
		}
	}
	checkSlices(f.Slices, f.sliceUses(), c.bad, c.fault)
	first := map[string]int{}
	for i, r := range f.Rules {
		if c.isFull() {
			return
		}
		at := fmt.Sprintf("rules[%d]", i)
		c.need(at+".name", r.Name.Known(), "a name that no other rule has")
		c.need(at+".class", r.Class.Known(), "one of LSE, LSR, LS, BE, SYSTEM")
		if name, named := r.Name.Value(); named {
			if other, twice := first[name]; twice {
				c.fault(at+".name", fmt.Sprintf("%s: rules[%d] has this name already", quote(name), other))
			} else if first[name] = i; !IsSliceName(name) {
				c.fault(at+".name", quote(name)+": "+SliceNameForm)
			}
		}
		c.checkAmounts(r, at)
		c.checkOwnCPUs(r, at)
		c.checkObjective(r.Objective, at+".objective")
		// Prometheus knows pods by their namespace and name. A rule has neither.
		c.want(at+".objective.source", string(node.SourceQuery), r.Objective.Node().Requests.Source != node.SourceQuery, "metrics, because only a pod can have the source query")
		c.checkMatch(r, at)
	}
}

// checkAmounts adds a fault for each amount of CPU or memory that is too large or too small.
func (c *checker) checkAmounts(r rule, path string) {
	cpu := func(field string, m node.Maybe[unit.MilliCPU]) {
		if v := valueOf(m); v > unit.CPUs(unit.MaxCPUs) {
			c.fault(path+field, fmt.Sprintf("%v: want at most %d CPUs", v, unit.MaxCPUs))
		}
	}
	cpu(".requests.cpu", r.Requests.CPU)
	cpu(".limits.cpu", r.Limits.CPU)
	c.checkMemory(path+".requests.memory", r.Requests.Memory)
	if v, limited := r.Limits.Memory.Value(); limited && v < unit.MinMemoryLimit {
		c.fault(path+".limits.memory", fmt.Sprintf("%v bytes: want at least 6Mi (is a suffix such as Mi or Gi missing?)", v))
	}
}

// checkMemory adds a fault for an amount that is max or less than 1 MiB. The usual causes of the
// latter are a missing suffix, and m: a thousandth of a byte to Kubernetes, megabytes to Docker.
func (c *checker) checkMemory(path string, m node.Maybe[unit.Bytes]) {
	switch v := valueOf(m); {
	case v == unit.MaxBytes:
		c.fault(path, fmt.Sprintf("%v: want an amount such as 512Mi", v))
	case v > 0 && v < 1<<20:
		c.fault(path, fmt.Sprintf("%v bytes: want 0, or at least 1Mi (is a suffix such as Mi or Gi missing?)", v))
	}
}

// checkMatch adds the faults that package match finds.
func (c *checker) checkMatch(r rule, path string) {
	for _, f := range r.rule().Check() {
		if f.Field == match.FieldSelectors && (c.badBelow(path+".cgroups") || c.badBelow(path+".units") || c.badBelow(path+".containers")) {
			continue // the key was set, but refused
		}
		if field := join(path, f.Field); !c.bad[field] {
			c.fault(field, f.Problem)
		}
	}
}

// noticesOfRules returns a notice if there are no rules, and for rules without a CPU request.
func noticesOfRules(rules []rule) []string {
	if len(rules) == 0 {
		return []string{"rules: there are none, so Tenon manages only the commands that tenon run starts"}
	}
	return noticesOfOwnCPUs(rules)
}
