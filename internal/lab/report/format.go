package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Unknown is printed for a number that is not known.
const Unknown = "–"

// Change prints a ratio as "+2.8 %", or as "×24.3" if it is 10 or more.
func Change[F ~float64](ratio F) string {
	switch {
	case !Number(ratio).Known():
		return Unknown
	case ratio >= 1000:
		return fmt.Sprintf("×%.0f", float64(ratio))
	case ratio >= 10:
		return fmt.Sprintf("×%.1f", float64(ratio))
	}
	return percent(float64(ratio-1)) + " %"
}

// percent prints a share as a signed percentage, without the percent sign.
func percent(share float64) string { return signed(100*share, 1) }

func signed(v float64, prec int) string {
	s := fmt.Sprintf("%+.*f", prec, v)
	if strings.Trim(s, "-0.") == "" {
		s = strings.Replace(s, "-", "+", 1)
	}
	return strings.Replace(s, "-", "−", 1)
}

// Limit prints a margin such as 1.03 as "3 %".
func Limit(ratio float64) string {
	return strconv.FormatFloat(round(100*(ratio-1), 2), 'f', -1, 64) + " %"
}

// Span prints an interval of ratios: "−0.4 … +6.1 %" or "×21.0 … ×33.5".
func Span(i Interval) string {
	switch {
	case !Number(i.Low).Known() || !Number(i.High).Known():
		return Unknown
	case i.High >= 1000:
		return fmt.Sprintf("×%.0f … ×%.0f", float64(i.Low), float64(i.High))
	case i.High >= 10:
		return fmt.Sprintf("×%.1f … ×%.1f", float64(i.Low), float64(i.High))
	case i.High >= 2:
		return fmt.Sprintf("%s … %s %%", signed(100*float64(i.Low-1), 0), signed(100*float64(i.High-1), 0))
	}
	return percent(float64(i.Low-1)) + " … " + percent(float64(i.High-1)) + " %"
}

// FormatRatio prints an estimate and its interval, as a part of a sentence.
func FormatRatio(i Interval) string {
	switch {
	case i.Blocks == 0:
		return "not measured"
	case i.Blocks == 1:
		return Change(i.Value) + " (one block: no interval)"
	case i.IsVague():
		return fmt.Sprintf("%s (%d blocks cannot tell)", Change(i.Value), i.Blocks)
	}
	return fmt.Sprintf("%s (95 %%: %s)", Change(i.Value), Span(i))
}

// Quantity prints an estimate and its interval: "96.3 % (95 %: 95.6 … 96.9)".
func Quantity(i Interval, factor float64, unit string) string {
	switch {
	case i.Blocks == 0:
		return "not measured"
	case i.Blocks == 1:
		return Scaled(i.Value, factor, 1) + unit + " (one block: no interval)"
	}
	return fmt.Sprintf("%s%s (95 %%: %s … %s)", Scaled(i.Value, factor, 1), unit, Scaled(i.Low, factor, 1), Scaled(i.High, factor, 1))
}

// FormatNumber prints v with prec decimals, or a dash if v is not known.
func FormatNumber[F ~float64](v F, prec int) string {
	if !Number(v).Known() {
		return Unknown
	}
	return fmt.Sprintf("%.*f", prec, float64(v))
}

// Scaled prints factor·v.
func Scaled[F ~float64](v F, factor float64, prec int) string {
	return FormatNumber(float64(v)*factor, prec)
}

// Microseconds prints a latency with a suitable unit.
func Microseconds(us float64) string {
	switch {
	case us < 1:
		return fmt.Sprintf("%.2g µs", us)
	case us < 1000:
		return fmt.Sprintf("%.3g µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.3g s", us/1e6)
}

func countList(counts map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}

func round(v float64, decimals int) float64 {
	p := math.Pow(10, float64(decimals))
	return math.Round(v*p) / p
}
