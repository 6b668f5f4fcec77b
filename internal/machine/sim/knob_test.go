package sim

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestEveryKnobHasAnAdapter checks that the table has an adapter for each kind
// of knob. The error names the kind that has none.
func TestEveryKnobHasAnAdapter(t *testing.T) {
	if wrong := node.MissingFiles(New(Options{}).adapters()); wrong != "" {
		t.Error(wrong)
	}
}
