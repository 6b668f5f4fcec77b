package unit

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// CPU is the number of a logical CPU, as in /sys/devices/system/cpu/cpuN.
type CPU int

// MaxCPUs is the number of CPUs that a CPUSet can hold.
const MaxCPUs = 2048

// CPUSet is a set of CPUs. It is a value: == compares it, and an assignment
// copies it. The zero CPUSet is empty. A CPUSet can also hold NUMA nodes
// (cpuset.mems), because the kernel prints them in the same list format.
type CPUSet struct{ words [MaxCPUs / 64]uint64 }

// CPUSetOf returns the set of the given CPUs.
func CPUSetOf(cpus ...CPU) CPUSet {
	var s CPUSet
	for _, c := range cpus {
		s.words[c/64] |= 1 << (c % 64)
	}
	return s
}

// ParseCPUSet reads the kernel's list format: "0-3,8", with an optional
// trailing newline. The empty string is the empty set.
// (Documentation/admin-guide/cgroup-v1/cpusets.rst, "List Format".)
func ParseCPUSet(list string) (CPUSet, error) {
	var s CPUSet
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 32)
		hi, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || lo > hi || hi >= MaxCPUs {
			return CPUSet{}, fmt.Errorf("cpu list %.80q: want numbers from 0 to %d and ranges such as 0-3,8", list, MaxCPUs-1)
		}
		for c := lo; c <= hi; c++ {
			s.words[c/64] |= 1 << (c % 64)
		}
	}
	return s, nil
}

// String prints s in the kernel's list format: "0-3,8". The empty set is "".
func (s CPUSet) String() string {
	var room [64]byte
	return string(s.Append(room[:0]))
}

// Append appends the text of String to b.
func (s *CPUSet) Append(b []byte) []byte {
	begun := len(b)
	for lo := s.next(0, true); lo < MaxCPUs; {
		end := s.next(lo, false)
		if len(b) > begun {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(lo), 10)
		if end-lo > 1 {
			b = strconv.AppendInt(append(b, '-'), int64(end-1), 10)
		}
		lo = s.next(end, true)
	}
	return b
}

// next returns the first CPU from c upwards that is in s (if in is true), or
// that is not in s (if in is false). If there is none, it returns MaxCPUs.
func (s *CPUSet) next(c CPU, in bool) CPU {
	for i := int(c / 64); i < len(s.words); i++ {
		w := s.words[i]
		if !in {
			w = ^w
		}
		if i == int(c/64) {
			w &= ^uint64(0) << (c % 64)
		}
		if w != 0 {
			return CPU(i*64 + bits.TrailingZeros64(w))
		}
	}
	return MaxCPUs
}

// Has reports whether c is in s.
func (s CPUSet) Has(c CPU) bool {
	return c >= 0 && c < MaxCPUs && s.words[c/64]&(1<<(c%64)) != 0
}

// With returns s with c added.
func (s CPUSet) With(c CPU) CPUSet {
	s.words[c/64] |= 1 << (c % 64)
	return s
}

// Add adds c to s. Unlike With, it does not copy the set.
func (s *CPUSet) Add(c CPU) { s.words[c/64] |= 1 << (c % 64) }

// Len returns the number of CPUs in s.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether s has no CPU.
func (s CPUSet) Empty() bool { return s == CPUSet{} }

// Union returns the CPUs that are in s or in t.
func (s CPUSet) Union(t CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] |= t.words[i]
	}
	return s
}

// Intersect returns the CPUs that are in both s and t.
func (s CPUSet) Intersect(t CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] &= t.words[i]
	}
	return s
}

// Minus returns the CPUs that are in s and not in t.
func (s CPUSet) Minus(t CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] &^= t.words[i]
	}
	return s
}

// Contains reports whether every CPU of t is in s.
func (s CPUSet) Contains(t CPUSet) bool { return t.Minus(s).Empty() }

// All returns an iterator over the CPUs of s in ascending order.
func (s CPUSet) All() iter.Seq[CPU] {
	return func(yield func(CPU) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(CPU(i*64 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// MarshalText writes the kernel's list format.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the kernel's list format.
func (s *CPUSet) UnmarshalText(text []byte) error {
	parsed, err := ParseCPUSet(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}
