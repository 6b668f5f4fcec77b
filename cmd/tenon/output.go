package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// output is the value of the flag -o.
type output string

const (
	text     output = "text"
	jsonText output = "json"
)

func (o *output) Set(s string) error {
	if s != string(text) && s != string(jsonText) {
		return fmt.Errorf("want text or json")
	}
	*o = output(s)
	return nil
}
func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "FORMAT" }

// print writes v as JSON with -o json, otherwise it writes text.
func (o output) print(w io.Writer, v any, text string) error {
	if o != jsonText {
		_, err := io.WriteString(w, text)
		return err
	}
	e := json.NewEncoder(printable.JSON(w))
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// classFlag, cpuFlag and memoryFlag parse and check the value of a flag.
type (
	classFlag  struct{ node.Class }
	cpuFlag    struct{ node.Maybe[unit.MilliCPU] }
	memoryFlag struct{ node.Maybe[unit.Bytes] }
)

func classNames() []string {
	var names []string
	for _, c := range node.Classes {
		names = append(names, string(c))
	}
	return names
}

func (f *classFlag) Set(s string) error {
	c := node.Class(strings.ToUpper(s))
	if !slices.Contains(node.Classes, c) {
		return fmt.Errorf("want one of %s", strings.Join(classNames(), ", "))
	}
	f.Class = c
	return nil
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

// complete sets the values that a shell offers for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// An error means that the flag does not exist. A test completes each flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
