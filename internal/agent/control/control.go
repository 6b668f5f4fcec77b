// Package control implements the local socket through which the command tenon shows
// the inputs, wants and writes of tenond. A Ledger records them, with reasons and
// times. The server on the socket answers tenon status, explain and top.
package control

import (
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/misfit"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/reclaim"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/suppresscost"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/trial"
	"tenon.sh/tenon/internal/model/unit"
)

// SocketPath returns the path of the agent's socket in a state directory. Only
// root may connect to it.
func SocketPath(stateDir string) string { return filepath.Join(stateDir, "tenond.sock") }

// A Status describes the agent and its node at one moment. Its JSON keys are
// stable. CPU usage is a mean over about a second. Unknown values are absent.
type Status struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// At is the time of the last snapshot. It is absent before the first tick.
	At    time.Time `json:"at,omitzero"`
	Ticks uint64    `json:"ticks"`
	// Blind is the reason why the last tick could not read the node, or "" after a
	// successful read.
	Blind     string     `json:"blind,omitempty"`
	Took      Took       `json:"took"`
	Node      Node       `json:"node"`
	Classes   []Class    `json:"classes"`
	Workloads []Workload `json:"workloads"`
	// Bounds lists the knobs that limit best-effort work at its contention roots.
	Bounds []Knob `json:"bounds"`
	// Batch holds the batch resources.
	Batch node.Batch `json:"batch,omitzero"`
	// Isolation describes the isolation of best-effort work on the CPU.
	Isolation Isolation `json:"isolation"`
	// Watermark is the cost of the threshold of CPU suppress for best-effort work.
	// It is absent without a threshold.
	Watermark *suppresscost.Watermark `json:"watermark,omitempty"`
	// Shadow has the steps that an agent which only observes has not performed. It is
	// absent if the agent acts.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Held is the number of knobs that Tenon has changed and not released.
	Held int `json:"held"`
	// Failing holds the writes of the last tick that failed.
	Failing []record.Write `json:"failing,omitempty"`
	// Recent holds the last writes, newest first.
	Recent []record.Write `json:"recent,omitempty"`
	// Troubles holds the problems of the agent itself.
	Troubles []health.Trouble `json:"troubles,omitempty"`
}

// A Shadow has the number of steps, by policy, that the agent would have performed since
// it started.
type Shadow struct {
	Steps map[plan.Owner]int64 `json:"steps"`
}

// Took holds the duration of each part of the last tick.
type Took struct {
	Sense  time.Duration `json:"sense_ns"`
	Decide time.Duration `json:"decide_ns"`
	Act    time.Duration `json:"act_ns"`
}

// Node describes the machine.
type Node struct {
	CPUs        int                       `json:"cpus"`
	CPU         node.Maybe[unit.MilliCPU] `json:"cpu_mcpu,omitzero"`
	Steal       node.Maybe[unit.MilliCPU] `json:"steal_mcpu,omitzero"`
	Memory      node.Maybe[unit.Bytes]    `json:"memory_bytes,omitzero"`
	MemoryTotal node.Maybe[unit.Bytes]    `json:"memory_total_bytes,omitzero"`
	Busy        []CPU                     `json:"busy,omitempty"`
}

// CPU is the usage of one CPU. Class divides it among the classes if the kernel
// counts each workload's usage by CPU (on cgroup v1: for latency-sensitive work).
type CPU struct {
	ID    unit.CPU                     `json:"id"`
	Busy  unit.MilliCPU                `json:"busy_mcpu"`
	Class map[node.Class]unit.MilliCPU `json:"class_mcpu,omitempty"`
}

// Class holds the sums over the workloads of one class.
type Class struct {
	Class     node.Class `json:"class"`
	Workloads int        `json:"workloads"`
	// CPU and Memory are sums over the workloads with a known value. They are absent
	// if no workload has one.
	CPU    node.Maybe[unit.MilliCPU] `json:"cpu_mcpu,omitzero"`
	Memory node.Maybe[unit.Bytes]    `json:"memory_bytes,omitzero"`
}

// Workload is one workload with its use.
type Workload struct {
	ID             node.WorkloadID           `json:"id"`
	Class          node.Class                `json:"class"`
	Rule           string                    `json:"rule,omitempty"`
	Cgroup         node.CgroupPath           `json:"cgroup"`
	ContentionRoot node.CgroupPath           `json:"contention_root,omitempty"`
	CPU            node.Maybe[unit.MilliCPU] `json:"cpu_mcpu,omitzero"`
	Memory         node.Maybe[unit.Bytes]    `json:"memory_bytes,omitzero"`
	// Throttled is the part of the time for which the workload's own quota
	// throttled it. The quotas of the cgroups above are ignored.
	Throttled     node.Maybe[unit.Percent]  `json:"throttled_percent,omitzero"`
	CPULimit      node.Maybe[unit.MilliCPU] `json:"cpu_limit_mcpu,omitzero"`
	MemoryLimit   node.Maybe[unit.Bytes]    `json:"memory_limit_bytes,omitzero"`
	MemoryRequest node.Maybe[unit.Bytes]    `json:"memory_request_bytes,omitzero"`
	// DelayP99 is the 99th percentile of the time that the workload's threads wait
	// for a CPU. Objective is its upper bound in the configuration.
	DelayP99  node.Maybe[time.Duration] `json:"run_queue_delay_p99_ns,omitzero"`
	Objective node.Maybe[time.Duration] `json:"run_queue_delay_objective_ns,omitzero"`
	// Verdict says whether the workload keeps its objective, for waits or requests. It
	// is absent if the workload has none.
	Verdict *verdict.Page `json:"objective,omitempty"`
	// Suggested is an objective that a service without one may state. It is absent if the
	// workload is no service, has an objective, or if its waits are not counted by length.
	Suggested *slo.Suggestion `json:"suggested_objective,omitempty"`
	// Waits lists the workloads that had the CPU while this workload waited,
	// longest wait first.
	Waits []Wait `json:"waits,omitempty"`
	// Run is Frozen or Ended. It is absent if the workload runs, and while
	// eviction is disabled.
	Run node.Run `json:"run,omitempty"`
	// Misfit explains why the CPU limit does not fit the workload. It is absent if the limit fits.
	Misfit *misfit.Misfit `json:"misfit,omitempty"`
	// Slice is the virtual worker of the workload (docs/glossary.md). It is absent
	// if the workload's rule has no slice.
	Slice *worker.Place `json:"slice,omitempty"`
}

// A Wait says how long a workload waited per second while another one, the
// runner, had the CPU. Runner is a name as in node.Wait.
type Wait struct {
	Runner node.WorkloadID `json:"runner"`
	Time   time.Duration   `json:"wait_ns_per_s"`
}

// Knob is one knob: its present value, its value before Tenon, the wanted
// value, and the reason for the wanted value.
type Knob struct {
	node.Knob
	Now    *string `json:"now"`    // null: the value was not read, or could not be
	Before *string `json:"before"` // null: Tenon has not changed it
	// Intent is the intent of the policy for the knob. It is empty without a want.
	Intent plan.Intent `json:"intent,omitempty"`
	Want   string      `json:"want,omitempty"` // the wanted value, if Intent is to set one
	Policy string      `json:"policy,omitempty"`
	Reason string      `json:"reason,omitempty"`
	// Since is the time of the last known change of the want.
	Since time.Time `json:"since,omitzero"`
	// Wrote is the last write of the knob. It is nil without a write.
	Wrote *record.Write `json:"wrote,omitempty"`
}

// An Explanation holds all decisions about one workload, cgroup or knob.
type Explanation struct {
	At time.Time `json:"at"`
	// Workload is the explained workload. It is nil if the explanation is about a
	// cgroup or a knob.
	Workload *Workload       `json:"workload,omitempty"`
	Cgroup   node.CgroupPath `json:"cgroup"`
	// Inputs lists the workloads in the explained cgroup, beginning with the
	// largest user of CPU.
	Inputs []Workload `json:"inputs,omitempty"`
	// More is the number of workloads that Inputs omits.
	More int `json:"more_inputs,omitempty"`
	// Batch holds the batch resources. It is nil unless the explanation is about them.
	Batch *node.Batch `json:"batch,omitempty"`
	// Selection holds the selected isolation mechanism and the reason. It is set
	// if the explanation is about a knob of a mechanism.
	Selection *node.Selection `json:"selection,omitempty"`
	// Trials holds the trials of isolation mechanisms, if they are explained.
	Trials *trial.Status `json:"trials,omitempty"`
	// Effects holds the results of the trials for the explained service.
	Effects []trial.Effect `json:"effects,omitempty"`
	// Watermark is the cost of the threshold of CPU suppress for best-effort work. It is set
	// if the explanation is about isolation, best-effort work, or the bound of such work.
	Watermark *suppresscost.Watermark `json:"watermark,omitempty"`
	// Reclaim says what the kernel was asked to reclaim from the explained best-effort
	// workload. It is nil if the reclaim is off.
	Reclaim *Reclaim `json:"reclaim,omitempty"`
	Knobs   []Knob   `json:"knobs"`
}

// A Reclaim is what the kernel has reclaimed from one workload, and the state of its steps.
type Reclaim struct {
	Done node.Reclaim `json:"done"`
	Work reclaim.Work `json:"work"`
	// Lacks is what the node lacks of the free memory that the configuration wants.
	Lacks unit.Bytes `json:"lacks,omitempty"`
}
