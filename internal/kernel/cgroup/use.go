package cgroup

import (
	"errors"
	"fmt"
	"iter"
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
}

// CPUUse reads only a few values of cpu.stat (v1: cpuacct.usage and cpu.stat);
// CPUStat reads the others. The counters of the quota are 0 on kernels without
// quotas (CONFIG_CFS_BANDWIDTH).
func (t *Tree) CPUUse(path string) (CPUUse, error) {
	text, err := t.counter(cpu, path, "cpu.stat")
	if err != nil {
		return CPUUse{}, err
	}
	u, used := CPUUse{}, false
	for key, n := range flatLines(text) {
		switch key {
		case "usage_usec":
			u.Usage, used = microsecondsOf(n), true
		case "nr_periods":
			u.Periods = n
		case "nr_throttled":
			u.ThrottledPeriods = n
		case "throttled_usec":
			u.Throttled = microsecondsOf(n)
		case "throttled_time": // v1
			u.Throttled = time.Duration(n)
		}
	}
	if t.VersionOf(cpu) == 1 {
		u.Usage, err = t.v1CPUUsage(path)
		return u, err
	}
	if !used {
		return CPUUse{}, fmt.Errorf("parse cpu.stat in %s: no usage_usec", printPath(path))
	}
	return u, nil
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

// flatLines yields name and number of each line "name number" of a file. It
// skips other lines.
func flatLines(text string) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for len(text) > 0 {
			line := text
			if end := strings.IndexByte(text, '\n'); end >= 0 {
				line, text = text[:end], text[end+1:]
			} else {
				text = ""
			}
			name, value, _ := strings.Cut(line, " ")
			n, err := strconv.ParseInt(value, 10, 64)
			if err == nil && n >= 0 && !yield(name, n) {
				return
			}
		}
	}
}
