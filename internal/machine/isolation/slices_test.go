package isolation

import (
	"errors"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
)

// TestTheDefaultSliceIsReadAgainAfterAWhile counts how often the default slice
// is read. Each read must start a thread.
func TestTheDefaultSliceIsReadAgainAfterAWhile(t *testing.T) {
	at, reads, refused := time.Unix(0, 0), 0, error(nil)
	l := longSlices{now: func() time.Time { return at }, read: func() (task.Slices, error) { reads++; return task.Slices{}, refused }}
	count := func(want int) {
		t.Helper()
		for range 10 {
			if _, err := l.count(nil); !errors.Is(err, refused) {
				t.Fatal(err)
			}
		}
		if reads != want {
			t.Errorf("%d readings, want %d", reads, want)
		}
	}
	count(1)
	at = at.Add(reread.Changed - time.Millisecond)
	count(1)
	at = at.Add(time.Millisecond)
	count(2)
	at, refused = at.Add(reread.Changed), errors.New("refused")
	count(12) // an error is not remembered
}
