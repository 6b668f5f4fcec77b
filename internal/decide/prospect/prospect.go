// Package prospect says what nodes could have given to batch work in the past, at
// which hours, and with which risk for a job.
//
// A Node has the measured steps of a node. Of them comes an Outlook, which is small
// enough for a NodeReport: counts and sums that can be added up over nodes. A page
// is made of Outlooks alone, whether they came from nodes, from Prometheus or from a
// file.
package prospect

import (
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Absent is the value of a step that nobody measured.
const Absent = -1

// SparePercent is the part of a node's memory that is Spare where nothing else is
// known: the distance of the thresholds at which Koordinator's chart offers memory (65)
// and evicts (70).
const SparePercent unit.Percent = 5

// A Node is what was measured on a node. A column is empty if it was not measured at
// all, and otherwise has a value for each step.
type Node struct {
	Name   string
	Pool   string // of nodes that are alike; may be empty
	CPU    unit.MilliCPU
	Memory unit.Bytes
	// Spare is the memory that batch work may use above its room before it is evicted.
	Spare unit.Bytes
	Start int64 // the first minute, since 1970
	Step  int64 // the length of a step, in minutes

	// RoomCPU and RoomMemory are the least that batch work could have requested in the
	// step (package overcommit), in thousandths of a CPU and in MiB.
	RoomCPU, RoomMemory []int64
	// UsedCPU and UsedMemory are what all work of the node used: the mean CPU and the
	// greatest working set.
	UsedCPU, UsedMemory []int64
	// BatchCPU is the part of UsedCPU of work that could be batch work and runs as
	// something else: Jobs, CronJobs, pods of QoS class BestEffort.
	BatchCPU []int64

	Hurt []Hurt
	// Promises have the count of past promises of this node, if there were any.
	Promises []promise.Promise
}

// Hurt is a service that waited, or was held back.
type Hurt struct {
	Service string `json:"service"`
	// By is the workload that it waited for, or "" if its own CPU limit held it back.
	By      string        `json:"by,omitempty"`
	Minutes int64         `json:"minutes"` // in which it was hurt
	Lost    time.Duration `json:"lost_ns"` // the sum of its waits or its throttling; 0: not measured
}

// An Outlook is what is known of a node for batch work. Outlooks of several nodes
// are added hour by hour and risk by risk.
type Outlook struct {
	Name   string        `json:"name"`
	Pool   string        `json:"pool,omitempty"`
	CPU    unit.MilliCPU `json:"cpu_mcpu"`
	Memory unit.Bytes    `json:"memory_bytes"`
	// From and To are the first minute and the one after the last one, since 1970.
	From int64 `json:"from_minute"`
	To   int64 `json:"to_minute"`
	Step int64 `json:"step_minutes"`
	Seen int64 `json:"seen_minutes"` // those between From and To that have a value

	All      Hour                      `json:"all"`                     // of all hours together
	Hours    [24]Hour                  `json:"hours"`                   // of the day, in UTC
	Risks    []Risk                    `json:"risks"`                   // one for each of Lengths and Fills
	Hurt     []Hurt                    `json:"hurt,omitempty"`          // the worst ones
	Promises []promise.Promise         `json:"promises"`                // and how often such ones were kept
	Lasting  []Lasting                 `json:"lasting,omitempty"`       // of Backtest, one for each of promise.Hours
	Days     []Day                     `json:"days,omitempty"`          // of Backtest, for a judgement of them
	Week     Week                      `json:"week,omitzero"`           // working days beside weekends
	BatchCPU node.Maybe[unit.MilliCPU] `json:"batch_cpu_mcpu,omitzero"` // the mean of Node.BatchCPU
}

// An Hour is what could have been given at one hour of the day.
type Hour struct {
	CPU    Spread[unit.MilliCPU] `json:"cpu_mcpu"`
	Memory Spread[unit.Bytes]    `json:"memory_bytes"`
}

// A Spread is a low and a mean value of the room of a resource, and its mean use.
type Spread[T unit.MilliCPU | unit.Bytes] struct {
	Steps int64         `json:"steps"` // whose room was measured; 0: Low and Mean are unknown
	Low   T             `json:"low"`   // the 5 % quantile
	Mean  T             `json:"mean"`
	Used  node.Maybe[T] `json:"used,omitzero"` // by all work of the node
}

// A Risk counts what would have become of jobs of a length that began at each of the
// measured steps, if batch work had used a share of what it could request at this step.
type Risk struct {
	Length time.Duration `json:"length_ns"`
	Fill   unit.Percent  `json:"fill_percent"`
	CPU    Trials        `json:"cpu"`    // Failed got less than half of their CPU for more than a tenth of the length
	Memory Trials        `json:"memory"` // Failed had at some step less room than they need, by more than Spare
}

// Trials count jobs: those that began at a step with room, and whose whole length was
// measured, and how many of them failed.
type Trials struct {
	Jobs   int64 `json:"jobs"`
	Failed int64 `json:"failed"`
	// Variance is that of Failed, by how much days differ: jobs of one day are alike. Free
	// is the number of days with jobs less one, over all nodes; below 1, there is no variance.
	Variance float64 `json:"variance,omitempty"`
	Free     int64   `json:"free,omitempty"`
}
