package host

import (
	"testing"

	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// TestEveryKnobHasAnAdapter: what is forgotten fails by its name.
func TestEveryKnobHasAnAdapter(t *testing.T) {
	if wrong := node.MissingFiles(withKnobs(new(Host)).adapters()); wrong != "" {
		t.Error(wrong)
	}
}

// withKnobs gives a host that a test made the parts of a resident one.
func withKnobs(h *Host) *Host {
	h.wire(true, nil, isolation.Kernel{})
	return h
}

// yes is the answer of a node that a test made.
func yes(why string) node.Answer { return node.Answer{Verdict: node.Yes, Why: why} }
