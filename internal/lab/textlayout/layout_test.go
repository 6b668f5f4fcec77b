package textlayout

import (
	"bytes"
	"testing"
)

// TestATableIsAlignedInATerminal has a column that begins at the left and one that ends at
// the right. A Chinese character takes two columns of a terminal.
func TestATableIsAlignedInATerminal(t *testing.T) {
	var b bytes.Buffer
	Table(&b, []int{-8, 6}, [][]string{{"mode", "ms"}}, [][]string{{"默认", "0.5"}, {"tenon", "12.25"}, {"none"}})
	if got, want := b.String(), "mode        ms\n--------------\n默认       0.5\ntenon    12.25\nnone\n"; got != want {
		t.Errorf("the table is\n%s", got)
	}
}
