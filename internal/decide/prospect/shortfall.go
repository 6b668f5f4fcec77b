package prospect

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// The resources of a Shortfall.
const (
	ResourceCPU    = "cpu"
	ResourceMemory = "memory"
)

// A Shortfall is a kind of promise that a node has kept less often than it said.
type Shortfall struct {
	Node     string       `json:"node"`
	Resource string       `json:"resource"`
	Hours    int          `json:"hours"`
	Percent  unit.Percent `json:"percent"`
	Promises int64        `json:"promises"` // whose end is known
	Kept     int64        `json:"kept"`
}

// Shortfalls returns the promises that nodes have kept less often than they said, the
// furthest below first. The interval is wide, because a fleet has some thousand of them.
func Shortfalls(all []Outlook) (found []Shortfall) {
	for i := range all {
		for _, p := range all[i].Promises {
			one := Shortfall{Node: all[i].Name, Hours: p.Hours, Percent: p.Percent}
			found = one.ofResource(found, ResourceCPU, p.CPU.Judged, p.CPU.Kept)
			found = one.ofResource(found, ResourceMemory, p.Memory.Judged, p.Memory.Kept)
		}
	}
	slices.SortFunc(found, func(a, b Shortfall) int {
		return cmp.Or(
			cmp.Compare(a.Kept*100-int64(a.Percent)*a.Promises, b.Kept*100-int64(b.Percent)*b.Promises),
			strings.Compare(a.Node, b.Node), strings.Compare(a.Resource, b.Resource), cmp.Compare(a.Hours, b.Hours), cmp.Compare(a.Percent, b.Percent))
	})
	return found
}

func (s Shortfall) ofResource(found []Shortfall, resource string, judged, kept int64) []Shortfall {
	const oneInThousand = 3.29
	least, most := interval(kept, judged, float64(judged)/float64(s.Hours), oneInThousand)
	if judged == 0 || fitOf(least, most, s.Percent) != FitSeldom {
		return found
	}
	s.Resource, s.Promises, s.Kept = resource, judged, kept
	return append(found, s)
}
