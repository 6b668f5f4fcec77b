package proc

import (
	"fmt"
	"strconv"
	"strings"
)

// VMStat holds the counters of the memory manager, in events or pages. The keys
// are the kernel's names, such as "pgmajfault" (enum vm_event_item).
type VMStat map[string]int64

// VMStat reads /proc/vmstat.
func (fs FS) VMStat() (VMStat, error) { return procFile(fs, "vmstat", parseVMStat) }

// Refaults is the number of pages that the kernel reclaimed and soon read back
// (workingset_refault; from Linux 5.9 one counter for each kind of page).
func (v VMStat) Refaults() int64 {
	return v["workingset_refault"] + v["workingset_refault_anon"] + v["workingset_refault_file"]
}

// parseVMStat reads lines such as "pgfault 123".
func parseVMStat(text string) (VMStat, error) {
	m := VMStat{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %q: want a name and a number", strings.TrimSpace(line))
		}
		m[key] = n
	}
	return m, nil
}
