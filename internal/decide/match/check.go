package match

import (
	"errors"
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// checkPath returns an error for an invalid glob over paths.
func checkPath(pattern string) error {
	if strings.TrimPrefix(pattern, "/") == "" {
		return errors.New("want a path below the root, which is never a workload")
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		if err := checkName(part); err != nil {
			return err
		}
	}
	return nil
}

func checkName(part string) error {
	switch {
	case part == "":
		return errors.New("want a name between two slashes and none after the last")
	case part == "." || part == "..":
		return fmt.Errorf("want no component %s", part)
	case part == "**":
		return nil
	case strings.Contains(part, "**"):
		return fmt.Errorf("component %q: ** stands alone between slashes", part)
	}
	if err := checkGlob(part); err != nil {
		return fmt.Errorf("component %q: %w", part, err)
	}
	return nil
}

// checkGlob returns an error for an invalid glob over one name.
func checkGlob(pattern string) error {
	for rest := pattern; rest != ""; {
		if rest[0] != '[' {
			rest = rest[1:]
			continue
		}
		s, n, err := parseSet(rest)
		if err != nil {
			return err
		}
		for first, last := range s.ranges {
			if first > last {
				return fmt.Errorf("%c-%c is no range: want the smaller character first", first, last)
			}
		}
		rest = rest[n:]
	}
	return nil
}

// checkUnit returns an error for an invalid glob over units.
func checkUnit(pattern string) error {
	switch {
	case pattern == "":
		return errors.New("want the name of a unit")
	case strings.Contains(pattern, "/"):
		return errors.New("want the name of a unit without slashes; a path belongs in cgroups")
	case strings.Contains(pattern, "**"):
		return errors.New("want *: the name of a unit is one component")
	case hasSuffix(pattern, otherSuffixes):
		return fmt.Errorf("want a unit that ends in one of %v", node.UnitSuffixes)
	}
	return checkName(unitName(pattern))
}

// checkContainer returns an error for an invalid glob over containers.
func checkContainer(pattern string) error {
	name, value, isLabel := strings.Cut(pattern, "=")
	if name == "" {
		return errors.New("want the name of a container, or a label KEY=VALUE")
	}
	if err := checkGlob(name); err != nil {
		return err
	}
	if !isLabel {
		return nil
	}
	return checkGlob(value)
}
