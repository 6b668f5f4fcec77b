// Package labflag has the flag types of tenon lab.
package labflag

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// CPUs is a non-empty set of CPUs, such as 0-3,6.
type CPUs unit.CPUSet

// Set implements pflag.Value.
func (f *CPUs) Set(s string) error {
	set, err := unit.ParseCPUSet(s)
	if err == nil && set.Empty() {
		err = errors.New("want at least one CPU")
	}
	*f = CPUs(set)
	return err
}

func (f *CPUs) String() string { return unit.CPUSet(*f).String() }

// Type implements pflag.Value: it names the value in the help text.
func (f *CPUs) Type() string { return "LIST" }

// Percent is a percentage such as 30 or 30%.
type Percent float64

// Set implements pflag.Value.
func (f *Percent) Set(s string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "%"), 64)
	if err != nil {
		return errors.New("want a percentage such as 30%")
	}
	*f = Percent(v)
	return nil
}

func (f *Percent) String() string {
	return strconv.FormatFloat(float64(*f), 'f', -1, 64) + "%"
}

// Type implements pflag.Value: it names the value in the help text.
func (f *Percent) Type() string { return "PERCENT" }

// Bytes is an amount of memory, such as 256Mi.
type Bytes unit.Bytes

// Set implements pflag.Value.
func (f *Bytes) Set(s string) error {
	b, err := unit.ParseBytes(s)
	*f = Bytes(b)
	return err
}

func (f *Bytes) String() string {
	if b := unit.Bytes(*f); b > 0 && b%(1<<20) == 0 {
		return fmt.Sprintf("%dMi", b>>20)
	}
	return unit.Bytes(*f).String()
}

// Type implements pflag.Value: it names the value in the help text.
func (f *Bytes) Type() string { return "BYTES" }

// A Load is a percentage, or a source of load for a service: a URL or a
// command. A user may give the flag twice, to set both.
type Load struct {
	Percent Percent
	Target  string

	percentSet bool
}

// Set implements pflag.Value.
func (f *Load) Set(s string) error {
	if percent := f.Percent; percent.Set(s) == nil {
		if f.percentSet {
			return fmt.Errorf("want one percentage, and %v was given already", &f.Percent)
		}
		f.Percent, f.percentSet = percent, true
		return nil
	}
	if f.Target != "" {
		return fmt.Errorf("want one source of load, and %q was given already", f.Target)
	}
	if !strings.ContainsAny(s, ":/ ") {
		return errors.New("want a percentage such as 30%, a URL such as redis://127.0.0.1:6379, or a command")
	}
	f.Target = s
	return nil
}

func (f *Load) String() string { return f.Percent.String() }

// Type implements pflag.Value: it names the value in the help text.
func (f *Load) Type() string { return "PERCENT|URL|COMMAND" }
