package journal

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestEntriesMoveWithTheirCgroups lets two cgroups exchange their names. Their
// entries must be exchanged, even if the journal is compacted. An entry with
// another inode must not move.
func TestEntriesMoveWithTheirCgroups(t *testing.T) {
	j, err := Open(t.TempDir(), "boot", Session{PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	knob := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUWeight} }
	intend := func(p node.CgroupPath, inode uint64, before node.Value) {
		t.Helper()
		if err := j.Intend(knob(p), inode, before, node.CPUWeight{Idle: true}); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := node.CPUWeight{Weight: 256}, node.CPUWeight{Weight: 512}, node.CPUWeight{Weight: 768}
	intend("a", 1, a)
	intend("b", 2, b)
	intend("c", 3, c)
	if err := j.RecordGroup("a"); err != nil {
		t.Fatal(err)
	}
	if err := j.Moved([]Move{{From: "a", To: "b", Inode: 1}, {From: "b", To: "a", Inode: 2}, {From: "c", To: "d", Inode: 4}}); err != nil {
		t.Fatal(err)
	}
	if err := j.compact(j.nextPath()); err != nil {
		t.Fatal(err)
	}
	s, err := j.State()
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[node.CgroupPath]Touch{"a": {Inode: 2, Before: b}, "b": {Inode: 1, Before: a}, "c": {Inode: 3, Before: c}} {
		if got := s.Touches[knob(p)]; got.Inode != want.Inode || got.Before != want.Before {
			t.Errorf("%s: inode %d, before %v; want %d, %v", p, got.Inode, got.Before, want.Inode, want.Before)
		}
	}
	if _, made := s.Groups["b"]; !made || len(s.Groups) != 1 || len(s.Touches) != 3 {
		t.Errorf("groups %v, touches %v", s.Groups, s.Touches)
	}
}
