package sim

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestEveryKnobHasAnAdapter: what is forgotten fails by its name.
func TestEveryKnobHasAnAdapter(t *testing.T) {
	if wrong := node.MissingFiles(New(Options{}).adapters()); wrong != "" {
		t.Error(wrong)
	}
}
