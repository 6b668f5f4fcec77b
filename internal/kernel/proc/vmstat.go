package proc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// VMStat holds the counters of the memory manager, in events or pages. The keys
// are the kernel's names, such as "pgmajfault" (enum vm_event_item). A counter
// whose line is damaged or there twice is not in it.
type VMStat map[string]int64

// VMStat reads /proc/vmstat.
func (fs FS) VMStat() (VMStat, error) { return procFile(fs, "vmstat", parseVMStat) }

// Refaults is the number of pages that the kernel reclaimed and soon read back
// (workingset_refault; from Linux 5.9 one counter for each kind of page).
func (v VMStat) Refaults() (int64, error) {
	if n, known := v["workingset_refault"]; known {
		return n, nil
	}
	anon, known := v["workingset_refault_anon"]
	file, both := v["workingset_refault_file"]
	if !known || !both {
		return 0, errors.New("parse vmstat: the lines workingset_refault_anon and workingset_refault_file are missing or damaged")
	}
	if anon > math.MaxInt64-file {
		return 0, errors.New("parse vmstat: the sum of workingset_refault_anon and workingset_refault_file is too large")
	}
	return anon + file, nil
}

// parseVMStat reads lines such as "pgfault 123". It fails only if there is none.
func parseVMStat(text string) (VMStat, error) {
	m, seen := VMStat{}, map[string]bool{}
	var damaged error
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 63)
		if !ok || err != nil || seen[key] {
			damaged = fmt.Errorf("line %q: want a name and a number, and each name once", strings.TrimSpace(line))
			delete(m, key)
		} else {
			m[key] = int64(n)
		}
		seen[key] = true
	}
	if len(m) == 0 {
		return nil, damaged
	}
	return m, nil
}
