package cgroup

import (
	"fmt"
	"math"

	"tenon.sh/tenon/internal/model/unit"
)

// MemoryUse is what a loop reads of memory.stat, for the group and all below
// it.
type MemoryUse struct {
	// InactiveFile is page cache that was not used lately.
	InactiveFile unit.Bytes
	// Refaults is how many pages were read back soon after they had been
	// reclaimed (workingset_refault; by kind since Linux 5.9).
	Refaults int64
}

// MemoryUse reads memory.stat, and of it only what it returns: MemoryStat is
// for the rest. The file is long, and the kernel first sums up what each CPU
// has counted, so it is not for every turn.
func (t *Tree) MemoryUse(path string) (MemoryUse, error) {
	h, err := t.hierarchy(memory)
	if err != nil {
		return MemoryUse{}, fmt.Errorf("read memory.stat in %s: %w", shown(path), err)
	}
	text, err := h.readValue(path, "memory.stat")
	if err != nil {
		return MemoryUse{}, err
	}
	u, ok := parseMemoryUse(text, h.version)
	if !ok {
		return MemoryUse{}, fmt.Errorf("parse memory.stat in %s: no inactive_file", shown(path))
	}
	return u, nil
}

// parseMemoryUse reports false without the line inactive_file. On v1 the lines
// total_… hold the groups below, too.
func parseMemoryUse(text string, version int) (u MemoryUse, found bool) {
	prefix := ""
	if version == 1 {
		prefix = "total_"
	}
	for key, n := range flat(text) {
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
