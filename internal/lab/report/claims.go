package report

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/stat"
)

// Asked reports whether the experiment has the mode. It returns true even if no
// run of the mode is valid so far.
func (ev Evidence) Asked(mode Mode) bool {
	return slices.Contains(ev.Modes, mode) || ev.used[mode] != nil
}

// Lacking returns the modes in the list that the experiment does not have.
func (ev Evidence) Lacking(modes ...Mode) []Mode {
	return slices.DeleteFunc(slices.Clone(modes), ev.Asked)
}

// Refuse returns the claim with the verdict Refused. It is final: modes are
// missing, so more blocks would not help.
func (c Claim) Refuse(lacking []Mode) Claim {
	c.Verdict, c.Final = stat.Refused, true
	c.Explanation = fmt.Sprintf("Needs mode %s, which this experiment did not run. %s", modeList(lacking), c.Explanation)
	return c
}

// With returns the claim with verdict v.
func (c Claim) With(v stat.Verdict) Claim {
	c.Verdict = v
	return c
}

func modeList(modes []Mode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
