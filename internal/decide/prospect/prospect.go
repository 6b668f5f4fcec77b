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
	"tenon.sh/tenon/internal/model/unit"
)

// Absent is the value of a step that nobody measured.
const Absent = -1

// A Node is what was measured on a node. A column is empty if it was not measured at
// all, and otherwise has a value for each step.
type Node struct {
	Name   string
	Pool   string // of nodes that are alike; may be empty
	CPU    unit.MilliCPU
	Memory unit.Bytes
	Start  int64 // the first minute, since 1970
	Step   int64 // the length of a step, in minutes

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
	Service string
	// By is the workload that it waited for, or "" if its own CPU limit held it back.
	By      string
	Minutes int64         // in which it was hurt
	Lost    time.Duration // the sum of its waits or its throttling
}

// An Outlook is what is known of a node for batch work. Outlooks of several nodes
// are added hour by hour and risk by risk.
type Outlook struct {
	Name, Pool string
	CPU        unit.MilliCPU
	Memory     unit.Bytes
	From, To   int64 // the first minute and the one after the last one, since 1970
	Step       int64 // in minutes
	Seen       int64 // minutes with a value between them

	Hours    [24]Hour // of the day, in UTC
	Risks    []Risk   // one for each of Lengths and Fills
	Hurt     []Hurt   // the worst ones
	Promises []promise.Promise
	// BatchCPU is the mean use of work that could be batch work.
	BatchCPU unit.MilliCPU
}

// An Hour is what could have been given at one hour of the day.
type Hour struct {
	Steps  int64 // that were measured
	CPU    Spread[unit.MilliCPU]
	Memory Spread[unit.Bytes]
}

// A Spread is a low and a mean value.
type Spread[T unit.MilliCPU | unit.Bytes] struct {
	Low  T // the 5 % quantile
	Mean T
}

// A Risk counts what would have become of jobs of a length that began at each of the
// measured steps, if batch work had used a share of what it could request.
type Risk struct {
	Length  time.Duration
	Fill    unit.Percent
	Jobs    int64 // that began, and whose whole length was measured
	Starved int64 // those that got less than half of their CPU for more than a tenth of the length
	Evicted int64 // those for whose memory there was no room at some step
}
