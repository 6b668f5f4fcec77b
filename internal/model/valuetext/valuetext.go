// Package valuetext prints and parses the complicated parts of a knob: values
// with one entry for each block device or each cache, and paths that are not
// UTF-8.
package valuetext

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// Lines prints one entry for each device, ordered by device number: "8:0 50,
// 254:0 100".
func Lines[T any](m map[unit.Device]T, show func(T) string) string {
	lines := make([]string, 0, len(m))
	for _, d := range slices.SortedFunc(maps.Keys(m), unit.Device.Compare) {
		lines = append(lines, d.String()+" "+show(m[d]))
	}
	return strings.Join(lines, ", ")
}

// ParseLines reads the text that Lines prints.
func ParseLines[T any](text string, parse func(string) (T, error)) (map[unit.Device]T, error) {
	m := map[unit.Device]T{}
	if text == "" {
		return m, nil
	}
	for line := range strings.SplitSeq(text, ", ") {
		device, rest, _ := strings.Cut(line, " ")
		d, err := unit.ParseDevice(device)
		if err != nil {
			return nil, err
		}
		if m[d], err = parse(rest); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Decimal prints n in base 10.
func Decimal(n int64) string { return strconv.FormatInt(n, 10) }

// ParseDecimal reads a number in base 10 that is 0 or larger.
func ParseDecimal(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q: want a number from 0", text)
	}
	return n, nil
}

// Schema prints one value for each cache, ordered by cache number: "0=7;1=7".
func Schema[ID ~int](by map[ID]uint64, print func(uint64) string) string {
	var s strings.Builder
	for i, id := range slices.Sorted(maps.Keys(by)) {
		if i > 0 {
			s.WriteByte(';')
		}
		fmt.Fprintf(&s, "%d=%s", id, print(by[id]))
	}
	return s.String()
}

// ParseSchema reads the text that Schema prints. Its numbers have the given
// base (2 to 36).
func ParseSchema[ID ~int](text string, base int) (map[ID]uint64, error) {
	by := map[ID]uint64{}
	for part := range strings.SplitSeq(text, ";") {
		id, value, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(id, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("cache %q: want a number", id)
		}
		if _, twice := by[ID(n)]; twice {
			return nil, fmt.Errorf("cache %d occurs twice", n)
		}
		if by[ID(n)], err = strconv.ParseUint(value, base, 64); err != nil {
			return nil, fmt.Errorf("value %q of cache %d: want a number in base %d", value, n, base)
		}
	}
	return by, nil
}
