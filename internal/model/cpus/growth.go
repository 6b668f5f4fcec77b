package cpus

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A GrowthCode says why a pool got or gave back CPUs beside its domain.
type GrowthCode string

// The values of GrowthCode. With GrowthFull a pool got CPUs, with all others it
// gave some back.
const (
	GrowthFull       GrowthCode = "full"          // LS work used most of the CPUs of the pool, and few of the new ones
	GrowthTaken      GrowthCode = "taken"         // other workloads own CPUs of the cache, or keep them
	GrowthBusy       GrowthCode = "busy"          // other services use the cache
	GrowthAway       GrowthCode = "away"          // the CPUs are in no cache beside the domain any more
	GrowthUncounted  GrowthCode = "uncounted"     // the use of each CPU is not counted
	GrowthOtherWaits GrowthCode = "other-waits"   // another workload waits longer than its objective
	GrowthSpare      GrowthCode = "spare"         // the rest of the CPUs would have been enough
	GrowthIdle       GrowthCode = "idle-workload" // the workload of the pool used little of its CPU request
)

// A Growth is one change of the CPUs that a pool has beside its domain: whole L3
// caches. The numbers are those of its Code.
type Growth struct {
	Code GrowthCode  `json:"code"`
	CPUs unit.CPUSet `json:"cpus,omitzero"`
	// Percent is how much of CPUs is or may be used, and For how long this was so.
	// Before a pool grows, it is the use of the CPUs that it gets, and Full and
	// FullFor are those of the CPUs that it has.
	Percent int64         `json:"percent,omitempty"`
	For     time.Duration `json:"for_ns,omitempty"`
	Full    int64         `json:"full_percent,omitempty"`
	FullFor time.Duration `json:"full_for_ns,omitempty"`
	// Taken are the CPUs that others own or keep.
	Taken unit.CPUSet `json:"taken,omitzero"`
	// Workload is the workload that waits, or whose use is not counted.
	Workload string `json:"workload,omitempty"`
}
