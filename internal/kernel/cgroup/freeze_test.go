package cgroup

import (
	"errors"
	"testing"
)

func TestFreezerFilesOfBothVersions(t *testing.T) {
	v2 := fixture(t, onlyV2+`-- v2/a/cgroup.freeze --
1
-- v2/a/cgroup.events --
populated 1
frozen 0
-- v2/a/cgroup.procs --
12
-- v2/old/cgroup.events --
populated 0
-- v2/old/cgroup.procs --
`)
	v1 := fixture(t, onlyV1+`-- cpu/a/cgroup.procs --
-- cpu/a/b/cgroup.procs --
12
-- cpu/old/cgroup.procs --
-- freezer/a/freezer.self_freezing --
1
-- freezer/a/freezer.state --
FREEZING
`)
	for name, tree := range map[string]*Tree{"v2": v2, "v1": v1} {
		if frozen, err := tree.IsFrozen("a"); !frozen || err != nil {
			t.Errorf("%s: frozen %v, %v", name, frozen, err)
		}
		if still, err := tree.HasStopped("a"); still || err != nil {
			t.Errorf("%s: a group that is still freezing: Still gives %v, %v", name, still, err)
		}
		if lives, err := tree.IsPopulated("a"); !lives || err != nil {
			t.Errorf("%s: populated %v, %v", name, lives, err)
		}
		if lives, err := tree.IsPopulated("old"); lives || err != nil {
			t.Errorf("%s: an empty group is populated %v, %v", name, lives, err)
		}
		if _, err := tree.IsPopulated("gone"); !errors.Is(err, ErrGone) {
			t.Errorf("%s: a group that does not exist: %v", name, err)
		}
	}
	if _, err := v2.HasStopped("old"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("before Linux 5.2: %v", err)
	}
	if _, err := v1.IsFrozen("old"); !errors.Is(err, ErrGone) {
		t.Errorf("a group outside the freezer hierarchy: %v", err)
	}
	without := fixture(t, "-- proc/self/mountinfo --\n34 31 0:31 / ROOT/cpu rw,relatime - cgroup cgroup rw,cpu\n-- cpu/a/cgroup.procs --\n")
	for _, err := range []error{without.Freeze("a", true), func() error { _, err := without.IsFrozen("a"); return err }()} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("without the freezer: %v", err)
		}
	}
}

// TestOnlyProcessesThatAreHereAreListed checks ProcsBelow on v1. On v1,
// cgroup.procs lists a process if any of its threads is in the group.
// ProcsBelow must list only processes whose first thread is in the group.
func TestOnlyProcessesThatAreHereAreListed(t *testing.T) {
	tree := fixture(t, onlyV1+`-- cpu/a/cgroup.procs --
7
12
-- cpu/a/tasks --
12
13
15
-- cpu/a/b/cgroup.procs --
9
-- cpu/a/b/tasks --
9
`)
	ids, err := tree.ProcsBelow("a")
	if err != nil || len(ids) != 2 || ids[0] != 9 || ids[1] != 12 {
		t.Errorf("%v, %v, want 9 and 12", ids, err)
	}
}
