package harness

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// Published stands for the modes of the published experiment in a list of modes.
const Published = "published"

// ParseModes parses a comma-separated list of modes. Each mode must be in the
// list known. For "all" ParseModes returns nil, which stands for the default
// modes of the experiment. For Published it returns the modes of the published
// experiment, if there are any.
func ParseModes(list string, known []report.Mode, published ...report.Mode) ([]report.Mode, error) {
	switch {
	case list == "all", list == "":
		return nil, nil
	case list == Published && len(published) > 0:
		return published, nil
	}
	var modes []report.Mode
	for name := range strings.SplitSeq(list, ",") {
		m := report.Mode(strings.TrimSpace(name))
		if !slices.Contains(known, m) {
			return nil, UnknownMode{Mode: m, Known: known}
		}
		if slices.Contains(modes, m) {
			return nil, fmt.Errorf("mode %q is listed twice", m)
		}
		modes = append(modes, m)
	}
	return modes, nil
}

// An UnknownMode is the error for a mode that an experiment does not have.
type UnknownMode struct {
	Mode  report.Mode
	Known []report.Mode // the modes that it has
}

func (e UnknownMode) Error() string {
	return fmt.Sprintf("mode %q: want some of %s, or all", e.Mode, JoinModes(e.Known))
}

// JoinModes returns the list as text, as ParseModes reads it.
func JoinModes(modes []report.Mode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ",")
}

// ModeHelp lists modes with their descriptions, for the help of a command.
func ModeHelp(modes []report.Mode) string {
	const width = 78
	longest := 0
	for _, m := range modes {
		longest = max(longest, len(m))
	}
	var b strings.Builder
	for _, m := range modes {
		head := fmt.Sprintf("  %-*s  ", longest, m)
		for _, l := range textlayout.Wrap(m.Spec().Help, width-len(head)) {
			b.WriteString(head + l + "\n")
			head = strings.Repeat(" ", len(head))
		}
	}
	return b.String()
}
