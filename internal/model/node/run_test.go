package node

import "testing"

func TestRunIsReadAsItPrintsAndOrderedByWhatIsLeft(t *testing.T) {
	order := []Run{Ended, AskedToEnd, Frozen, Running}
	for i, v := range order {
		if got, err := ParseValue(FileRun, v.String()); err != nil || got != v {
			t.Errorf("%q reads as %v, %v", v, got, err)
		}
		for j, w := range order {
			if got := v.CompareWidth(w); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q is narrower than %q by %d", v, w, got)
			}
		}
		if v.EndsProcesses() != (i < 2) || v.CompareWidth(Maximum{}) != 0 {
			t.Errorf("%q ends: %v", v, v.EndsProcesses())
		}
	}
	if _, err := ParseValue(FileRun, "walking"); err == nil {
		t.Error("walking is read")
	}
}
