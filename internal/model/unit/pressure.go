package unit

import (
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
	// kernel has no Full; it is then zero.
	Some, Full Stall
}

// Stall is one line of a pressure file.
type Stall struct {
	// Avg10, Avg60 and Avg300 are the fractions (0 to 1) of the last 10, 60 and
	// 300 s in which tasks waited.
	Avg10, Avg60, Avg300 float64
	// Total is the waiting time since boot, or since the cgroup was created.
	Total time.Duration
}

// ParsePressure reads a pressure file. It skips all lines except these:
//
//	some avg10=2.57 avg60=1.22 avg300=0.69 total=10077645
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
func ParsePressure(text string) (Pressure, error) {
	var p Pressure
	known := false
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
		known = true
		if err := to.parse(rest); err != nil {
			return Pressure{}, fmt.Errorf("pressure line %.80q: %w", strings.TrimSpace(line), err)
		}
	}
	if !known {
		return Pressure{}, fmt.Errorf("pressure %.80q: want lines that start with some or full", text)
	}
	return p, nil
}

func (s *Stall) parse(fields string) error {
	for field := range strings.FieldsSeq(fields) {
		key, value, _ := strings.Cut(field, "=")
		if key == "total" {
			us, err := strconv.ParseInt(value, 10, 64)
			if err != nil || us < 0 || us > math.MaxInt64/1000 {
				return fmt.Errorf("total %.80q: want microseconds", value)
			}
			s.Total = time.Duration(us) * time.Microsecond
			continue
		}
		var to *float64
		switch key {
		case "avg10":
			to = &s.Avg10
		case "avg60":
			to = &s.Avg60
		case "avg300":
			to = &s.Avg300
		default:
			continue
		}
		percent, err := strconv.ParseFloat(value, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return fmt.Errorf("%s %.80q: want a percentage", key, value)
		}
		*to = percent / 100
	}
	return nil
}
