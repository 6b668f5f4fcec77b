package resctrl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The resources of schemata that Tenon divides. With the mount option cdp,
// L3Code and L3Data replace L3.
const (
	L3     = "L3"
	L3Code = "L3CODE"
	L3Data = "L3DATA"
	MB     = "MB"
)

// Schemata holds the resources that a group may use. Each resource has a mask
// of cache ways, or an amount of bandwidth, for each cache number.
type Schemata map[string]map[int]uint64

// Schemata reads the resources that a group may use.
func (f *FS) Schemata(group string) (Schemata, error) {
	text, err := f.read(group, "schemata")
	if err != nil {
		return nil, err
	}
	s, err := parseSchemata(text)
	if err != nil {
		return nil, fmt.Errorf("schemata of control group %s: %w", group, err)
	}
	return s, nil
}

// SetSchemata writes one line of schemata. Caches that are not in the map by
// keep their values. The kernel accepts or refuses the whole line.
func (f *FS) SetSchemata(group, resource string, by map[int]uint64) error {
	if err := f.write(group, "schemata", line(resource, by)); err != nil {
		return fmt.Errorf("schemata of control group %s: %w", group, err)
	}
	return nil
}

// line prints a line in the format of parseSchemata, with hexadecimal masks
// or decimal amounts.
func line(resource string, by map[int]uint64) string {
	var s strings.Builder
	s.WriteString(resource + ":")
	for i, id := range slices.Sorted(maps.Keys(by)) {
		if i > 0 {
			s.WriteByte(';')
		}
		fmt.Fprintf(&s, "%d=%s", id, strconv.FormatUint(by[id], base(resource)))
	}
	s.WriteByte('\n')
	return s.String()
}

// base returns the number base of a resource's values.
func base(resource string) int {
	if strings.HasPrefix(resource, "L") {
		return 16
	}
	return 10
}

// parseSchemata reads lines such as " L3:0=fff;1=fff", in which spaces and
// leading zeros depend on the kernel. It omits caches without a value, as in a
// pseudo-locked group ("L3:uninitialized").
func parseSchemata(text string) (Schemata, error) {
	s := Schemata{}
	for row := range strings.Lines(text) {
		if row = strings.TrimSpace(row); row == "" {
			continue
		}
		resource, list, ok := strings.Cut(row, ":")
		resource = strings.TrimSpace(resource)
		if !ok || resource == "" {
			return nil, fmt.Errorf("line %q: want RESOURCE:CACHE=VALUE;…", row)
		}
		by := map[int]uint64{}
		for part := range strings.SplitSeq(list, ";") {
			id, value, ok := strings.Cut(part, "=")
			if !ok && strings.TrimSpace(part) == "uninitialized" {
				continue
			}
			n, err := strconv.ParseUint(strings.TrimSpace(id), 10, 31)
			if err != nil || !ok {
				return nil, fmt.Errorf("line %q: %q: want CACHE=VALUE", row, part)
			}
			if by[int(n)], err = strconv.ParseUint(strings.TrimSpace(value), base(resource), 64); err != nil {
				return nil, fmt.Errorf("line %q: value %q: want a number to base %d", row, value, base(resource))
			}
		}
		s[resource] = by
	}
	return s, nil
}
