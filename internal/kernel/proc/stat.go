package proc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/model/unit"
)

// tick is the unit of CPU time in procfs, 1/USER_HZ. It is 10 ms on every
// architecture that Go runs on (include/asm-generic/param.h).
const tick = 10 * time.Millisecond

// CPUTimes are the CPU times since boot, by kind (/proc/stat). On kernels with
// CONFIG_TICK_CPU_ACCOUNTING, they come from one sample per timer tick. The
// counters of cgroup.CPUStat are exact.
type CPUTimes struct {
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ time.Duration
	// Steal is the time in which the hypervisor ran other work.
	Steal time.Duration
}

// Busy is the time that the CPUs spent on work of this machine: all but idle,
// iowait and steal. (User includes the time of guests.)
func (t CPUTimes) Busy() time.Duration {
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ
}

// Total is the sum of all times.
func (t CPUTimes) Total() time.Duration { return t.Busy() + t.Idle + t.IOWait + t.Steal }

// Stat holds the fields of /proc/stat that Tenon uses.
type Stat struct {
	All      CPUTimes
	PerCPU   map[unit.CPU]CPUTimes // online CPUs only
	BootTime time.Time
	// Unread has the lines that are missing or damaged, by their first word. A
	// CPU whose line is damaged is not in PerCPU. On some hypervisors the counter
	// of the steal falls below zero and becomes a huge number. The steal alone is
	// then not known: its names are "cpu steal", "cpu0 steal" and so on.
	Unread partial.Fields
}

// Stat reads /proc/stat (Documentation/filesystems/proc.rst, section 1.7). It
// fails only if the file has no times of any CPU.
func (fs FS) Stat() (Stat, error) { return procFile(fs, "stat", parseStat) }

// parseStat reads lines such as
//
//	cpu  4720 0 2479 187963 549 0 97 19 0 0
//	cpu0 1966 0 949 94950 23 0 19 5 0 0
//	btime 1700000000
func parseStat(text string) (Stat, error) {
	s := Stat{PerCPU: map[unit.CPU]CPUTimes{}}
	all := false
	times := func(key, fields string) (CPUTimes, bool) {
		t, noSteal, err := parseCPUTimes(fields)
		if noSteal != nil {
			s.Unread.Lose(key+" steal", fmt.Errorf("line %s: steal %w", key, noSteal))
		}
		if err != nil {
			s.Unread.Lose(key, fmt.Errorf("line %s: %w", key, err))
		}
		return t, err == nil
	}
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		digits, isCPU := strings.CutPrefix(key, "cpu")
		switch {
		case key == "cpu":
			s.All, all = times(key, rest)
		case isCPU:
			n, err := strconv.ParseUint(digits, 10, 31)
			if err != nil || n >= unit.MaxCPUs {
				s.Unread.Lose(key, fmt.Errorf("line %s: want a CPU number below %d", key, unit.MaxCPUs))
				continue
			}
			if t, known := times(key, rest); known {
				s.PerCPU[unit.CPU(n)] = t
			}
		case key == "btime":
			sec, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				s.Unread.Lose(key, fmt.Errorf("line btime: %q: want seconds", rest))
				continue
			}
			s.BootTime = time.Unix(sec, 0)
		}
	}
	if !all && s.Unread["cpu"] == nil {
		s.Unread.Lose("cpu", errors.New("no line that starts with cpu"))
	}
	if !all && len(s.PerCPU) == 0 {
		return Stat{}, s.Unread.Cause()
	}
	return s, nil
}

func parseCPUTimes(fields string) (t CPUTimes, noSteal, err error) {
	f := strings.Fields(fields)
	to := []*time.Duration{&t.User, &t.Nice, &t.System, &t.Idle, &t.IOWait, &t.IRQ, &t.SoftIRQ, &t.Steal}
	if len(f) < len(to) {
		return CPUTimes{}, nil, fmt.Errorf("%d fields: want at least %d", len(f), len(to))
	}
	for i := range to {
		d, err := parseTicks(f[i])
		switch {
		case err != nil && to[i] == &t.Steal:
			noSteal = err
		case err != nil:
			return CPUTimes{}, nil, err
		}
		*to[i] = d
	}
	return t, noSteal, nil
}

func parseTicks(s string) (time.Duration, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	// The limit is a sixteenth of the range, so that a sum of all columns of a
	// line does not overflow.
	if err != nil || n < 0 || n > math.MaxInt64/int64(tick)/16 {
		return 0, fmt.Errorf("%q: want a number of ticks", s)
	}
	return time.Duration(n) * tick, nil
}
