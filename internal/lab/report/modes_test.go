package report

import (
	"os"
	"strings"
	"testing"
)

// TestEveryModeHasAColour checks that the style sheet has two colours for each
// mode: one on light ground and one on dark. A mode without a colour is drawn
// in the colour of the text.
func TestEveryModeHasAColour(t *testing.T) {
	styles, err := os.ReadFile("../page/page.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range modeTable {
		if n := strings.Count(string(styles), "--m-"+string(s.Mode)+": #"); n != 2 {
			t.Errorf("page.css has %d colours for the mode %s, want 2", n, s.Mode)
		}
	}
}
