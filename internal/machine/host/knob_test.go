package host

import (
	"testing"

	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// TestEveryKnobHasAnAdapter checks that the table has each knob. If one is
// missing, the error names it.
func TestEveryKnobHasAnAdapter(t *testing.T) {
	if wrong := node.MissingFiles(withKnobs(new(Host)).adapters()); wrong != "" {
		t.Error(wrong)
	}
}

// withKnobs adds the parts of a resident host to a host that a test made.
func withKnobs(h *Host) *Host {
	h.wire(true, nil, isolation.Kernel{})
	return h
}

// available returns an answer for a node that a test made.
func available(why string) node.Answer { return node.Answer{Verdict: node.Yes, Why: why} }
