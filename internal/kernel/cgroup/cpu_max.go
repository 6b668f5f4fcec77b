package cgroup

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// CPUMax is the CFS bandwidth limit of a group. In each Period the group may
// use the CPU time Quota. In addition it may use what it left of its quota in
// earlier periods, at most Burst (Documentation/scheduler/sched-bwc.rst; burst:
// Linux 5.14). The kernel stores whole microseconds.
type CPUMax struct {
	Quota  time.Duration // at least 1 ms, or NoQuota
	Period time.Duration // 1 ms to 1 s
	Burst  time.Duration // at most Quota
}

// NoQuota means no limit: "max" on v2, -1 on v1.
const NoQuota time.Duration = math.MaxInt64

const (
	minBandwidth = time.Millisecond // minimum of quota and period
	maxPeriod    = time.Second
)

// ReadCPUMax reads cpu.max and cpu.max.burst (v1: cpu.cfs_quota_us,
// cpu.cfs_period_us, cpu.cfs_burst_us). Burst is 0 if the kernel has no bursts.
func (t *Tree) ReadCPUMax(path string) (CPUMax, error) {
	v, err := t.readQuota(path)
	if err != nil {
		return CPUMax{}, err
	}
	v.Burst, err = readOften(t, cpu, path, t.burstFile(), parseMicroseconds)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return CPUMax{}, err
	}
	return v, nil
}

// WriteCPUMax changes quota, period and burst. The kernel refuses a burst above
// the quota, so WriteCPUMax lowers the burst before it writes the quota, or
// raises it afterwards. After an error it restores the old value. For values
// outside the bounds of CPUMax it returns EINVAL; on v1 also if the ratio of
// quota to period is above the parent's or below a child's. If v has a burst
// and the kernel has none, it returns ErrUnsupported.
func (t *Tree) WriteCPUMax(path string, v CPUMax) error {
	old, err := t.ReadCPUMax(path)
	if err != nil {
		return fmt.Errorf("write cpu.max %+v: %w", v, err)
	}
	if v == old {
		return nil
	}
	err = t.changeCPUMax(path, old, v)
	if err == nil {
		return nil
	}
	if now, readErr := t.ReadCPUMax(path); readErr == nil && now != old {
		if undoErr := t.changeCPUMax(path, now, old); undoErr != nil {
			err = errors.Join(err, fmt.Errorf("restore the old value: %w", undoErr))
		}
	}
	return err
}

// changeCPUMax writes what differs between from, the present value, and to. On
// v2, Linux 5.14 to 6.9 divides the burst by 1000 when cpu.max is written: it
// takes the microseconds of the burst for nanoseconds. So a burst is written
// again after each write of cpu.max.
func (t *Tree) changeCPUMax(path string, from, to CPUMax) error {
	divided := t.VersionOf(cpu) == 2 && (to.Quota != from.Quota || to.Period != from.Period)
	if to.Burst < from.Burst {
		if err := t.write(cpu, path, t.burstFile(), microseconds(to.Burst)); err != nil {
			return err
		}
	}
	if err := t.changeQuota(path, from, to); err != nil {
		return err
	}
	if to.Burst > from.Burst || divided && to.Burst > 0 {
		return t.write(cpu, path, t.burstFile(), microseconds(to.Burst))
	}
	return nil
}

func (t *Tree) readQuota(path string) (CPUMax, error) {
	if t.VersionOf(cpu) == 1 {
		return t.v1ReadQuota(path)
	}
	return readOften(t, cpu, path, "cpu.max", parseCPUMax)
}

func (t *Tree) changeQuota(path string, from, to CPUMax) error {
	if from.Quota == to.Quota && from.Period == to.Period {
		return nil
	}
	if t.VersionOf(cpu) == 1 {
		return t.v1ChangeQuota(path, from, to)
	}
	return t.write(cpu, path, "cpu.max", microseconds(to.Quota)+" "+microseconds(to.Period))
}

func (t *Tree) burstFile() string {
	if t.VersionOf(cpu) == 1 {
		return "cpu.cfs_burst_us"
	}
	return "cpu.max.burst"
}

// parseCPUMax reads "max 100000" or "50000 100000".
func parseCPUMax(text string) (CPUMax, error) {
	quota, period, ok := strings.Cut(text, " ")
	if !ok {
		return CPUMax{}, fmt.Errorf("%q: want QUOTA PERIOD", text)
	}
	q, err1 := parseMicroseconds(quota)
	p, err2 := parseMicroseconds(period)
	return CPUMax{Quota: q, Period: p}, errors.Join(err1, err2)
}

// parseMicroseconds reads a number of microseconds. For "max", and for numbers
// that do not fit a Duration (292 years), it returns the largest Duration.
func parseMicroseconds(text string) (time.Duration, error) {
	n, err := parseCount(text)
	return microsecondsOf(n), err
}

func microsecondsOf(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Microsecond
}

func microseconds(d time.Duration) string {
	if d == NoQuota {
		return "max"
	}
	return count(d.Microseconds())
}
