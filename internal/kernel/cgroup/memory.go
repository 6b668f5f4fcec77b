package cgroup

import (
	"errors"
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// Memory holds the memory protection and the limits of a group. The kernel
// rounds them down to whole pages.
type Memory struct {
	Min, Low  unit.Bytes // Min is never reclaimed; Low is reclaimed last
	High, Max unit.Bytes // throttled above High, killed above Max; MaxBytes means no limit
}

// noMemoryLimit is the Memory of a new group. A Memory read on v1 has these
// values in the fields without a file.
var noMemoryLimit = Memory{High: unit.MaxBytes, Max: unit.MaxBytes}

// A memoryFile is a file with the field of Memory that holds its value.
type memoryFile struct {
	name string
	of   func(*Memory) *unit.Bytes
}

var (
	memoryMin  = memoryFile{"memory.min", func(v *Memory) *unit.Bytes { return &v.Min }}
	memoryLow  = memoryFile{"memory.low", func(v *Memory) *unit.Bytes { return &v.Low }}
	memoryHigh = memoryFile{"memory.high", func(v *Memory) *unit.Bytes { return &v.High }}
	memoryMax  = memoryFile{"memory.max", func(v *Memory) *unit.Bytes { return &v.Max }}
)

// ReadMemory reads memory.min, low, high and max. On v1 it reads only Max,
// from memory.limit_in_bytes, and sets the other fields as in a new group.
// For the root of v2, which has no limits, it returns ErrUnsupported.
func (t *Tree) ReadMemory(path string) (Memory, error) {
	if t.VersionOf(memory) == 1 {
		return t.v1ReadMemory(path)
	}
	var v Memory
	for _, f := range []memoryFile{memoryMin, memoryLow, memoryHigh, memoryMax} {
		b, err := readOften(t, memory, path, f.name, parseBytes)
		if err != nil {
			return Memory{}, err
		}
		*f.of(&v) = b
	}
	return v, nil
}

// WriteMemory writes the values that differ from the present ones: first limits
// that get wider, then protection, last limits that get narrower. It narrows
// high before max: high only reclaims memory, but max kills processes if it
// cannot reclaim enough. On v1, WriteMemory returns ErrUnsupported for
// protection and high, and EBUSY if the kernel cannot reclaim enough memory for
// the new max.
func (t *Tree) WriteMemory(path string, v Memory) error {
	if t.VersionOf(memory) == 1 {
		return t.v1WriteMemory(path, v)
	}
	old, err := t.ReadMemory(path)
	if err != nil {
		return fmt.Errorf("write memory %+v: %w", v, err)
	}
	write := func(f memoryFile) error {
		b := *f.of(&v)
		if b == *f.of(&old) {
			return nil
		}
		return t.write(memory, path, f.name, b.String())
	}
	order := []memoryFile{memoryMin, memoryLow, memoryHigh, memoryMax}
	if v.Max > old.Max {
		order = []memoryFile{memoryMax, memoryMin, memoryLow, memoryHigh}
	}
	if v.High > old.High {
		order = append([]memoryFile{memoryHigh}, order...)
	}
	for _, f := range order {
		if err := write(f); err != nil {
			return err
		}
		*f.of(&old) = *f.of(&v)
	}
	return nil
}

// MemoryCurrent reads the memory of the group and all groups below it,
// including page cache (memory.current; v1: memory.usage_in_bytes).
func (t *Tree) MemoryCurrent(path string) (unit.Bytes, error) {
	file := "memory.current"
	if t.VersionOf(memory) == 1 {
		file = "memory.usage_in_bytes"
	}
	text, err := t.counter(memory, path, file)
	if err != nil {
		return 0, err
	}
	n, err := parseCounter(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("parse %s in %s: %w", file, printPath(path), err)
	}
	return unit.Bytes(n), nil
}

// MemoryStat is the memory use of a group and the groups below it.
type MemoryStat struct {
	Anon                     unit.Bytes // heap, stack, …
	File                     unit.Bytes // page cache, including shared memory
	ActiveFile, InactiveFile unit.Bytes // page cache used lately, and not used lately
	PageFaults, MajorFaults  int64
	// Refaults is the number of pages, of files and of anonymous memory, that
	// the kernel reclaimed and soon read back (workingset_refault; from Linux
	// 5.9 the sum of two counters).
	Refaults int64
}

// MemoryStat reads memory.stat. On v1 it reads the lines total_…: they include
// the groups below, and the other lines do not.
func (t *Tree) MemoryStat(path string) (MemoryStat, error) {
	parse := parseMemoryStat
	if t.VersionOf(memory) == 1 {
		parse = v1ParseMemoryStat
	}
	return read(t, memory, path, "memory.stat", parse)
}

func parseMemoryStat(text string) (MemoryStat, error) {
	return memoryStat(text, "", "anon", "file")
}

func memoryStat(text, prefix, anon, file string) (MemoryStat, error) {
	counters := []string{anon, file, "active_file", "inactive_file", "pgfault", "pgmajfault", "workingset_refault", "workingset_refault_file", "workingset_refault_anon"}
	for i := range counters {
		counters[i] = prefix + counters[i]
	}
	m, err := flatFile(counters...)(text)
	if err != nil {
		return MemoryStat{}, err
	}
	if _, ok := m[prefix+anon]; !ok {
		return MemoryStat{}, errors.New("no " + prefix + anon)
	}
	line := func(name string) flatNumber {
		n, known := m[prefix+name]
		return flatNumber{n: n, seen: known, known: known}
	}
	both, onAnon, onFile := line("workingset_refault"), line("workingset_refault_anon"), line("workingset_refault_file")
	refaults, known := refaultsOf(both, onAnon, onFile)
	if !known && (both.seen || onAnon.seen || onFile.seen) {
		return MemoryStat{}, errors.New("the counters " + prefix + "workingset_refault do not give a sum")
	}
	return MemoryStat{
		Anon: unit.Bytes(m[prefix+anon]), File: unit.Bytes(m[prefix+file]),
		ActiveFile: unit.Bytes(m[prefix+"active_file"]), InactiveFile: unit.Bytes(m[prefix+"inactive_file"]),
		PageFaults: m[prefix+"pgfault"], MajorFaults: m[prefix+"pgmajfault"],
		Refaults: refaults,
	}, nil
}

// MemoryEvents counts how often each limit took effect in a group or in a group
// below it.
type MemoryEvents struct {
	Low     int64 // the group was reclaimed although it was below memory.low
	High    int64 // a task was throttled at memory.high
	Max     int64 // the group was about to exceed memory.max
	OOM     int64 // allocations that failed at memory.max
	OOMKill int64 // processes killed
}

// MemoryEvents reads memory.events. On v1, Max comes from memory.failcnt and
// OOMKill from memory.oom_control (Linux 4.13). These two counters do not
// include the groups below, and all others are 0.
func (t *Tree) MemoryEvents(path string) (MemoryEvents, error) {
	if t.VersionOf(memory) == 1 {
		return t.v1MemoryEvents(path)
	}
	m, err := read(t, memory, path, "memory.events", flatFile("low", "high", "max", "oom", "oom_kill"))
	return MemoryEvents{Low: m["low"], High: m["high"], Max: m["max"], OOM: m["oom"], OOMKill: m["oom_kill"]}, err
}

func parseBytes(text string) (unit.Bytes, error) {
	n, err := parseCount(text)
	return unit.Bytes(n), err
}

// MemoryPeak reads the largest amount of memory that a group has used so far
// (memory.peak: Linux 5.19).
func MemoryPeak(t *Tree, path string) (unit.Bytes, error) {
	n, err := read(t, memory, path, [...]string{1: "memory.max_usage_in_bytes", 2: "memory.peak"}[t.VersionOf(memory)], parseCounter)
	return unit.Bytes(n), err
}
