package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
)

// A controllerBench is a host on a cgroup v2 tree of plain files. The root has
// the child "be", and shows the controllers that a test says.
type controllerBench struct {
	*Host
	t    *testing.T
	root string
}

// newControllerBench returns a bench on which the given controllers are enabled.
func newControllerBench(t *testing.T, enabled string) controllerBench {
	t.Helper()
	root, fs := newV2(t)
	b := controllerBench{t: t, root: root}
	b.put("be/cgroup.controllers", "")
	b.put("cgroup.subtree_control", enabled)
	tree, err := cgroup.Detect(fs.Proc)
	do(t, err)
	b.Host, err = Open(Options{Tree: tree, FS: fs, JournalDir: filepath.Join(t.TempDir(), "journal")})
	do(t, err)
	t.Cleanup(func() { do(t, b.Close()) })
	return b
}

func (b controllerBench) put(file, text string) {
	b.t.Helper()
	file = filepath.Join(b.root, file)
	do(b.t, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
}

func (b controllerBench) subtreeControl() string {
	text, err := os.ReadFile(filepath.Join(b.root, "cgroup.subtree_control"))
	do(b.t, err)
	return strings.TrimSpace(string(text))
}

// restored restores all, and checks that a dry run before says the same about
// controllers.
func (b controllerBench) restored() restore.Report {
	b.t.Helper()
	planned, err := b.RestorePlan(b.t.Context())
	do(b.t, err)
	r, err := b.Restore(b.t.Context())
	do(b.t, err)
	if !slices.Equal(planned.Disabled, r.Disabled) || !slices.Equal(planned.NeededControllers, r.NeededControllers) {
		b.t.Errorf("planned\n%vdone\n%v", planned, r)
	}
	return r
}

// TestARestoreDisablesTheControllersThatOnlyTenonNeeded makes a cgroup, for which
// Tenon enables controllers. A restore must disable them again, except those that
// were enabled before, or that another program may need by now.
func TestARestoreDisablesTheControllersThatOnlyTenonNeeded(t *testing.T) {
	const all = "cpu cpuset io memory pids"
	for name, c := range map[string]struct {
		before           string
		shown            string // by the kernel, before the restore
		meanwhile        func(b controllerBench)
		disabled, needed string
	}{
		"no other program needs them": {"", all, nil, all, ""},
		"some were enabled before":    {"cpu memory", all, nil, "cpuset io pids", ""},
		"all were enabled before":     {all, all, nil, "", ""},
		"a cgroup has a limit":        {"", all, func(b controllerBench) { b.put("be/memory.max", "1048576\n") }, "cpu cpuset io pids", "memory"},
		"a cgroup has no limit":       {"", all, func(b controllerBench) { b.put("be/memory.max", "max\n") }, all, ""},
		"a cgroup has an unknown setting": {"", all, func(b controllerBench) { b.put("be/cpu.of_a_vendor", "0\n") },
			"cpuset io memory pids", "cpu"},
		"a cgroup passes one on": {"", all, func(b controllerBench) { b.put("be/cgroup.subtree_control", "io\n") }, "cpu cpuset memory pids", "io"},
		"a cgroup is new": {"cpu cpuset", all, func(b controllerBench) {
			b.put("new/cgroup.controllers", "")
			b.put("new/cgroup.subtree_control", "")
		}, "", "io memory pids"},
		"another program disabled most": {"", "io", nil, "io", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newControllerBench(t, c.before)
			do(t, b.MakeGroup("tenon-be/job"))
			b.put("cgroup.subtree_control", c.shown)
			if c.meanwhile != nil {
				c.meanwhile(b)
			}
			r := b.restored()
			if !slices.Equal(r.Removed, []node.CgroupPath{"tenon-be/job", "tenon-be"}) {
				t.Errorf("removed %v", r.Removed)
			}
			names := func(all []restore.Controller) string {
				var words []string
				for _, x := range all {
					words = append(words, x.Controller)
				}
				return strings.Join(words, " ")
			}
			if names(r.Disabled) != c.disabled || names(r.NeededControllers) != c.needed {
				t.Errorf("disabled %q and left %q, want %q and %q", names(r.Disabled), names(r.NeededControllers), c.disabled, c.needed)
			}
			// A plain file holds only what was written last.
			last := c.shown
			if c.disabled != "" {
				last = "-" + c.disabled[strings.LastIndex(c.disabled, " ")+1:]
			}
			if got := b.subtreeControl(); got != last {
				t.Errorf("cgroup.subtree_control is %q, want %q", got, last)
			}
			if s, err := b.journal.State(); err != nil || !s.Empty() {
				t.Errorf("the journal has %v, %v", s, err)
			}
		})
	}
}

// TestControllersStayWhileACommandNeedsThem restores while a command of tenon run
// is in its cgroup. The restore after its end must disable the controllers.
func TestControllersStayWhileACommandNeedsThem(t *testing.T) {
	b := newControllerBench(t, "cpu cpuset io memory")
	do(t, b.MakeGroup("tenon-be"))
	b.put("cgroup.subtree_control", "cpu cpuset io memory pids")
	b.put("tenon-be/cgroup.procs", fmt.Sprintln(os.Getpid()))
	if r := b.restored(); len(r.Busy) != 1 || len(r.Disabled)+len(r.NeededControllers) > 0 {
		t.Errorf("while the command runs:\n%v", r)
	}
	do(t, os.Remove(filepath.Join(b.root, "tenon-be/cgroup.procs")))
	if r := b.restored(); len(r.Removed) != 1 || len(r.Disabled) != 1 || b.subtreeControl() != "-pids" {
		t.Errorf("after the command:\n%v", r)
	}
}

// TestControllersOfOthersStayWhenALabEnds lets a lab end while another Tenon
// process has a knob in a cgroup below. The controllers are left to the restore
// of all.
func TestControllersOfOthersStayWhenALabEnds(t *testing.T) {
	b := newControllerBench(t, "cpuset io memory pids")
	do(t, b.MakeGroup("lab"))
	b.put("cgroup.subtree_control", "cpu cpuset io memory pids")
	boot, err := b.fs.BootID()
	do(t, err)
	other, err := journal.Open(filepath.Dir(b.journal.Path()), boot, journal.Session{PID: 1})
	do(t, err)
	t.Cleanup(func() { do(t, other.Close()) })
	inode, err := b.tree.Inode("be")
	do(t, err)
	k := node.Knob{Cgroup: "be", File: node.FilePIDs}
	do(t, other.Intend(k, inode, node.Maximum{Max: node.NoMaximum}, node.Maximum{Max: 5}))
	r, err := b.RestoreOwn(t.Context())
	if do(t, err); len(r.Removed) != 1 || len(r.Disabled)+len(r.NeededControllers) > 0 {
		t.Errorf("the lab did\n%v", r)
	}
	if s, err := b.journal.State(); err != nil || len(s.Enabled) != 1 {
		t.Errorf("the journal has %v, %v", s, err)
	}
	b.put("be/pids.max", "5\n")
	for file, text := range map[string]string{"be/cpu.weight": "100\n", "be/cpu.max": "max 100000\n"} {
		b.put(file, text)
	}
	if r := b.restored(); len(r.Restored) != 1 || len(r.Disabled) != 1 || b.subtreeControl() != "-cpu" {
		t.Errorf("the restore of all did\n%v", r)
	}
}

// TestARestoreUndoesAProbeThatWasKilled uses the journal of a process that was
// killed while it tested whether the kernel has a file.
func TestARestoreUndoesAProbeThatWasKilled(t *testing.T) {
	b := newControllerBench(t, "")
	j := probeJournal{b.journal, b.tree}
	do(t, j.RecordGroup("tenon-probe-1-2"))
	do(t, os.Mkdir(filepath.Join(b.root, "tenon-probe-1-2"), 0o700), j.RecordEnabled("cpu"))
	b.put("cgroup.subtree_control", "cpu")
	r := b.restored()
	if !slices.Equal(r.Removed, []node.CgroupPath{"tenon-probe-1-2"}) || len(r.Disabled) != 1 || b.subtreeControl() != "-cpu" {
		t.Errorf("the restore did\n%v", r)
	}
	if again, err := b.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore does %v, %v", again, err)
	}
}
