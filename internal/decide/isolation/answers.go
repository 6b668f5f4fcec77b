package isolation

import (
	"fmt"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// MarkNames lists the names of the vendor marks, as in "a, b and c".
func MarkNames() string {
	var names []string
	for _, m := range node.VendorMarks {
		names = append(names, string(m.Can))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// AnswerOf returns the node's answer about a feature.
func AnswerOf(can node.Capabilities, m node.Feature) node.Answer {
	if a, probed := can[m]; probed {
		return a
	}
	return node.Answer{Verdict: node.Unknown, Why: string(m) + " was not probed"}
}

// OthersHave returns the part of a reason that counts the processes with a
// core-scheduling cookie of another component.
func OthersHave(n int) string {
	if n == 1 {
		return "1 process has a core-scheduling cookie of another component"
	}
	return fmt.Sprintf("%d processes have a core-scheduling cookie of another component", n)
}
