package unit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Pressure is pressure stall information: how long tasks waited for a resource
// (Documentation/accounting/psi.rst, Linux 4.20). The files of the node and of
// cgroups have the same format.
type Pressure struct {
	// Some counts the time in which at least one task waited. Full counts the
	// time in which every task that was not idle waited. For some resources the
	// kernel has only one of them.
	Some, Full Stall
}

// Stall is the total of one line of a pressure file. The averages of the last 10,
// 60 and 300 s, which the line also has, can be computed from it.
type Stall struct {
	// Total is the waiting time since boot, or since the cgroup was created.
	Total time.Duration
	// Known is false if the line is missing or has no total.
	Known bool
}

// ParsePressure reads a pressure file. It skips all lines except these:
//
//	some avg10=2.57 avg60=1.22 avg300=0.69 total=10077645
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//
// If one of them is damaged, it returns the other one, and an error.
func ParsePressure(text string) (Pressure, error) {
	var p Pressure
	var errs []error
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var to *Stall
		switch kind {
		case "some":
			to = &p.Some
		case "full": // irq.pressure has only this line
			to = &p.Full
		default:
			continue
		}
		var err error
		if to.Total, err = totalOf(rest); err != nil {
			errs = append(errs, fmt.Errorf("pressure line %.80q: %w", strings.TrimSpace(line), err))
		}
		to.Known = err == nil
	}
	if len(errs) == 0 && !p.Some.Known && !p.Full.Known {
		return Pressure{}, fmt.Errorf("pressure %.80q: want lines that start with some or full", text)
	}
	return p, errors.Join(errs...)
}

func totalOf(fields string) (time.Duration, error) {
	for field := range strings.FieldsSeq(fields) {
		value, found := strings.CutPrefix(field, "total=")
		if !found {
			continue
		}
		us, err := strconv.ParseInt(value, 10, 64)
		if err != nil || us < 0 || us > math.MaxInt64/1000 {
			return 0, fmt.Errorf("total %.80q: want microseconds", value)
		}
		return time.Duration(us) * time.Microsecond, nil
	}
	return 0, errors.New("no total")
}
