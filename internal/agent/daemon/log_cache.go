package daemon

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/plan"
)

// logUndivided logs which configured divisions of cache and memory bandwidth
// this node does not support. It logs them once, and again after each change.
func (r *changeLogger) logUndivided(wants []plan.Want) {
	var why []string
	for _, w := range wants {
		if w.Owner == plan.OwnerCache && w.Intent == plan.Abstain {
			why = append(why, w.Knob.String()+": "+w.Reason)
		}
	}
	slices.Sort(why)
	switch text := strings.Join(why, "; "); {
	case text == r.undividedShares:
	case text == "":
		r.log.Info("caches and memory bandwidth are divided as the configuration says")
		r.undividedShares = text
	default:
		r.log.Warn("caches and memory bandwidth are not divided as the configuration says", "why", text)
		r.undividedShares = text
	}
}
