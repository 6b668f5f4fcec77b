package config

import "tenon.sh/tenon/internal/model/node"

// Signals selects what the agent asks the kernel to report, if the kernel supports it.
// Without RunQueueDelay and Pressure, the loop runs once per period.
type Signals struct {
	// RunQueueDelay means that BPF measures how long services wait for a CPU, and wakes
	// the loop after long waits. It makes every context switch slower.
	RunQueueDelay bool
	// Pressure means that PSI triggers wake the loop.
	Pressure bool
	// Requests means that BPF may measure at the sockets of services how long they take
	// to answer requests, for objectives with the source socket. It makes each segment
	// of TCP slower while a service has such an objective.
	Requests bool
}

// signals is the value of the key signals in the configuration file.
type signals struct {
	RunQueueDelay node.Maybe[string] `json:"runQueueDelay" oneof:"auto off"`
	Pressure      node.Maybe[string] `json:"pressure" oneof:"auto off"`
	Requests      node.Maybe[string] `json:"requests" oneof:"auto off"`
}

// These are the accepted words: auto uses the signal if the kernel has it, and off never uses it.
const (
	auto = "auto"
	off  = "off"
)

// signals converts the words of s to booleans.
func (s signals) signals() Signals {
	return Signals{RunQueueDelay: s.RunQueueDelay.Or(auto) != off, Pressure: s.Pressure.Or(auto) != off, Requests: s.Requests.Or(auto) != off}
}
