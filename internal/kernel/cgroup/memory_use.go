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
		u.RefaultsErr = fmt.Errorf("parse memory.stat in %s: a counter workingset_refault is missing or damaged", printPath(path))
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
	damaged := false
	for key, value := range flatLines(text) {
		if len(key) < len(prefix) || key[:len(prefix)] != prefix {
			continue
		}
		switch key[len(prefix):] {
		case "inactive_file":
			var n int64
			n, inactive = numberOf(value, 1)
			u.InactiveFile = unit.Bytes(n)
		case "workingset_refault", "workingset_refault_anon", "workingset_refault_file":
			n, known := numberOf(value, 1)
			refaults, damaged = true, damaged || !known
			u.Refaults += min(n, math.MaxInt64-u.Refaults)
		}
	}
	return u, inactive, refaults && !damaged
}
