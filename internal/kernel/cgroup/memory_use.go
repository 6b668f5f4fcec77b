package cgroup

import (
	"fmt"
	"math"

	"tenon.sh/tenon/internal/model/unit"
)

// MemoryUse holds some values of memory.stat, for a group and all groups below it.
type MemoryUse struct {
	// InactiveFile is the page cache that was not used lately.
	InactiveFile unit.Bytes
	// Refaults is the number of pages that the kernel reclaimed and soon read
	// back (workingset_refault; from Linux 5.9 the sum of two counters).
	Refaults int64
	// RefaultsErr says why Refaults is not known; nil: it is.
	RefaultsErr error
}

// MemoryUse reads only a few values of memory.stat; MemoryStat reads the
// others. The file is long, and the kernel first adds up the counters of all
// CPUs, so the loop should not read it in every tick. The error is about
// InactiveFile alone.
func (t *Tree) MemoryUse(path string) (MemoryUse, error) {
	h, err := t.hierarchy(memory)
	if err != nil {
		err = fmt.Errorf("read memory.stat in %s: %w", printPath(path), err)
		return MemoryUse{RefaultsErr: err}, err
	}
	text, err := h.readValue(path, "memory.stat")
	if err != nil {
		return MemoryUse{RefaultsErr: err}, err
	}
	u, inactive, refaults := parseMemoryUse(text, h.version)
	if !refaults {
		u.RefaultsErr = fmt.Errorf("parse memory.stat in %s: a counter workingset_refault is missing, damaged or there twice", printPath(path))
	}
	if !inactive {
		return u, fmt.Errorf("parse memory.stat in %s: no inactive_file", printPath(path))
	}
	return u, nil
}

// parseMemoryUse reads the text of memory.stat. On v1 it reads the lines total_…,
// which include the groups below. inactive and refaults say whether the values
// are known.
func parseMemoryUse(text string, version int) (u MemoryUse, inactive, refaults bool) {
	prefix := ""
	if version == 1 {
		prefix = "total_"
	}
	var cold, both, anon, file flatNumber
	for key, value := range flatLines(text) {
		if len(key) < len(prefix) || key[:len(prefix)] != prefix {
			continue
		}
		switch key[len(prefix):] {
		case "inactive_file":
			cold.take(value, 1)
		case "workingset_refault":
			both.take(value, 1)
		case "workingset_refault_anon":
			anon.take(value, 1)
		case "workingset_refault_file":
			file.take(value, 1)
		}
	}
	u.InactiveFile = unit.Bytes(cold.n)
	u.Refaults, refaults = refaultsOf(both, anon, file)
	return u, cold.known, refaults
}

// refaultsOf adds up the refaults of anonymous memory and of files. Before Linux
// 5.9, one line counts both. The sum is not known without one of the two lines,
// or if it is too large.
func refaultsOf(both, anon, file flatNumber) (n int64, known bool) {
	switch {
	case !both.seen:
		known = anon.known && file.known && anon.n <= math.MaxInt64-file.n
	case !anon.seen && !file.seen:
		known = both.known
	}
	if !known {
		return 0, false
	}
	return both.n + anon.n + file.n, true
}
