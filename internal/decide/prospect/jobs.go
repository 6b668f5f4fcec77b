package prospect

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Jobs is the work of Jobs in a cluster that runs as services, by its requests. Room is what
// batch work may request, so the two compare. Nothing here says what the pods used in the
// past: nodes fewer follow only from that (Saving).
type Jobs struct {
	// Pods is the number of pods that had a part of the time of the outlooks, and CPU and
	// Memory what they requested on average over this time, on all nodes together. Pods
	// that were deleted are missing.
	Pods   int           `json:"pods"`
	CPU    unit.MilliCPU `json:"cpu_mcpu"`
	Memory unit.Bytes    `json:"memory_bytes"`
	// Untimed is the number of pods that have ended and do not say when. They are not in
	// the sums.
	Untimed int `json:"untimed,omitempty"`

	Running    int           `json:"running"` // now, on these nodes
	RunningCPU unit.MilliCPU `json:"running_cpu_mcpu"`
	// Used is what the running pods use now, without Unmeasured of them: of these it is
	// not known. It is absent if it is known of none.
	Used       node.Maybe[unit.MilliCPU] `json:"used_mcpu,omitzero"`
	Unmeasured int                       `json:"unmeasured,omitempty"`
	// Starting is the number of pods that have one of these nodes and do not run yet:
	// an image is missing, say.
	Starting    int           `json:"starting"`
	StartingCPU unit.MilliCPU `json:"starting_cpu_mcpu"`
	// Waiting is the number of pods without a node.
	Waiting    int           `json:"waiting"`
	WaitingCPU unit.MilliCPU `json:"waiting_cpu_mcpu"`
}

// A JobPod is a pod of a Job that could be batch work. Times are seconds since 1970.
type JobPod struct {
	Node   string // "": it waits for one
	CPU    unit.MilliCPU
	Memory unit.Bytes
	Begin  int64
	Runs   bool // it is in the phase Running
	Ended  bool
	End    int64 // if it has ended; 0: not known when
}

// A JobCount adds up pods of Jobs on some nodes.
type JobCount struct {
	nodes       map[string]*Outlook
	waits       bool // whether pods without a node count
	jobs        Jobs
	cpu, memory float64
}

// CountJobs returns an empty sum for nodes. waits says that they are all nodes of the
// cluster, so that pods without a node count, too.
func CountJobs(all []Outlook, waits bool) *JobCount {
	c := &JobCount{nodes: make(map[string]*Outlook, len(all)), waits: waits}
	for i := range all {
		c.nodes[all[i].Name] = &all[i]
	}
	return c
}

// Add adds a pod, and reports whether it runs now on one of the nodes.
func (c *JobCount) Add(p JobPod) (runs bool) {
	j := &c.jobs
	if p.Node == "" && !p.Ended && c.waits {
		j.Waiting, j.WaitingCPU = j.Waiting+1, j.WaitingCPU+p.CPU
	}
	o := c.nodes[p.Node]
	if o == nil {
		return false
	}
	end := o.To * 60
	switch {
	case p.Runs:
		j.Running, j.RunningCPU = j.Running+1, j.RunningCPU+p.CPU
	case !p.Ended:
		j.Starting, j.StartingCPU = j.Starting+1, j.StartingCPU+p.CPU
	case p.End == 0:
		j.Untimed++
		return false
	default:
		end = min(end, p.End)
	}
	if part := end - max(o.From*60, p.Begin); part > 0 {
		share := float64(part) / float64((o.To-o.From)*60)
		j.Pods++
		c.cpu, c.memory = c.cpu+share*float64(p.CPU), c.memory+share*float64(p.Memory)
	}
	return p.Runs
}

// Done returns the sum. used is what measured of the pods that run now use.
func (c *JobCount) Done(used unit.MilliCPU, measured int) Jobs {
	j := c.jobs
	j.CPU, j.Memory = unit.MilliCPU(c.cpu), unit.Bytes(c.memory)
	if j.Unmeasured = j.Running - measured; measured > 0 {
		j.Used = node.Some(used)
	}
	return j
}
