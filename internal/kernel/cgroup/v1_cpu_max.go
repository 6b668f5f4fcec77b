package cgroup

import (
	"errors"
	"syscall"
	"time"
)

const (
	v1Quota  = "cpu.cfs_quota_us"
	v1Period = "cpu.cfs_period_us"
)

// v1ReadQuota reads the files of quota and period. A quota of -1 means no limit.
func (t *Tree) v1ReadQuota(path string) (CPUMax, error) {
	q, err := readOften(t, cpu, path, v1Quota, v1ParseQuota)
	if err != nil {
		return CPUMax{}, err
	}
	p, err := readOften(t, cpu, path, v1Period, parseMicroseconds)
	return CPUMax{Quota: q, Period: p}, err
}

func v1ParseQuota(text string) (time.Duration, error) {
	if text == "-1" {
		return NoQuota, nil
	}
	return parseMicroseconds(text)
}

// v1ChangeQuota writes quota and period, which are two files on v1. Between the
// two writes, one of them is still the old one. The order of the writes ensures
// that the limit is never wider than both the old and the new limit. The kernel
// refuses the first write if its limit is below a child's. Then v1ChangeQuota
// removes the limit for a moment; meanwhile the parent's limit applies.
func (t *Tree) v1ChangeQuota(path string, from, to CPUMax) error {
	quota := func(q time.Duration) error {
		if q == NoQuota {
			return t.write(cpu, path, v1Quota, "-1")
		}
		return t.write(cpu, path, v1Quota, microseconds(q))
	}
	period := func() error { return t.write(cpu, path, v1Period, microseconds(to.Period)) }

	var err error
	switch {
	case to.Period == from.Period:
		return quota(to.Quota)
	case to.Quota == from.Quota:
		return period()
	case v1PeriodFirst(from, to):
		if err = period(); err == nil {
			return quota(to.Quota)
		}
	default:
		if err = quota(to.Quota); err == nil {
			return period()
		}
	}
	inBounds := to.Quota >= minBandwidth && to.Period >= minBandwidth && to.Period <= maxPeriod
	if !errors.Is(err, syscall.EINVAL) || !inBounds {
		return err
	}
	if err := quota(NoQuota); err != nil {
		return err
	}
	if err := period(); err != nil {
		return err
	}
	return quota(to.Quota)
}

// v1PeriodFirst reports whether to write the period before the quota. The order
// ensures that the first write does not widen the limit.
func v1PeriodFirst(from, to CPUMax) bool {
	return from.Quota == NoQuota || (to.Quota != NoQuota && to.Period > from.Period)
}
