package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
)

// AllModes lists every mode of the colocation experiment that it runs unasked,
// in the order of the tables.
var AllModes = []report.Mode{
	report.Exclusive, report.ExclusiveAA, report.ExclusiveWarm,
	report.Default, report.Default65, report.Burstable,
	report.Tenon, report.Tenon65, report.Solo,
}

// ColocationModes lists every mode of the colocation experiment: those that it
// runs unasked, and those that pin a rung.
var ColocationModes = slices.Concat(AllModes, report.RungModes)

// ParseModes reads a comma-separated list of the modes in known. "all" is
// whatever the experiment runs unasked: nil. "seed" is the three of the
// published experiments, where they are known.
func ParseModes(list string, known []report.Mode) ([]report.Mode, error) {
	switch list {
	case "all", "":
		return nil, nil
	case "seed":
		list = joinModes([]report.Mode{report.Exclusive, report.Default, report.Tenon})
	}
	var modes []report.Mode
	for name := range strings.SplitSeq(list, ",") {
		m := report.Mode(strings.TrimSpace(name))
		if !slices.Contains(known, m) {
			return nil, fmt.Errorf("mode %q: want some of %s, or all", m, joinModes(known))
		}
		if slices.Contains(modes, m) {
			return nil, fmt.Errorf("mode %q is listed twice", m)
		}
		modes = append(modes, m)
	}
	return modes, nil
}

func joinModes(modes []report.Mode) string {
	names := make([]string, len(modes))
	for i, m := range modes {
		names[i] = string(m)
	}
	return strings.Join(names, ",")
}

// Block returns the modes of one block in the order in which they run: every
// mode once, shuffled. The order depends on seed and block alone, so an
// experiment can be repeated exactly, and one that is stopped early has run
// the same blocks as one that is not.
func Block(modes []report.Mode, seed uint64, block int) []report.Mode {
	order := slices.Clone(modes)
	rng := rand.New(rand.NewPCG(seed, uint64(block)))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// A traits value says what a mode runs beside the service.
type traits struct {
	batch     bool      // ffmpeg runs
	alone     bool      // and nginx does not
	burstable bool      // in a pod with CPU requests
	spinner   bool      // an idle-class spinner keeps the CPUs awake
	paced     bool      // ffmpeg is paced to the CPU use of Tenon65
	tenon     bool      // Tenon's policies write the knobs
	suppress  bool      // with the watermark
	rung      node.Rung // of the ladder, pinned; empty: Tenon chooses
}

func traitsOf(m report.Mode) traits {
	switch m {
	case report.ExclusiveWarm:
		return traits{spinner: true}
	case report.Default:
		return traits{batch: true}
	case report.Default65:
		return traits{batch: true, paced: true}
	case report.Burstable:
		return traits{batch: true, burstable: true}
	case report.Tenon:
		return traits{batch: true, tenon: true}
	case report.Tenon65:
		return traits{batch: true, tenon: true, suppress: true}
	case report.Solo:
		return traits{batch: true, alone: true}
	}
	if rung, pinned := rungOf[m]; pinned {
		return traits{batch: true, tenon: true, rung: rung}
	}
	return traits{}
}
