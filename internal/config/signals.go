package config

import "tenon.sh/tenon/internal/model/node"

// Signals says which of the kernel's signals are used where the kernel has
// them. Without one the loop still turns in each period.
type Signals struct {
	// RunQueueDelay: BPF counts how long services wait for a CPU, and wakes
	// the loop when it is too long. It costs every context switch.
	RunQueueDelay bool
	// Pressure: PSI triggers wake the loop.
	Pressure bool
}

// signals is the mapping of this name.
type signals struct {
	RunQueueDelay node.Maybe[string] `json:"runQueueDelay" oneof:"auto off"`
	Pressure      node.Maybe[string] `json:"pressure" oneof:"auto off"`
}

// The words for a signal that is used where there is one, and that is not.
const (
	auto = "auto"
	off  = "off"
)

// signals returns what package daemon works with.
func (s signals) signals() Signals {
	return Signals{RunQueueDelay: s.RunQueueDelay.Or(auto) != off, Pressure: s.Pressure.Or(auto) != off}
}
