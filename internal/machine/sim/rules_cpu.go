package sim

import (
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// weightFile returns the name of the weight file: cpu.shares on v1, cpu.weight on v2.
func weightFile(version int) string {
	if version == 1 {
		return "cpu.shares"
	}
	return "cpu.weight"
}

// dividesBurst is the rule of Options.DividesBurst. No fact has its name, because few kernels have the fault.
var dividesBurst = rule{files: "cpu.max", settle: func(o op) string {
	o.g.files["cpu.max.burst"] = strconv.FormatInt(o.g.number("cpu.max.burst")/1000, 10)
	return o.text
}}

func cpuRules() []rule {
	limits := numberFiles(func(node.LimitFile) bool { return true })
	return []rule{
		{
			name: "a text that is not a number is refused", operation: "write", files: "cpu.shares cpu.weight cpu.idle " + limits,
			refuse: func(o op) syscall.Errno {
				v, err := strconv.ParseInt(o.text, 10, 64)
				bad := err != nil && (!hasWord(limits, o.file) || o.text != "max")
				return refuseIf(bad || (o.file == weightFile(o.n.version) && v < 0), syscall.EINVAL)
			},
		},
		{
			name: "the weight of an idle group cannot be written", operation: "write", files: "cpu.shares cpu.weight",
			refuse: func(o op) syscall.Errno { return refuseIf(o.g.files["cpu.idle"] == "1", syscall.EINVAL) },
		},
		{
			name: "idle is 0 or 1", operation: "write", files: "cpu.idle",
			refuse: func(o op) syscall.Errno { return refuseIf(o.text != "0" && o.text != "1", syscall.EINVAL) },
		},
		{
			name: "an idle group shows the weight of idle", files: "cpu.idle",
			settle: func(o op) string {
				if o.text == "1" {
					// WEIGHT_IDLEPRIO is 3 of 1024, which is below the minimum
					// of cpu.weight.
					o.g.files[weightFile(o.n.version)] = map[int]string{1: "3", 2: "1"}[o.n.version]
				}
				return o.text
			},
		},
		{
			name: "clearing idle resets the weight", files: "cpu.idle",
			settle: func(o op) string {
				if o.text == "0" && o.g.files["cpu.idle"] == "1" {
					file := weightFile(o.n.version)
					o.g.files[file] = newFiles[o.n.version][file]
				}
				return o.text
			},
		},
		{
			name: "shares are clamped to 2 and 262144", version: 1, files: "cpu.shares",
			settle: func(o op) string {
				v, _ := strconv.ParseInt(o.text, 10, 64)
				return strconv.FormatInt(min(max(v, unit.MinShares), unit.MaxShares), 10)
			},
		},
		{
			name: "a weight outside 1 to 10000 is refused", version: 2, operation: "write", files: "cpu.weight",
			refuse: func(o op) syscall.Errno {
				v, _ := strconv.ParseInt(o.text, 10, 64)
				return refuseIf(v < unit.MinWeight || v > unit.MaxWeight, syscall.ERANGE)
			},
		},
		{
			name: "a quota below 1 ms is refused", operation: "write", files: "cpu.cfs_quota_us cpu.max",
			refuse: func(o op) syscall.Errno {
				quota, _, _ := o.bandwidth()
				return refuseIf(quota >= 0 && quota < node.MinQuota.Microseconds(), syscall.EINVAL)
			},
		},
		{
			name: "a period outside 1 ms to 1 s is refused", operation: "write", files: "cpu.cfs_period_us cpu.max",
			refuse: func(o op) syscall.Errno {
				_, period, _ := o.bandwidth()
				return refuseIf(period < node.MinPeriod.Microseconds() || period > node.MaxPeriod.Microseconds(), syscall.EINVAL)
			},
		},
		{
			name: "a burst above the quota is refused", operation: "write", files: "cpu.cfs_burst_us cpu.max.burst",
			refuse: func(o op) syscall.Errno {
				quota, _, burst := o.bandwidth()
				return refuseIf(quota >= 0 && burst > quota, syscall.EINVAL)
			},
		},
		{
			name: "a quota below the burst is refused", operation: "write", files: "cpu.cfs_quota_us cpu.max",
			refuse: func(o op) syscall.Errno {
				quota, _, burst := o.bandwidth()
				return refuseIf(quota >= 0 && burst > quota, syscall.EINVAL)
			},
		},
		{
			name: "a child's quota above its parent's is refused", version: 1, operation: "write", files: "cpu.cfs_quota_us cpu.cfs_period_us",
			refuse: func(o op) syscall.Errno {
				quota, period, _ := o.bandwidth()
				for p := o.path.Parent(); quota >= 0 && p != ""; p = p.Parent() {
					if q, per := o.n.groups[p].bandwidth(1); q >= 0 && quota*per > q*period {
						return syscall.EINVAL
					}
				}
				return 0
			},
		},
		{
			name: "a parent's quota below its child's is refused", version: 1, operation: "write", files: "cpu.cfs_quota_us cpu.cfs_period_us",
			refuse: func(o op) syscall.Errno {
				quota, period, _ := o.bandwidth()
				for p, g := range o.n.groups {
					if q, per := g.bandwidth(1); quota >= 0 && p != o.path && o.path.Contains(p) && q >= 0 && q*period > quota*per {
						return syscall.EINVAL
					}
				}
				return 0
			},
		},
		{
			name: "a negative quota is no quota", version: 1, files: "cpu.cfs_quota_us",
			settle: func(o op) string {
				if strings.HasPrefix(o.text, "-") {
					return "-1"
				}
				return o.text
			},
		},
		{
			name: "a quota without a period keeps the period", version: 2, files: "cpu.max",
			settle: func(o op) string {
				if !strings.Contains(o.text, " ") {
					_, period, _ := strings.Cut(o.g.files["cpu.max"], " ")
					return o.text + " " + period
				}
				return o.text
			},
		},
	}
}

// bandwidth returns the quota (-1: none), period and burst in µs that a group
// would have after the write.
func (o op) bandwidth() (quota, period, burst int64) {
	quota, period = o.g.bandwidth(o.n.version)
	burst = o.g.number("cpu.cfs_burst_us") + o.g.number("cpu.max.burst") // each version has only one of the files; number returns 0 for the other
	v, _ := strconv.ParseInt(o.text, 10, 64)
	switch o.file {
	case "cpu.cfs_quota_us":
		quota = max(v, -1)
	case "cpu.cfs_period_us":
		period = v
	case "cpu.cfs_burst_us", "cpu.max.burst":
		burst = v
	case "cpu.max":
		after := group{files: map[string]string{"cpu.max": o.text}}
		if !strings.Contains(o.text, " ") {
			after.files["cpu.max"] += " " + strconv.FormatInt(period, 10)
		}
		quota, period = after.bandwidth(2)
	}
	return quota, period, burst
}

// hasWord reports whether a text, split at spaces, contains a word.
func hasWord(list, word string) bool {
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

// withSign returns those controllers in a text such as "+cpu -pids" that have
// the given sign.
func withSign(text string, sign byte) []string {
	var cs []string
	for w := range strings.FieldsSeq(text) {
		if w[0] == sign {
			cs = append(cs, w[1:])
		}
	}
	return cs
}

// controllerOf returns the part of a file name before the first dot.
func controllerOf(file string) string {
	c, _, _ := strings.Cut(file, ".")
	return c
}
