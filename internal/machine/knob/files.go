package knob

import (
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Files holds the content of a cgroup's files by name. The names depend on the
// cgroup version. One knob (node.File) may consist of several files.
type Files struct {
	Version int
	Text    map[string]string
}

// A Writing is a text to write and the name of the file to write it to.
type Writing struct{ File, Text string }

// NoLimitV1 is the number that cgroup v1 shows in place of a memory limit if
// there is none (with pages of 4 KiB).
const NoLimitV1 = unit.MaxBytes / 4096 * 4096

// Number returns the number in a file. For "max", it returns the largest number.
func (f Files) Number(file string) int64 {
	if text := f.Text[file]; text != "max" {
		v, _ := strconv.ParseInt(text, 10, 64) //nolint:errcheck // the simulator, which alone has such files, refuses what is no number
		return v
	}
	return 1<<63 - 1
}

// Bandwidth returns the CPU quota (-1: none) and the period in µs, for both
// cgroup versions.
func (f Files) Bandwidth() (quota, period int64) {
	if f.Version == 1 {
		return f.Number("cpu.cfs_quota_us"), f.Number("cpu.cfs_period_us")
	}
	q, p, _ := strings.Cut(f.Text["cpu.max"], " ")
	period, _ = strconv.ParseInt(p, 10, 64) //nolint:errcheck // as in Number
	if q == "max" {
		return -1, period
	}
	quota, _ = strconv.ParseInt(q, 10, 64) //nolint:errcheck // as in Number
	return quota, period
}

// CPUs returns the set of CPUs or memory nodes in a file.
func (f Files) CPUs(file string) unit.CPUSet {
	s, _ := unit.ParseCPUSet(f.Text[file]) //nolint:errcheck // as in Number
	return s
}

// Weight returns the files' value of node.FileCPUWeight.
func (f Files) Weight() node.CPUWeight {
	switch {
	case f.Text["cpu.idle"] == "1":
		return node.CPUWeight{Idle: true}
	case f.Version == 1:
		return node.CPUWeight{Weight: unit.WeightOfShares(f.Number("cpu.shares"))}
	}
	return node.CPUWeight{Weight: unit.WeightOf(f.Number("cpu.weight"))}
}

// OfWeight returns the writes that set the weight v.
func (f Files) OfWeight(v node.CPUWeight) []Writing {
	if v.Idle {
		return []Writing{{"cpu.idle", "1"}}
	}
	weight := Writing{"cpu.weight", strconv.FormatInt(v.Weight.V2(), 10)}
	if f.Version == 1 {
		weight = Writing{"cpu.shares", strconv.FormatInt(v.Weight.Shares(), 10)}
	}
	if f.Text["cpu.idle"] == "1" {
		return []Writing{{"cpu.idle", "0"}, weight}
	}
	return []Writing{weight}
}

// Max returns the files' value of node.FileCPUMax.
func (f Files) Max() node.CPUMax {
	quota, period := f.Bandwidth()
	v := node.CPUMax{Quota: node.NoQuota, Period: time.Duration(period) * time.Microsecond}
	if quota >= 0 {
		v.Quota = time.Duration(quota) * time.Microsecond
	}
	v.Burst = time.Duration(f.Number("cpu.cfs_burst_us")+f.Number("cpu.max.burst")) * time.Microsecond
	return v
}

// OfMax returns the writes that set the quota, period and burst to v. Their
// order is such that the kernel accepts them, whatever the present values are.
// The burst is last, because some kernels change it when cpu.max is written.
func (f Files) OfMax(v node.CPUMax) []Writing {
	micro := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	quota := map[int]string{1: "-1", 2: "max"}[f.Version]
	if v.Quota != node.NoQuota {
		quota = micro(v.Quota)
	}
	if f.Version == 1 {
		return []Writing{
			{"cpu.cfs_burst_us", "0"}, {"cpu.cfs_quota_us", "-1"},
			{"cpu.cfs_period_us", micro(v.Period)}, {"cpu.cfs_quota_us", quota}, {"cpu.cfs_burst_us", micro(v.Burst)},
		}
	}
	return []Writing{{"cpu.max.burst", "0"}, {"cpu.max", quota + " " + micro(v.Period)}, {"cpu.max.burst", micro(v.Burst)}}
}

// Memory returns the files' value of node.FileMemory.
func (f Files) Memory() node.Memory {
	bytes := func(file string) unit.Bytes {
		if v := unit.Bytes(f.Number(file)); v < NoLimitV1 {
			return v
		}
		return unit.MaxBytes
	}
	if f.Version == 1 {
		return node.Memory{High: unit.MaxBytes, Max: bytes("memory.limit_in_bytes")}
	}
	return node.Memory{Min: bytes("memory.min"), Low: bytes("memory.low"), High: bytes("memory.high"), Max: bytes("memory.max")}
}

// OfMemory returns the writes that set the memory protection and limits to v. On cgroup
// v1, ok is false if v has more than the limit Max, the only one with a file.
func (f Files) OfMemory(v node.Memory) (writes []Writing, ok bool) {
	if f.Version == 2 {
		return []Writing{
			{"memory.min", v.Min.String()}, {"memory.low", v.Low.String()},
			{"memory.high", v.High.String()}, {"memory.max", v.Max.String()},
		}, true
	}
	if v.Min != 0 || v.Low != 0 || v.High != unit.MaxBytes {
		return nil, false
	}
	limit := "-1"
	if v.Max != unit.MaxBytes {
		limit = v.Max.String()
	}
	return []Writing{{"memory.limit_in_bytes", limit}}, true
}
