package cgroup

import (
	"errors"
	"time"
)

// CPUStat holds the CPU time and the throttling of a group, including the groups below
// it, since the group was made. The CPU time is exact, unlike that of /proc/stat.
type CPUStat struct {
	Usage, User, System time.Duration
	Periods             int64         // periods of the quota in which the group ran
	NrThrottled         int64         // periods in which it was throttled
	Throttled           time.Duration // summed over CPUs
	NrBursts            int64         // periods in which it used its burst
	Bursts              time.Duration // CPU time above the quota in those periods
}

// CPUStat reads cpu.stat (v1: cpu.stat and cpuacct.usage*). A counter of
// throttling or bursts that the kernel lacks is 0.
func (t *Tree) CPUStat(path string) (CPUStat, error) {
	if t.VersionOf(cpu) == 1 {
		return t.v1CPUStat(path)
	}
	return read(t, cpu, path, "cpu.stat", parseCPUStat)
}

func parseCPUStat(text string) (CPUStat, error) {
	m, err := flatFile("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec", "nr_bursts", "burst_usec")(text)
	if err != nil {
		return CPUStat{}, err
	}
	if _, ok := m["usage_usec"]; !ok {
		return CPUStat{}, errors.New("no usage_usec")
	}
	us := func(key string) time.Duration { return microsecondsOf(m[key]) }
	return CPUStat{
		Usage: us("usage_usec"), User: us("user_usec"), System: us("system_usec"),
		Periods: m["nr_periods"], NrThrottled: m["nr_throttled"], Throttled: us("throttled_usec"),
		NrBursts: m["nr_bursts"], Bursts: us("burst_usec"),
	}, nil
}
