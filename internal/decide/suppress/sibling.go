package suppress

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/unit"
)

// clear removes the siblings of CPUs with LS work from a set. It leaves at
// least the minimum of BE, and keeps siblings for it in the order of x.avoid.
func (x *suppressor) clear(of unit.CPUSet) unit.CPUSet {
	left := of.Minus(unit.CPUSetOf(x.avoid...))
	for _, cpu := range x.avoid {
		if left.Len() >= min(x.minimumCPUs(), of.Len()) {
			break
		}
		if of.Has(cpu) {
			left.Add(cpu)
		}
	}
	return left
}

// keptOff returns words for a reason: how many CPUs clear removed. If it
// removed none, the result is "".
func keptOff(of, left unit.CPUSet) string {
	if n := of.Minus(left).Len(); n > 0 {
		return fmt.Sprintf("%s kept free as siblings of LS", facts.AreCPUs(n))
	}
	return ""
}

// clauses joins the clauses of a reason, without those that are empty.
func clauses(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}
