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
	var used, periods, throttled, lost flatNumber
	text, readErr := t.counter(cpu, path, "cpu.stat")
	if u.QuotaErr = readErr; readErr == nil {
		for key, value := range flatLines(text) {
			switch key {
			case "usage_usec":
				used.take(value, 1)
			case "nr_periods":
				periods.take(value, 1)
			case "nr_throttled":
				throttled.take(value, 1)
			case "throttled_usec":
				lost.take(value, int64(time.Microsecond))
			case "throttled_time": // v1
				lost.take(value, 1)
			}
		}
		switch {
		case periods.known && throttled.known && lost.known:
			u.Periods, u.ThrottledPeriods, u.Throttled = periods.n, throttled.n, time.Duration(lost.n)
		case periods.seen || throttled.seen || lost.seen:
			u.QuotaErr = fmt.Errorf("parse cpu.stat in %s: a counter of the quota is missing, damaged or there twice", printPath(path))
		}
	}
	if t.VersionOf(cpu) == 1 {
		u.Usage, err = t.v1CPUUsage(path)
		return u, err
	}
	if readErr == nil && !used.known {
		readErr = fmt.Errorf("parse cpu.stat in %s: no usage_usec", printPath(path))
	}
	u.Usage = microsecondsOf(used.n)
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
		ns, known := numberOf(word, 1)
		if !known {
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

// A flatNumber is the number of a line of a flat keyed file. It is not known if
// the line is missing, damaged or there twice. seen says that the line is there.
type flatNumber struct {
	n           int64
	seen, known bool
}

// take reads the value of a line, and multiplies it by scale.
func (f *flatNumber) take(value string, scale int64) {
	n, known := numberOf(value, scale)
	if known = known && !f.seen; !known {
		n = 0
	}
	*f = flatNumber{n: n, seen: true, known: known}
}

// flatLines yields name and value of each line "name value" of a file. A name ends
// at a space or a tab.
func flatLines(text string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for len(text) > 0 {
			line := text
			if end := strings.IndexByte(text, '\n'); end >= 0 {
				line, text = text[:end], text[end+1:]
			} else {
				text = ""
			}
			name, value := line, ""
			if end := strings.IndexAny(line, " \t"); end >= 0 {
				name, value = line[:end], line[end+1:]
			}
			if !yield(name, value) {
				return
			}
		}
	}
}

// numberOf reads a number that is not negative, and multiplies it by scale. known
// is false if the text is no such number, or the result is too large.
func numberOf(text string, scale int64) (n int64, known bool) {
	u, err := strconv.ParseUint(text, 10, 63)
	if n = int64(u); err != nil || n > math.MaxInt64/scale {
		return 0, false
	}
	return n * scale, true
}
