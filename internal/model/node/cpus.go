package node

import "tenon.sh/tenon/internal/model/cpus"

// A CPUOverride says which CPUs one workload asks for, and which CPUs a scheduler
// chose for it. If it is zero, the class of the workload alone decides.
type CPUOverride struct {
	// Pod is the UID of the pod. A pod keeps its CPUs by it, and reports name it.
	Pod string `json:"pod,omitempty"`
	cpus.PodRequest
	// Chosen is the choice of a scheduler, or nil. A Choice is large, so the
	// field is a pointer.
	Chosen *cpus.Choice `json:"chosen,omitzero"`
}

// Equal reports whether a and b are the same request and the same choice.
func (a CPUOverride) Equal(b CPUOverride) bool {
	return a.Pod == b.Pod && a.PodRequest.Equal(&b.PodRequest) && (a.Chosen == b.Chosen || a.Chosen != nil && b.Chosen != nil && a.Chosen.Equal(b.Chosen))
}

// IsZero reports whether the workload asks for nothing. The JSON option omitzero calls it.
func (a CPUOverride) IsZero() bool { return a.Equal(CPUOverride{}) }
