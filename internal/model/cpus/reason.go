package cpus

import (
	"tenon.sh/tenon/internal/model/unit"
)

// A Reason says why a workload does not have the CPUs that it asks for, or those
// that its scheduler chose: a code, and the numbers of this workload and machine.
type Reason struct {
	Code Code `json:"code"`
	// Request is the request of the workload. It is zero if the reason has no
	// numbers of a request.
	Request Request `json:"request,omitzero"`
	// Given is the number of CPUs that the machine could give, and Open that of the
	// open CPUs. Stay is the number of those that stay open for other work. Cores
	// counts the open CPUs on whole cores, or the cores with an open CPU, if the
	// request depends on these.
	Given int `json:"given,omitempty"`
	Open  int `json:"open,omitempty"`
	Stay  int `json:"stay,omitempty"`
	Cores int `json:"cores,omitempty"`
	// Sizes are the numbers of CPUs that the cores have.
	Sizes []int `json:"sizes,omitempty"`
	// CPU is the amount of CPU that the workload requests or that is left for it,
	// and Shared the amount that other work with shared CPUs requests.
	CPU    unit.MilliCPU `json:"cpu_mcpu,omitempty"`
	Shared unit.MilliCPU `json:"shared_mcpu,omitempty"`
	// Others are the workloads that have what was asked for, the largest first,
	// and OthersMore is the number of further ones.
	Others     []string `json:"others,omitempty"`
	OthersMore int      `json:"others_more,omitempty"`
	// CPUs are the CPUs of a scheduler's choice that the reason is about. Policy
	// is the policy of the choice.
	CPUs   unit.CPUSet `json:"cpus,omitzero"`
	Policy Policy      `json:"policy,omitempty"`
}

// A By says who chose the CPUs of a workload.
type By string

// The values of By.
const (
	ByScheduler By = "scheduler"
	ByNode      By = "node"
)

// A Note says who chose the CPUs of a workload, how they lie on the machine, and
// why they are not what it asks for or what its scheduler chose.
type Note struct {
	By By `json:"by,omitempty"`
	// Policy is that of the CPUs that the workload asks for. Asked is their number,
	// and Has the number of those that it has. If it has none, Reason says why.
	Policy Policy `json:"policy,omitempty"`
	Asked  int    `json:"asked,omitempty"`
	Has    int    `json:"has,omitempty"`
	// Level is the level of the smallest place that contains the CPUs, Nodes the
	// number of NUMA nodes, and Split the number of exclusive CPUs that share a
	// core with others. Moved says that shared CPUs had to move.
	Level Level `json:"level,omitempty"`
	Nodes int   `json:"nodes,omitempty"`
	Split int   `json:"split,omitempty"`
	Moved bool  `json:"moved,omitempty"`
	// Reason says why the workload has not what it asks for. It is nil if it has.
	Reason *Reason `json:"reason,omitempty"`
	// Bound says that a workload without CPUs of its own keeps those to which it
	// was bound before Tenon.
	Bound bool `json:"bound,omitempty"`
	// Choice says why the node chose the CPUs, and did not follow a scheduler.
	Choice *Reason `json:"choice,omitempty"`
	// Growth says how a pool last grew or shrank: at once into one L3 cache, or out
	// of several.
	Growth []Growth `json:"growth,omitempty"`
}

// Refused reports whether the workload has no CPUs.
func (n *Note) Refused() bool { return n.Has == 0 && n.Reason != nil }

// Code returns the code of the note: that of the reason, or else that of the
// choice. It is Fits if there is neither.
func (n *Note) Code() Code {
	switch {
	case n.Reason != nil:
		return n.Reason.Code
	case n.Choice != nil:
		return n.Choice.Code
	}
	return Fits
}
