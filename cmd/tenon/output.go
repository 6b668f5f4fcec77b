package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// classFlag, cpuFlag and memoryFlag parse and check the value of a flag.
type (
	classFlag  struct{ node.Class }
	cpuFlag    struct{ node.Maybe[unit.MilliCPU] }
	memoryFlag struct{ node.Maybe[unit.Bytes] }
)

// classNames lists the classes that tenon run accepts. A command of tenon run
// gets no CPUs of its own, so LSR and LSE are not among them.
func classNames() []string {
	return []string{string(node.LS), string(node.System), string(node.BE)}
}

func (f *classFlag) Set(s string) error {
	c := node.Class(strings.ToUpper(s))
	if slices.Contains(classNames(), string(c)) {
		f.Class = c
		return nil
	}
	want := "want one of " + strings.Join(classNames(), ", ")
	if slices.Contains(node.Classes, c) {
		want += ": tenon run gives a command no CPUs of its own, a rule of tenond does"
	}
	return errors.New(want)
}
func (f *classFlag) String() string { return string(f.Class) }
func (f *classFlag) Type() string   { return "CLASS" }

func (f *cpuFlag) Set(s string) error {
	m, err := unit.ParseMilliCPU(s)
	if err == nil && m == 0 {
		err = fmt.Errorf("cpu amount %q: want more than 0", s)
	}
	f.Maybe = node.Some(m)
	return err
}
func (f *cpuFlag) String() string { return "" }
func (f *cpuFlag) Type() string   { return "N" }

func (f *memoryFlag) Set(s string) error {
	b, err := unit.ParseBytes(s)
	if err == nil && b < unit.MinMemoryLimit {
		err = fmt.Errorf("memory amount %q: want at least 6Mi (is a suffix such as Mi or Gi missing?)", s)
	}
	f.Maybe = node.Some(b)
	return err
}
func (f *memoryFlag) String() string { return "" }
func (f *memoryFlag) Type() string   { return "BYTES" }
