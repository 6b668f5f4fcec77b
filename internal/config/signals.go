package config

import "tenon.sh/tenon/internal/model/node"

// Signals selects the kernel signals that wake the loop, if the kernel supports
// them. Without signals, the loop runs once per period.
type Signals struct {
	// RunQueueDelay means that BPF measures how long services wait for a CPU, and wakes
	// the loop after long waits. It makes every context switch slower.
	RunQueueDelay bool
	// Pressure means that PSI triggers wake the loop.
	Pressure bool
}

// signals is the value of the key signals in the configuration file.
type signals struct {
	RunQueueDelay node.Maybe[string] `json:"runQueueDelay" oneof:"auto off"`
	Pressure      node.Maybe[string] `json:"pressure" oneof:"auto off"`
}

// These are the accepted words: auto uses the signal if the kernel has it, and off never uses it.
const (
	auto = "auto"
	off  = "off"
)

// signals converts the words of s to booleans.
func (s signals) signals() Signals {
	return Signals{RunQueueDelay: s.RunQueueDelay.Or(auto) != off, Pressure: s.Pressure.Or(auto) != off}
}
