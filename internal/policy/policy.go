// Package policy decides what a node's knobs should be. Decide is the whole
// brain of a node: a pure function of configuration, memory and snapshot. Each
// policy has a file of its own, owns its knobs alone, and gives a reason with
// each want.
package policy

import (
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
)

// Config is what the owner of the node asks for. The zero Config asks for
// nothing: every knob that Tenon touched is released.
type Config struct {
	// CPUQOS gives latency-sensitive work the CPU first.
	CPUQOS bool `json:"cpu_qos"`
	// Suppress bounds the CPU of best-effort work by a watermark.
	Suppress Suppress `json:"suppress"`
}

// State is what policies remember from tick to tick: plain data.
type State struct {
	Use use `json:"use"`
}

// Decide returns what every knob should be, and the memory for the next call.
func Decide(c Config, st State, s node.Snapshot) (State, []plan.Want) {
	next := State{Use: st.Use.observe(s)}
	wants := cpuQOS(c.CPUQOS, s)
	bounds := suppress(c.Suppress, next.Use, s)
	wants = append(wants, bounds...)
	wants = append(wants, limit(s, bounds)...)
	return next, wants
}

// meets returns the cgroups at which best-effort work meets the others, each
// once, in the order of the workloads. A cgroup that also holds other work is
// not among them.
func meets(s node.Snapshot) []node.CgroupPath {
	var all []node.CgroupPath
	seen := map[node.CgroupPath]bool{}
	for _, w := range s.Workloads {
		if w.Class != node.BE || seen[w.Meet] {
			continue
		}
		seen[w.Meet] = true
		if !holdsOthers(s, w.Meet) {
			all = append(all, w.Meet)
		}
	}
	return all
}

// holdsOthers reports whether p is the root or has work in it that is not BE:
// what bounds or yields p would then hurt the work that must be protected.
func holdsOthers(s node.Snapshot, p node.CgroupPath) bool {
	for _, w := range s.Workloads {
		if w.Class != node.BE && p.Contains(w.Cgroup) {
			return true
		}
	}
	return p == ""
}
