// This file holds ranges of numbers, as the struct tags of package config write
// them: "0..100", "1..", ">0..1" or "100ms..60s".

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A span is a range of numbers. The zero Span contains all numbers.
type span struct {
	low, high string // bounds as written; "": no bound
	above     bool   // low itself is not in the range
	from, to  float64
}

// parseSpan parses the value of a range tag, such as "0..100".
func parseSpan(tag string) span {
	if tag == "" {
		return span{}
	}
	var s span
	s.low, s.high, _ = strings.Cut(tag, "..")
	s.low, s.above = strings.CutPrefix(s.low, ">")
	s.from, s.to = spanBound(s.low), spanBound(s.high)
	return s
}

// spanBound parses a bound: a number, or a duration as nanoseconds.
func spanBound(s string) float64 {
	if s == "" {
		return 0
	}
	if d, err := time.ParseDuration(s); err == nil {
		return float64(d)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("range with the bound %q: want a number or a duration", s))
	}
	return f
}

// IsSwitch reports whether s has only 0 and 1.
func (s span) IsSwitch() bool { return s.low == "0" && s.high == "1" && !s.above }

// Holds reports whether x lies in s.
func (s span) Holds(x float64) bool {
	return (s.low == "" || x > s.from || (x == s.from && !s.above)) && (s.high == "" || x <= s.to)
}

// String prints " from 0 to 100", " of at least 1" or " above 0 and at most 1".
func (s span) String() string {
	switch {
	case s.low == "":
		return ""
	case s.high == "" && s.above:
		return " above " + s.low
	case s.high == "":
		return " of at least " + s.low
	case s.above:
		return " above " + s.low + " and at most " + s.high
	}
	return " from " + s.low + " to " + s.high
}
