// Package policy decides what a node's knobs should be. Decide is the whole
// brain of a node: a pure function of configuration, memory and snapshot. Each
// policy has a file of its own, owns its knobs alone, and gives a reason with
// each want.
package policy

import (
	"slices"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
	"tenon.sh/tenon/internal/unit"
)

// Config is what the owner of the node asks for. The zero Config asks for
// nothing: every knob that Tenon touched is released.
type Config struct {
	// CPUQOS gives latency-sensitive work the CPU first.
	CPUQOS CPUQOS `json:"cpu_qos,omitzero"`
	// Suppress bounds the CPU of best-effort work by a watermark.
	Suppress Suppress `json:"suppress,omitzero"`
	// Memory protects and limits memory by class.
	Memory MemoryQOS `json:"memory_qos,omitzero"`
}

// State is what policies remember from tick to tick: plain data.
type State struct {
	Use use `json:"use"`
	// Growth is how much more CPU best-effort work may get than it has: saved
	// up over time, used up by growing.
	Growth unit.MilliCPU `json:"growth_mcpu,omitempty"`
}

// Decide returns what every knob should be, and the memory for the next call.
func Decide(c Config, st State, s node.Snapshot) (State, []plan.Want) {
	l := layoutOf(s)
	next := State{Use: st.Use.observe(s)}
	wants := cpuQOS(c.CPUQOS, l, s)
	var bounds []plan.Want
	next.Growth, bounds = suppress(c.Suppress, st.Growth, l, next.Use, s)
	wants = append(wants, bounds...)
	wants = append(wants, limit(l, s, bounds)...)
	wants = append(wants, memory(c.Memory, s)...)
	return next, append(wants, orphans(l, s, wants)...)
}

// orphans releases every knob that Tenon has touched and that no policy asks
// for any more, such as those of a workload that left the rules.
func orphans(l layout, s node.Snapshot, wants []plan.Want) []plan.Want {
	if len(s.Knobs.Before) == 0 {
		return nil
	}
	wanted := make(map[node.Knob]bool, len(wants))
	for _, w := range wants {
		wanted[w.Knob] = true
	}
	var left []node.Knob
	for k := range s.Knobs.Before {
		if !wanted[k] {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, node.Knob.Compare)
	var released []plan.Want
	for _, k := range left {
		_, inBE := l.meetAbove(k.Cgroup)
		released = append(released, plan.Want{Intent: plan.Release, Knob: k, Owner: "policy", Reason: "no rule asks for it any more", BE: inBE})
	}
	return released
}
