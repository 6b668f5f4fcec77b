package cgroup

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// v1CPUStat reads the throttling from the cpu controller and the usage from
// cpuacct (Documentation/admin-guide/cgroup-v1/cpuacct.rst). All times are in
// ns. The files for user and system time are missing before Linux 4.6.
func (t *Tree) v1CPUStat(path string) (CPUStat, error) {
	s, err := read(t, cpu, path, "cpu.stat", v1ParseCPUStat)
	if err != nil {
		return CPUStat{}, err
	}
	for file, to := range map[string]*time.Duration{
		"cpuacct.usage": &s.Usage, "cpuacct.usage_user": &s.User, "cpuacct.usage_sys": &s.System,
	} {
		ns, err := read(t, cpuacct, path, file, parseCounter)
		if err != nil && (to == &s.Usage || !errors.Is(err, ErrUnsupported)) {
			return CPUStat{}, err
		}
		*to = time.Duration(ns)
	}
	return s, nil
}

// v1ParseCPUStat reads cpu.stat. The file is empty without CONFIG_CFS_BANDWIDTH.
func v1ParseCPUStat(text string) (CPUStat, error) {
	m, err := flatFile("nr_periods", "nr_throttled", "throttled_time", "nr_bursts", "burst_time")(text)
	return CPUStat{
		Periods: m["nr_periods"], NrThrottled: m["nr_throttled"], Throttled: time.Duration(m["throttled_time"]),
		NrBursts: m["nr_bursts"], Bursts: time.Duration(m["burst_time"]),
	}, err
}

// v1CPUUsage reads cpuacct.usage, and may keep the file open.
func (t *Tree) v1CPUUsage(path string) (time.Duration, error) {
	text, err := t.counter(cpuacct, path, "cpuacct.usage")
	if err != nil {
		return 0, err
	}
	ns, err := parseCounter(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("parse cpuacct.usage in %s: %w", printPath(path), err)
	}
	return time.Duration(ns), nil
}
