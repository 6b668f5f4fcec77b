package frame

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
)

// ParseModes parses a comma-separated list of the modes in known. "all" gives
// nil, which selects the default modes of the experiment. "seed" stands for the
// three modes of the published experiments.
func ParseModes(list string, known []report.Mode) ([]report.Mode, error) {
	switch list {
	case "all", "":
		return nil, nil
	case "seed":
		list = JoinModes([]report.Mode{report.Exclusive, report.Default, report.Tenon})
	}
	var modes []report.Mode
	for name := range strings.SplitSeq(list, ",") {
		m := report.Mode(strings.TrimSpace(name))
		if !slices.Contains(known, m) {
			return nil, fmt.Errorf("mode %q: want some of %s, or all", m, JoinModes(known))
		}
		if slices.Contains(modes, m) {
			return nil, fmt.Errorf("mode %q is listed twice", m)
		}
		modes = append(modes, m)
	}
	return modes, nil
}

// JoinModes returns the list that ParseModes parses.
func JoinModes(modes []report.Mode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ",")
}
