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
}

// MemoryUse reads only a few values of memory.stat; MemoryStat reads the
// others. The file is long, and the kernel first adds up the counters of all
// CPUs, so the loop should not read it in every tick.
func (t *Tree) MemoryUse(path string) (MemoryUse, error) {
	h, err := t.hierarchy(memory)
	if err != nil {
		return MemoryUse{}, fmt.Errorf("read memory.stat in %s: %w", printPath(path), err)
	}
	text, err := h.readValue(path, "memory.stat")
	if err != nil {
		return MemoryUse{}, err
	}
	u, ok := parseMemoryUse(text, h.version)
	if !ok {
		return MemoryUse{}, fmt.Errorf("parse memory.stat in %s: no inactive_file", printPath(path))
	}
	return u, nil
}

// parseMemoryUse reads the text of memory.stat. On v1 it reads the lines total_…,
// which include the groups below. found is false if inactive_file is missing.
func parseMemoryUse(text string, version int) (u MemoryUse, found bool) {
	prefix := ""
	if version == 1 {
		prefix = "total_"
	}
	for key, n := range flatLines(text) {
		if len(key) < len(prefix) || key[:len(prefix)] != prefix {
			continue
		}
		switch key[len(prefix):] {
		case "inactive_file":
			u.InactiveFile, found = unit.Bytes(n), true
		case "workingset_refault", "workingset_refault_anon", "workingset_refault_file":
			u.Refaults += min(n, math.MaxInt64-u.Refaults)
		}
	}
	return u, found
}
