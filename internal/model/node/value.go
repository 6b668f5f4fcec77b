package node

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Value is the value of a knob, in the terms of cgroup v2. It may combine
// several files. Values can be compared by ==.
type Value interface {
	// String prints the value in the notation that ParseValue reads.
	fmt.Stringer
	// Round returns the value that the kernel shows after Tenon has written the
	// receiver.
	Round(Kernel) Value
	// CompareWidth compares how much two values of one type allow. It is
	// negative if the receiver allows less than the other, positive if it
	// allows more, and 0 if they are equal or not comparable.
	CompareWidth(Value) int
}

// IsKept reports whether a value of this type changes only when the knob is written.
// Other values also change when processes start or end.
func IsKept(v Value) bool {
	switch v.(type) {
	case Run, Scheduler, Threads:
		return false
	}
	return true
}

// compareWith returns compare(o) if o has the type V, and otherwise 0, which
// means that the values are not comparable.
func compareWith[V Value](o Value, compare func(V) int) int {
	if w, same := o.(V); same {
		return compare(w)
	}
	return 0
}

// CPUWeight says how a cgroup competes for CPU with its siblings. It has a weight,
// or it is idle: then it has no weight, and runs like SCHED_IDLE (Linux 5.15).
type CPUWeight struct {
	Idle   bool
	Weight unit.Weight // 0 if Idle
}

// String prints "idle" or the weight.
func (v CPUWeight) String() string {
	if v.Idle {
		return "idle"
	}
	return v.Weight.String()
}

// Round rounds to whole weights (v2) or whole shares (v1).
func (v CPUWeight) Round(k Kernel) Value {
	switch {
	case v.Idle:
		return CPUWeight{Idle: true}
	case k.CgroupVersion == 1:
		return CPUWeight{Weight: unit.WeightOfShares(v.Weight.Shares())}
	default:
		return CPUWeight{Weight: unit.WeightOf(v.Weight.V2())}
	}
}

// CompareWidth compares weights. Idle is narrower than every weight.
func (v CPUWeight) CompareWidth(o Value) int {
	return compareWith(o, func(w CPUWeight) int { return cmp.Compare(v.Weight, w.Weight) })
}

func parseCPUWeight(text string) (Value, error) {
	if text == "idle" {
		return CPUWeight{Idle: true}, nil
	}
	w, err := unit.ParseWeight(text)
	return CPUWeight{Weight: w}, err
}

// CPUMax is the CFS bandwidth limit of a cgroup. In each Period the cgroup may use the
// CPU time Quota. In addition it may use what it left of its quota in earlier periods,
// at most Burst (Documentation/scheduler/sched-bwc.rst; burst: Linux 5.14).
type CPUMax struct {
	Quota  time.Duration // NoQuota: unlimited
	Period time.Duration
	Burst  time.Duration
}

// NoQuota means no limit: "max" on v2, -1 on v1.
const NoQuota time.Duration = math.MaxInt64

// The kernel limits CPUMax to these bounds (kernel/sched/core.c:
// min_cfs_quota_period, max_cfs_quota_period).
const (
	MinQuota      = time.Millisecond
	MinPeriod     = time.Millisecond
	MaxPeriod     = time.Second
	DefaultPeriod = 100 * time.Millisecond
)

// Limit returns the CPUMax whose quota allows m of CPU in the default period.
func Limit(m unit.MilliCPU) CPUMax { return LimitIn(m, DefaultPeriod) }

// LimitIn returns the CPUMax whose quota allows m of CPU in the given period.
func LimitIn(m unit.MilliCPU, period time.Duration) CPUMax {
	return CPUMax{Quota: max(time.Duration(m)*period/1000, MinQuota), Period: period}
}

// String prints "max 100000" or "50000 100000", in µs as in cpu.max, followed
// by " burst 20000" if the burst is not 0.
func (v CPUMax) String() string {
	s := "max"
	if v.Quota != NoQuota {
		s = strconv.FormatInt(v.Quota.Microseconds(), 10)
	}
	s += " " + strconv.FormatInt(v.Period.Microseconds(), 10)
	if v.Burst != 0 {
		s += " burst " + strconv.FormatInt(v.Burst.Microseconds(), 10)
	}
	return s
}

// Round rounds to whole microseconds, the unit of the kernel's files.
func (v CPUMax) Round(Kernel) Value {
	if v.Quota != NoQuota {
		v.Quota = v.Quota.Truncate(time.Microsecond)
	}
	v.Period, v.Burst = v.Period.Truncate(time.Microsecond), v.Burst.Truncate(time.Microsecond)
	return v
}

// Cores returns the limit as a number of CPUs, or +Inf if there is no limit.
func (v CPUMax) Cores() float64 {
	if v.Quota == NoQuota || v.Period <= 0 {
		return math.Inf(1)
	}
	return float64(v.Quota) / float64(v.Period)
}

// CompareWidth compares the ratios of quota to period.
func (v CPUMax) CompareWidth(o Value) int {
	return compareWith(o, func(w CPUMax) int { return cmp.Compare(v.Cores(), w.Cores()) })
}

func parseCPUMax(text string) (Value, error) {
	bad := fmt.Errorf("cpu.max %q: want QUOTA PERIOD [burst BURST] in µs, such as 50000 100000 or max 100000", text)
	f := strings.Fields(text)
	if len(f) != 2 && (len(f) != 4 || f[2] != "burst") {
		return nil, bad
	}
	v := CPUMax{Quota: NoQuota}
	for i, to := range map[int]*time.Duration{0: &v.Quota, 1: &v.Period, 3: &v.Burst} {
		if i >= len(f) || i == 0 && f[i] == "max" {
			continue
		}
		micros, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil || micros < 0 || micros > math.MaxInt64/1000 {
			return nil, bad
		}
		*to = time.Duration(micros) * time.Microsecond
	}
	return v, nil
}

// CPUs is a set of CPUs (cpuset.cpus) or NUMA nodes (cpuset.mems). If it is empty,
// a v2 cgroup has the set of its parent, and a v1 cgroup accepts no tasks.
type CPUs struct{ Set unit.CPUSet }

// String prints the kernel's list format.
func (v CPUs) String() string { return v.Set.String() }

// Round returns v: the kernel stores sets unchanged.
func (v CPUs) Round(Kernel) Value { return v }

// CompareWidth returns a negative number if v is a proper subset of o, and a
// positive number if o is a proper subset of v. The empty set is the widest:
// on v2 it means all CPUs of the parent.
func (v CPUs) CompareWidth(o Value) int {
	w, ok := o.(CPUs)
	switch {
	case !ok || v == w:
		return 0
	case w.Set.Empty() || (!v.Set.Empty() && w.Set.Contains(v.Set)):
		return -1
	case v.Set.Empty() || v.Set.Contains(w.Set):
		return 1
	}
	return 0
}

func parseCPUs(text string) (Value, error) {
	set, err := unit.ParseCPUSet(text)
	return CPUs{set}, err
}

// Memory holds the memory protection and limits of a cgroup. On v1 only Max
// exists: Min and Low are 0, and High is MaxBytes.
type Memory struct {
	Min, Low  unit.Bytes // protection: never reclaimed below Min, reclaimed last below Low
	High, Max unit.Bytes // limits: throttled above High, killed above Max
}

// NoMemoryLimit is the Memory of a new cgroup: no protection and no limit.
var NoMemoryLimit = Memory{High: unit.MaxBytes, Max: unit.MaxBytes}

// String prints "min 0 low 0 high max max 1073741824".
func (v Memory) String() string {
	return fmt.Sprintf("min %v low %v high %v max %v", v.Min, v.Low, v.High, v.Max)
}

// Round rounds down to whole pages, as the kernel's page counters do.
func (v Memory) Round(k Kernel) Value {
	page := max(k.PageSize, 1)
	round := func(b unit.Bytes) unit.Bytes {
		if b == unit.MaxBytes {
			return b
		}
		return b / page * page
	}
	return Memory{round(v.Min), round(v.Low), round(v.High), round(v.Max)}
}

// CompareWidth compares Max, then High.
func (v Memory) CompareWidth(o Value) int {
	return compareWith(o, func(w Memory) int { return cmp.Or(cmp.Compare(v.Max, w.Max), cmp.Compare(v.High, w.High)) })
}

func parseMemory(text string) (Value, error) {
	f := strings.Fields(text)
	if len(f) != 8 || f[0] != "min" || f[2] != "low" || f[4] != "high" || f[6] != "max" {
		return nil, fmt.Errorf("memory %q: want min N low N high N max N", text)
	}
	var v Memory
	for i, to := range []*unit.Bytes{&v.Min, &v.Low, &v.High, &v.Max} {
		b, err := unit.ParseBytes(f[2*i+1])
		if err != nil {
			return nil, err
		}
		*to = b
	}
	return v, nil
}

// Maximum is the value of a file that holds one number from 0 or "max".
type Maximum struct {
	Max   int64 // NoMaximum: no limit
	Bytes bool  // the number is of bytes
}

// NoMaximum means no limit.
const NoMaximum int64 = math.MaxInt64

// String prints the number, or "max".
func (v Maximum) String() string {
	if v.Max == NoMaximum {
		return "max"
	}
	return strconv.FormatInt(v.Max, 10)
}

// Round rounds a number of bytes down to pages.
func (v Maximum) Round(k Kernel) Value {
	if v.Bytes && v.Max != NoMaximum && k.PageSize > 0 {
		v.Max -= v.Max % int64(k.PageSize)
	}
	return v
}

func (v Maximum) CompareWidth(o Value) int {
	return compareWith(o, func(w Maximum) int { return cmp.Compare(v.Max, w.Max) })
}

func parseMaximum(text string) (int64, error) {
	if text == "max" {
		return NoMaximum, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("limit %q: want max or a number from 0", text)
	}
	return n, nil
}
