package cgroup

import (
	"fmt"
	"os"

	"tenon.sh/tenon/internal/model/unit"
)

// v1Limit is the v1 name of memory.max (Documentation/admin-guide/cgroup-v1/memory.rst).
const v1Limit = "memory.limit_in_bytes"

func (t *Tree) v1ReadMemory(path string) (Memory, error) {
	v := noMemoryLimit
	limit, err := readOften(t, memory, path, v1Limit, parseBytes)
	// The kernel shows "no limit" as the largest multiple of the page size.
	if limit < unit.MaxBytes-unit.Bytes(os.Getpagesize()) {
		v.Max = limit
	}
	return v, err
}

func (t *Tree) v1WriteMemory(path string, v Memory) error {
	if v.Min != 0 || v.Low != 0 || v.High != unit.MaxBytes {
		return fmt.Errorf("write memory %+v in %s: cgroup v1 has no min, low and high: %w", v, printPath(path), ErrUnsupported)
	}
	if v.Max == unit.MaxBytes {
		return t.write(memory, path, v1Limit, "-1")
	}
	return t.write(memory, path, v1Limit, v.Max.String())
}

func v1ParseMemoryStat(text string) (MemoryStat, error) {
	return memoryStat(text, "total_", "rss", "cache")
}

func (t *Tree) v1MemoryEvents(path string) (MemoryEvents, error) {
	failures, err := read(t, memory, path, "memory.failcnt", parseCounter)
	if err != nil {
		return MemoryEvents{}, err
	}
	oom, err := read(t, memory, path, "memory.oom_control", flatFile("oom_kill"))
	return MemoryEvents{Max: failures, OOMKill: oom["oom_kill"]}, err
}
