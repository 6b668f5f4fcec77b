package capability

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestAGroupWithItsControllerTells checks a cgroup whose controller is enabled.
// If this cgroup lacks a file, the kernel does not have the file.
func TestAGroupWithItsControllerTells(t *testing.T) {
	root := t.TempDir()
	do(t, os.Mkdir(filepath.Join(root, "be"), 0o755))
	for _, file := range []string{"cgroup.procs", "cgroup.subtree_control"} {
		do(t, os.WriteFile(filepath.Join(root, "be", file), nil, 0o644))
	}
	do(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu\n"), 0o644))
	for name, want := range map[string]node.Verdict{"cpu.bvt_warp_ns": node.No, "memory.low": node.Unknown} {
		if a := (prober{}).lookInGroups(root, name); a.Verdict != want {
			t.Errorf("%s: %v, want %s", name, a, want)
		}
	}
	do(t, os.WriteFile(filepath.Join(root, "be/memory.low"), nil, 0o644))
	if a := (prober{}).lookInGroups(root, "memory.low"); a.Verdict != node.Yes {
		t.Errorf("memory.low, which is there: %v", a)
	}
}

// A ledger is a Journal that notes what exists when it is called.
type ledger struct {
	root    string
	notes   []string
	refuses error
}

func (l *ledger) note(what string) error {
	groups, _ := filepath.Glob(filepath.Join(l.root, "tenon-probe-*"))
	control, _ := os.ReadFile(filepath.Join(l.root, "cgroup.subtree_control"))
	l.notes = append(l.notes, fmt.Sprintf("%s: %d groups, %q", what, len(groups), control))
	return l.refuses
}

func (l *ledger) RecordGroup(node.CgroupPath) error     { return l.note("group") }
func (l *ledger) Removed(node.CgroupPath) error         { return l.note("removed") }
func (l *ledger) RecordEnabled(controller string) error { return l.note("enable " + controller) }
func (l *ledger) ForgetEnabled(controller string) error { return l.note("disabled " + controller) }

// TestAProbeIsJournaledBeforeItWrites checks that a probe journals its temporary
// cgroup and its controller before it makes or enables them, and forgets them
// afterwards. If it cannot journal, it changes nothing.
func TestAProbeIsJournaledBeforeItWrites(t *testing.T) {
	root := t.TempDir()
	do(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), nil, 0o644),
		os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu io\n"), 0o644))
	l := &ledger{root: root}
	p := prober{Node: Node{Journal: l}, try: true}
	if a := p.lookInGroups(root, "cpu.idle"); a.Verdict != node.No {
		t.Errorf("%v", a)
	}
	want := []string{`group: 0 groups, ""`, `enable cpu: 1 groups, ""`, `disabled cpu: 1 groups, "-cpu"`, `removed: 0 groups, "-cpu"`}
	if !slices.Equal(l.notes, want) {
		t.Errorf("journaled\n%q\nwant\n%q", l.notes, want)
	}
	l.notes, l.refuses = nil, errors.New("no space left on device")
	if a := p.lookInGroups(root, "cpu.idle"); a.Verdict != node.Unknown || !slices.Equal(l.notes, []string{`group: 0 groups, "-cpu"`}) {
		t.Errorf("without a journal: %v, %q", a, l.notes)
	}
	if groups, _ := filepath.Glob(filepath.Join(root, "tenon-probe-*")); len(groups) > 0 {
		t.Errorf("left %q", groups)
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
