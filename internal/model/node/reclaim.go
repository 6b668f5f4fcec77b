package node

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// ReclaimSettles is the time after a reclaim at which its effect is judged. Until then
// the workload has probably read back what it needs.
const ReclaimSettles = 5 * time.Second

// A ReclaimOrder asks the kernel to reclaim memory from a workload (memory.reclaim).
type ReclaimOrder struct {
	Workload WorkloadID `json:"workload"`
	Cgroup   CgroupPath `json:"cgroup"`
	Bytes    unit.Bytes `json:"bytes"`
}

// Reclaim says what became of the orders for one workload since the agent started.
type Reclaim struct {
	// Asked and Got are sums over the orders that have ended: the bytes that Tenon asked
	// the kernel for, and those that the kernel reclaimed from the workload meanwhile.
	Asked unit.Bytes `json:"asked,omitempty"`
	Got   unit.Bytes `json:"got,omitempty"`
	// Running says that an order waits or is carried out, or that what the last one got
	// is not known yet, because the counter of the kernel lags.
	Running bool `json:"running,omitempty"`
	// Ended is when the kernel answered the last order, on the clock of Snapshot.At. It is
	// zero if no order has ended.
	Ended time.Time `json:"ended,omitzero"`
	// Errno is the error number of the last order. It is 0 if the kernel carried out the
	// order, in part or as a whole, and -1 for an error without a number.
	Errno int `json:"errno,omitempty"`
}

// IsSettled reports whether an order has ended long enough before a time to be judged.
func (r Reclaim) IsSettled(at time.Time) bool {
	return !r.Running && !r.Ended.IsZero() && at.Sub(r.Ended) >= ReclaimSettles
}
