package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/unit"
)

// CPUUse is what a loop reads of cpu.stat in every turn.
type CPUUse struct {
	Usage     time.Duration // CPU time of the group and of all below it
	Throttled time.Duration // by a quota, summed over CPUs
}

// CPUUse reads cpu.stat (v1: cpuacct.usage and cpu.stat), and of these only
// what it returns: CPUStat is for the rest.
func (t *Tree) CPUUse(path string) (CPUUse, error) {
	usageUnit, throttledKey, throttledUnit := time.Microsecond, "throttled_usec", time.Microsecond
	var u CPUUse
	text, err := t.counter(cpu, path, "cpu.stat")
	if err != nil {
		return CPUUse{}, err
	}
	if t.VersionOf(cpu) == 1 {
		usageUnit, throttledKey, throttledUnit = time.Nanosecond, "throttled_time", time.Nanosecond
		usage, err := t.counter(cpuacct, path, "cpuacct.usage")
		if err != nil {
			return CPUUse{}, err
		}
		text += "\nusage_usec " + strings.TrimSpace(usage)
	}
	usage, ok := flatValue(text, "usage_usec")
	if !ok {
		return CPUUse{}, fmt.Errorf("parse cpu.stat in %s: no usage_usec", shown(path))
	}
	throttled, _ := flatValue(text, throttledKey) // absent without CONFIG_CFS_BANDWIDTH
	u.Usage, u.Throttled = time.Duration(usage)*usageUnit, time.Duration(throttled)*throttledUnit
	return u, nil
}

// UsagePerCPU reads the CPU time that the group and all below it have used on
// each possible CPU since it was made (v1: cpuacct.usage_percpu, in ns). v2
// has no such file: ErrUnsupported.
func (t *Tree) UsagePerCPU(path string) (map[unit.CPU]time.Duration, error) {
	if t.VersionOf(cpuacct) != 1 {
		return nil, fmt.Errorf("read cpuacct.usage_percpu in %s: cgroup v2 does not count by CPU: %w", shown(path), ErrUnsupported)
	}
	text, err := t.counter(cpuacct, path, "cpuacct.usage_percpu")
	if err != nil {
		return nil, err
	}
	use, err := parseUsagePerCPU(text)
	if err != nil {
		return nil, fmt.Errorf("parse cpuacct.usage_percpu in %s: %w", shown(path), err)
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

// counter reads a file of a controller that is read again and again.
func (t *Tree) counter(controller, path, file string) (string, error) {
	h, err := t.hierarchy(controller)
	if err != nil {
		return "", fmt.Errorf("read %s in %s: %w", file, shown(path), err)
	}
	return h.counter(path, file)
}

// flatValue returns the number of one line of a flat keyed file.
func flatValue(text, key string) (int64, bool) {
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || name != key {
			continue
		}
		n, err := parseCount(value)
		return n, err == nil
	}
	return 0, false
}
