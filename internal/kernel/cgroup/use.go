package cgroup

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// CPUUse holds the values of cpu.stat that the loop reads in every tick.
type CPUUse struct {
	Usage     time.Duration // CPU time of the group and of all below it
	Throttled time.Duration // time throttled by a quota, summed over CPUs
	// Periods is the number of quota periods in which the group ran.
	// ThrottledPeriods is the number of those in which it was throttled.
	Periods, ThrottledPeriods int64
	// QuotaErr says why the three values above are not known; nil: they are.
	QuotaErr error
}

// CPUUse reads only a few values of cpu.stat (v1: cpuacct.usage and cpu.stat);
// CPUStat reads the others. The counters of the quota are 0 on kernels without
// quotas (CONFIG_CFS_BANDWIDTH). The error is about Usage alone.
func (t *Tree) CPUUse(path string) (CPUUse, error) {
	var u CPUUse
	var err error
	used, quota := false, 0
	text, readErr := t.counter(cpu, path, "cpu.stat")
	if u.QuotaErr = readErr; readErr == nil {
		for key, value := range flatLines(text) {
			var to *int64
			scale := int64(1)
			var n int64
			switch key {
			case "usage_usec":
				to = &n
			case "nr_periods":
				to = &u.Periods
			case "nr_throttled":
				to = &u.ThrottledPeriods
			case "throttled_usec":
				to, scale = (*int64)(&u.Throttled), int64(time.Microsecond)
			case "throttled_time": // v1
				to = (*int64)(&u.Throttled)
			default:
				continue
			}
			number, known := numberOf(value, scale)
			switch {
			case known && to == &n:
				u.Usage, used = microsecondsOf(number), true
			case known:
				*to = number
				quota++
			}
		}
		if quota != 0 && quota != 3 {
			u.QuotaErr = fmt.Errorf("parse cpu.stat in %s: a counter of the quota is missing or damaged", printPath(path))
		}
	}
	if t.VersionOf(cpu) == 1 {
		u.Usage, err = t.v1CPUUsage(path)
		return u, err
	}
	if readErr == nil && !used {
		readErr = fmt.Errorf("parse cpu.stat in %s: no usage_usec", printPath(path))
	}
	return u, readErr
}

// CPUUsage reads only the CPU time. On v1 it needs one file, while CPUUse needs two.
func (t *Tree) CPUUsage(path string) (time.Duration, error) {
	if t.VersionOf(cpu) == 1 {
		return t.v1CPUUsage(path)
	}
	u, err := t.CPUUse(path)
	return u.Usage, err
}

// UsagePerCPU reads the CPU time that the group and all groups below it have
// used on each possible CPU since the group was made (v1: cpuacct.usage_percpu,
// in ns). On v2, which has no such file, it returns ErrUnsupported.
func (t *Tree) UsagePerCPU(path string) (map[unit.CPU]time.Duration, error) {
	if t.VersionOf(cpuacct) != 1 {
		return nil, fmt.Errorf("read cpuacct.usage_percpu in %s: cgroup v2 does not count by CPU: %w", printPath(path), ErrUnsupported)
	}
	text, err := t.counter(cpuacct, path, "cpuacct.usage_percpu")
	if err != nil {
		return nil, err
	}
	use, err := parseUsagePerCPU(text)
	if err != nil {
		return nil, fmt.Errorf("parse cpuacct.usage_percpu in %s: %w", printPath(path), err)
	}
	return use, nil
}

func parseUsagePerCPU(text string) (map[unit.CPU]time.Duration, error) {
	use := map[unit.CPU]time.Duration{}
	for word := range strings.FieldsSeq(text) {
		ns, err := strconv.ParseInt(word, 10, 64)
		if err != nil || ns < 0 {
			return nil, fmt.Errorf("%q: want nanoseconds", word)
		}
		use[unit.CPU(len(use))] = time.Duration(ns)
	}
	if len(use) == 0 {
		return nil, errors.New("no CPU")
	}
	return use, nil
}

// counter reads a file of a group, and keeps the file open if the Tree does so.
func (t *Tree) counter(controller, path, file string) (string, error) {
	h, err := t.hierarchy(controller)
	if err != nil {
		return "", fmt.Errorf("read %s in %s: %w", file, printPath(path), err)
	}
	return h.counter(path, file)
}

// flatLines yields name and value of each line "name value" of a file.
func flatLines(text string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for len(text) > 0 {
			line := text
			if end := strings.IndexByte(text, '\n'); end >= 0 {
				line, text = text[:end], text[end+1:]
			} else {
				text = ""
			}
			if name, value, _ := strings.Cut(line, " "); !yield(name, value) {
				return
			}
		}
	}
}

// numberOf reads a number that is not negative, and multiplies it by scale. known
// is false if the text is no such number, or the result is too large.
func numberOf(text string, scale int64) (n int64, known bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/scale {
		return 0, false
	}
	return n * scale, true
}
