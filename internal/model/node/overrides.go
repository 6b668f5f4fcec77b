package node

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Overrides are the overrides of one workload. They replace the strategy of the
// workload's class key by key; a key that is missing here is as for the class.
// The zero Overrides overrides nothing.
type Overrides struct {
	Burst  BurstOverride  `json:"burst,omitzero"`
	Memory MemoryOverride `json:"memory,omitzero"`
	// Identity is how a vendor's kernel and the scheduler of best-effort work
	// treat it.
	Identity Maybe[Identity] `json:"identity,omitzero"`
	// IO is its own share of block devices, besides the share of all work of
	// its class.
	IO    []BlockIO     `json:"io,omitempty"`
	Cache CacheOverride `json:"cache,omitzero"`
	// EvictionExemptFrom are the causes for which it may not be evicted: the
	// words of policy.EvictCauses.
	EvictionExemptFrom []string `json:"spared_from,omitempty"`
}

// Equal reports whether both ask for the same.
func (a Overrides) Equal(b Overrides) bool {
	return a.Burst == b.Burst && a.Memory == b.Memory && a.Identity == b.Identity && slices.Equal(a.IO, b.IO) &&
		a.Cache == b.Cache && slices.Equal(a.EvictionExemptFrom, b.EvictionExemptFrom)
}

// BurstOverride is cpuBurst of one workload: how it may exceed its CPU limit.
type BurstOverride struct {
	// Policy is BurstNone or one of the burst policies of package policy.
	Policy        string              `json:"policy,omitempty"`
	CPUPercent    Maybe[unit.Percent] `json:"cpu_percent,omitzero"`
	QuotaPercent  Maybe[unit.Percent] `json:"quota_percent,omitzero"`
	PeriodSeconds Maybe[int64]        `json:"period_seconds,omitzero"`
}

// BurstNone asks for no bursts, whatever the class may have.
const BurstNone = "none"

// MemoryOverride is memoryQOS of one workload: shares of what it counts on.
type MemoryOverride struct {
	// OwnOnly: what the class gets does not count, only what stands here.
	OwnOnly bool `json:"own,omitempty"`
	// Enabled: what is set for the class counts even where it is switched off.
	Enabled           bool                `json:"enabled,omitempty"`
	MinPercent        Maybe[unit.Percent] `json:"min_percent,omitzero"`
	LowPercent        Maybe[unit.Percent] `json:"low_percent,omitzero"`
	ThrottlingPercent Maybe[unit.Percent] `json:"throttling_percent,omitzero"`
}

// BlockIO is the share of a class or workload in a block device, or in the
// disks of a volume group together.
type BlockIO struct {
	// Name is a device ("vda", "/dev/vg0/data", "254:0") or a volume group.
	Name        string `json:"name"`
	VolumeGroup bool   `json:"volume_group,omitempty"`
	// The most in a second, in bytes and in operations; 0: no limit.
	ReadBPS   int64 `json:"readBPS,omitempty"`
	WriteBPS  int64 `json:"writeBPS,omitempty"`
	ReadIOPS  int64 `json:"readIOPS,omitempty"`
	WriteIOPS int64 `json:"writeIOPS,omitempty"`
	// WeightPercent is in percent of the weight without Tenon; 0, 100: no change.
	WeightPercent unit.Percent `json:"ioWeightPercent,omitempty"`
	// Latency within which I/O should end: other work is slowed for it; 0: none.
	Latency time.Duration `json:"latency_ns,omitempty"`
}

// CacheOverride is the part of each L3 cache and of memory bandwidth that one
// workload may have; what is missing is as for its class.
type CacheOverride struct {
	// ControlGroup names the control group of its own that it then has:
	// ControlGroupPrefix and something that no other workload has.
	ControlGroup string              `json:"resctrl,omitempty"`
	Start        Maybe[unit.Percent] `json:"start_percent,omitzero"`
	End          Maybe[unit.Percent] `json:"end_percent,omitzero"`
	Bandwidth    Maybe[unit.Percent] `json:"bandwidth_percent,omitzero"`
}
