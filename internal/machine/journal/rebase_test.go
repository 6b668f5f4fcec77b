package journal

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAnotherValueFromBeforeIsKept checks that Rebase still has its effect when
// the journal has been opened again or compacted. For a knob without an entry,
// Rebase must do nothing.
func TestAnotherValueFromBeforeIsKept(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, "boot", Session{PID: 1, Start: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	weight := func(w unit.Weight) node.Value { return node.CPUWeight{Weight: w} }
	touched, other := node.Knob{Cgroup: "a", File: node.FileCPUWeight}, node.Knob{Cgroup: "b", File: node.FileCPUWeight}
	for _, err := range []error{
		j.Intend(touched, 7, weight(25600), weight(256)), j.RecordValue(touched, weight(256)),
		j.Rebase(touched, weight(51200)), j.Rebase(other, weight(51200)),
		j.compact(j.nextPath()), j.Adopt([]node.Knob{touched}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(dir, "boot", Session{PID: 2, Start: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := again.State()
	if err != nil || len(s.Touches) != 1 || s.Torn != 0 {
		t.Fatalf("%v, %v", s, err)
	}
	if got := s.Touches[touched]; got.Before != weight(51200) || got.Written != weight(256) || got.Inode != 7 {
		t.Errorf("%+v", got)
	}
}
