package node

import (
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// A CPUOverride says which CPUs one workload demands, and which CPUs a scheduler
// chose for it. If it is zero, the class of the workload alone decides.
type CPUOverride struct {
	// Pod is the UID of the pod, for reports.
	Pod string `json:"pod,omitempty"`
	// Grade, Bind, Within and Apart hold constants of package pick: see
	// pick.Claim. A Grade of 0 means that the workload demands no CPUs.
	Grade  uint8 `json:"grade,omitempty"`
	Bind   uint8 `json:"bind,omitempty"`
	Within uint8 `json:"within,omitempty"`
	Apart  uint8 `json:"apart,omitempty"`
	Fewest bool  `json:"fewest,omitempty"`
	// CPUs is the number of CPUs that the workload owns, or the number of its
	// seats. Request is the CPU request of a workload with seats or in a pool.
	CPUs    int           `json:"cpus,omitempty"`
	Request unit.MilliCPU `json:"request,omitempty"`
	Grows   bool          `json:"grows,omitempty"` // a pool may use more CPUs than its home
	// Containers are the containers with CPUs of their own, in the order of the pod.
	Containers []ContainerCPUs `json:"containers,omitempty"`
	// Chosen is the choice of a scheduler, or nil. A CPUChoice is large, so the
	// field is a pointer.
	Chosen *CPUChoice `json:"chosen,omitzero"`
}

// ContainerCPUs is the number of CPUs of one container.
type ContainerCPUs struct {
	Name string `json:"name"`
	CPUs int    `json:"cpus"`
}

// A CPUChoice is the choice of a scheduler for one workload.
type CPUChoice struct {
	// Topology is the hash of the topology for which the scheduler chose. It is
	// empty if the scheduler did not write it.
	Topology string `json:"topology,omitempty"`
	// Grade is a pick.Grade.
	Grade uint8 `json:"grade,omitempty"`
	// CPUs are the CPUs of the workload. If the workload is in a pool, Home is
	// the set of all CPUs of this pool.
	CPUs unit.CPUSet `json:"cpus,omitzero"`
	Home unit.CPUSet `json:"home,omitzero"`
}

// Equal reports whether a and b are the same demand and the same choice.
func (a CPUOverride) Equal(b CPUOverride) bool {
	return a.Pod == b.Pod && a.Grade == b.Grade && a.Bind == b.Bind && a.Within == b.Within && a.Apart == b.Apart && a.Fewest == b.Fewest && a.Grows == b.Grows &&
		a.CPUs == b.CPUs && a.Request == b.Request && slices.Equal(a.Containers, b.Containers) && (a.Chosen == b.Chosen || a.Chosen != nil && b.Chosen != nil && *a.Chosen == *b.Chosen)
}

// IsZero reports whether the workload demands nothing. The JSON option omitzero calls it.
func (a CPUOverride) IsZero() bool { return a.Equal(CPUOverride{}) }
