package change

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// TestEachInodeIsReadOnce has knobs of cgroups on v1. One cgroup is removed,
// and one is renamed. FollowAndList must find the renamed one. In a second case
// nothing was renamed: FollowAndList must return the inodes that it read, so
// that a sweep of thousands of cgroups reads each only once.
func TestEachInodeIsReadOnce(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc/self"), 0o755), os.MkdirAll(filepath.Join(root, "cpu"), 0o755),
		os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte("31 24 0:28 / "+root+"/cpu rw - cgroup cgroup rw,cpu\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Detect(filepath.Join(root, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(root, "state"), "boot", journal.Session{PID: 1, Start: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	c := New(Options{FS: proc.FS{Proc: filepath.Join(root, "proc")}, Tree: tree, Journal: j})
	inodes := map[node.CgroupPath]uint64{}
	for i := range 4 {
		p := node.CgroupPath(fmt.Sprintf("job-%d", i))
		if err := os.Mkdir(filepath.Join(root, "cpu", string(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		k := node.Knob{Cgroup: p, File: node.FileCPUMax}
		if inodes[p], err = c.Inode(k); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Intend(k, inodes[p], node.Limit(2000), node.Limit(100)), j.RecordValue(k, node.Limit(100))); err != nil {
			t.Fatal(err)
		}
	}
	at := func(p string) string { return filepath.Join(root, "cpu", p) }
	if err := os.Remove(at("job-3")); err != nil {
		t.Fatal(err)
	}
	inodes["job-3"] = 0
	touches, read, err := c.FollowAndList([]string{"job-0", "job-1", "job-2"})
	if err != nil || len(touches) != 4 || len(read) != 4 {
		t.Fatalf("%d entries, %d inodes, %v; want four of each", len(touches), len(read), err)
	}
	for p, inode := range inodes {
		if read[p] != inode {
			t.Errorf("%s has inode %d, want %d", p, read[p], inode)
		}
	}
	if err := os.Rename(at("job-0"), at("moved")); err != nil {
		t.Fatal(err)
	}
	touches, _, err = c.FollowAndList([]string{"job-1", "job-2", "moved"})
	if got := touches[node.Knob{Cgroup: "moved", File: node.FileCPUMax}]; err != nil || got.Inode != inodes["job-0"] {
		t.Errorf("the entry of the renamed cgroup is %+v, %v", got, err)
	}
}

// TestNoWriteGoesToACgroupThatTookThePath exchanges the names of two cgroups
// after the agent has read a knob and before it writes the knob. The write would
// change the other cgroup, and the journal would not have the value to restore
// there.
func TestNoWriteGoesToACgroupThatTookThePath(t *testing.T) {
	b := newBench(t, "cgroup cgroup rw,cpu")
	ls := b.add(t, "ls", node.FileCPUMax, node.Limit(2000))
	be := b.add(t, "be", node.FileCPUMax, node.Limit(2000))
	at := func(k node.Knob) string { return filepath.Join(b.root, "groups", string(k.Cgroup)) }
	read := func(k node.Knob) (node.Value, error) {
		v, err := b.readKnob(k)
		return v, errors.Join(err, os.Rename(at(be), at(be)+"-aside"), os.Rename(at(ls), at(be)), os.Rename(at(be)+"-aside", at(ls)))
	}
	b.Use(knob.Table{node.FileCPUMax: {Read: read, Write: b.writeKnob}})
	b.writing = func(k node.Knob) { t.Errorf("%v was written", k) }
	if err := b.Set(be, node.Limit(100)); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("Set: %v, want ErrGone", err)
	}
	if err := (ManyKnobs{b.Knobs}).Set([]Change{{be, node.Limit(100)}})[0]; !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("ManyKnobs.Set: %v, want ErrGone", err)
	}
	if state, err := b.journal.State(); err != nil || len(state.Touches) != 0 {
		t.Errorf("the journal has %v, %v; want nothing", state.Touches, err)
	}
}
