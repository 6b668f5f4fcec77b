package node

import (
	"slices"

	"tenon.sh/tenon/internal/model/unit"
)

// A CPUOverride is what one workload demands of the CPUs, and the choice of a
// scheduler for it. In the zero CPUOverride its class alone decides.
type CPUOverride struct {
	// Pod is the UID of the pod, for reports.
	Pod string `json:"pod,omitempty"`
	// Grade (0: none), Bind, Within and Apart are values of package pick.
	Grade  uint8 `json:"grade,omitempty"`
	Bind   uint8 `json:"bind,omitempty"`
	Within uint8 `json:"within,omitempty"`
	Apart  uint8 `json:"apart,omitempty"`
	Fewest bool  `json:"fewest,omitempty"`
	// CPUs is the number of own CPUs or seats, and Request the load of a
	// workload that shares CPUs.
	CPUs    int           `json:"cpus,omitempty"`
	Request unit.MilliCPU `json:"request,omitempty"`
	Grows   bool          `json:"grows,omitempty"` // the pool may be larger than its home
	// Containers are the containers with CPUs of their own, in order.
	Containers []ContainerCPUs `json:"containers,omitempty"`
	// Chosen is the choice of a scheduler; zero: none.
	Chosen CPUChoice `json:"chosen,omitzero"`
}

// ContainerCPUs is the number of CPUs of one container.
type ContainerCPUs struct {
	Name string `json:"name"`
	CPUs int    `json:"cpus"`
}

// A CPUChoice is the choice of a scheduler for a workload.
type CPUChoice struct {
	// Topology is the hash of the topology for which the choice was made;
	// empty: the scheduler did not say.
	Topology string `json:"topology,omitempty"`
	// Grade is a pick.Grade.
	Grade uint8 `json:"grade,omitempty"`
	// CPUs are the CPUs of the workload, and Home all CPUs of the pool that it
	// shares.
	CPUs unit.CPUSet `json:"cpus,omitzero"`
	Home unit.CPUSet `json:"home,omitzero"`
}

// Equal reports whether a and b demand the same.
func (a CPUOverride) Equal(b CPUOverride) bool {
	return a.Pod == b.Pod && a.Grade == b.Grade && a.Bind == b.Bind && a.Within == b.Within && a.Apart == b.Apart && a.Fewest == b.Fewest && a.Grows == b.Grows &&
		a.CPUs == b.CPUs && a.Request == b.Request && slices.Equal(a.Containers, b.Containers) && a.Chosen == b.Chosen
}

// IsZero reports whether nothing is demanded, for the JSON option omitzero.
func (a CPUOverride) IsZero() bool { return a.Equal(CPUOverride{}) }
