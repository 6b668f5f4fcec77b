package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
)

// A lossScene is a scene with two cgroups. A host with its journal in dir has
// limited the first one and made it idle. The host has created the second one.
type lossScene struct {
	m         *machine
	dir       string
	job, made node.CgroupPath
	quota     plan.Step
}

func openLosing(t *testing.T) lossScene {
	t.Helper()
	m := open(t, false)
	x := lossScene{m: m, dir: filepath.Join(t.TempDir(), "state"), job: m.group(t, "job"), made: node.CgroupPath(groupName("made"))}
	if err := cgroup.SetNote(x.directory(t, x.job), "probe", "text"); err != nil {
		skip(t, "the kernel keeps no notes: %v", err)
	}
	do(t, cgroup.DropNote(x.directory(t, x.job), "probe"))
	x.quota = plan.Step{Knob: node.Knob{Cgroup: x.job, File: node.FileCPUMax}, To: node.CPUMax{Quota: 1_000_000, Period: 100_000_000}}
	h := residentHost(t, x.dir, nil)
	do(t, h.MakeGroup(x.made))
	t.Cleanup(func() { _ = m.tree.Remove(string(x.made)) })
	do(t, h.Apply(t.Context(), x.quota))
	do(t, h.Apply(t.Context(), plan.Step{Knob: x.weight(), To: node.CPUWeight{Idle: true}}))
	x.quota.To = node.CPUMax{Quota: 2_000_000, Period: 100_000_000}
	do(t, h.Apply(t.Context(), x.quota))
	do(t, h.Close())
	return x
}

// directory returns the directory of a cgroup.
func (x lossScene) directory(t *testing.T, p node.CgroupPath) string {
	t.Helper()
	dir, err := x.m.tree.Dir("cpu", string(p))
	do(t, err)
	return dir
}

func (x lossScene) weight() node.Knob { return node.Knob{Cgroup: x.job, File: node.FileCPUWeight} }

// restoreAll runs a restore while no agent runs. It checks that no change is
// left.
func (x lossScene) restoreAll(t *testing.T) {
	t.Helper()
	h, err := host.Open(host.Options{JournalDir: x.dir})
	do(t, err)
	planned, err := h.RestorePlan(t.Context())
	do(t, err)
	r, err := h.Restore(t.Context())
	do(t, err)
	if len(r.Restored) != 2 || len(r.Removed) != 1 || len(planned.Restored) != 2 || len(planned.Removed) != 1 {
		t.Errorf("planned:\n%v\nrestored:\n%v", planned, r)
	}
	v, err := x.m.tree.ReadCPUMax(string(x.job))
	do(t, err)
	if notes, err := cgroup.Notes(x.directory(t, x.job)); len(notes) > 0 || err != nil || v.Quota < 1<<62 {
		t.Errorf("notes %v, %v; quota %v", notes, err, v)
	}
	if again, err := h.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore: %v %v", again, err)
	}
}

// continueAndRestore lets the next agent take over and write the quota. The agent
// must recover the given number of entries, and know the value from before Tenon.
// Then it runs a restore.
func (x lossScene) continueAndRestore(t *testing.T, recovered int) {
	t.Helper()
	next := residentHost(t, x.dir, nil)
	if n, err := next.Adopt(); n != recovered || err != nil {
		t.Errorf("recovered %d entries, want %d: %v", n, recovered, err)
	}
	x.quota.To = node.CPUMax{Quota: 3_000_000, Period: 100_000_000}
	do(t, next.Apply(t.Context(), x.quota))
	s, err := next.Snapshot(t.Context())
	do(t, err)
	if v, _ := s.Knobs.Before[x.quota.Knob].(node.CPUMax); v.Quota != node.NoQuota {
		t.Errorf("the quota was %v before Tenon", v)
	}
	do(t, next.Close())
	x.restoreAll(t)
}

// TestARemovedJournalIsRecoveredFromTheCgroups removes the state directory
// while no agent runs. The notes at the cgroups still have the values to
// restore.
func TestARemovedJournalIsRecoveredFromTheCgroups(t *testing.T) {
	t.Run("by a restore", func(t *testing.T) {
		x := openLosing(t)
		do(t, os.RemoveAll(x.dir))
		x.restoreAll(t)
	})
	t.Run("also of a renamed cgroup", func(t *testing.T) {
		x := openLosing(t)
		if x.m.tree.Version() != 1 {
			t.Skip("cgroup v2 refuses to rename a cgroup")
		}
		do(t, os.RemoveAll(x.dir))
		r := renaming{m: x.m, be: x.job, ls: x.m.group(t, "other")}
		r.exchange(t)
		x.job = r.ls
		x.restoreAll(t)
	})
	t.Run("by the next agent", func(t *testing.T) {
		x := openLosing(t)
		do(t, os.RemoveAll(x.dir))
		x.continueAndRestore(t, 3)
	})
	t.Run("but not by one with another directory", func(t *testing.T) {
		x := openLosing(t)
		h, err := host.Open(host.Options{JournalDir: t.TempDir()})
		do(t, err)
		if r, err := h.Restore(t.Context()); err != nil || !r.Empty() {
			t.Errorf("%v %v", r, err)
		}
		x.restoreAll(t)
	})
}

// TestAJournalThatWasCutIsCompletedFromTheCgroups cuts the journal after an
// older write of the quota. The quota that Tenon wrote last must not count as
// one of another component.
func TestAJournalThatWasCutIsCompletedFromTheCgroups(t *testing.T) {
	for _, entry := range []string{"intend", "wrote"} {
		cut := func(t *testing.T) lossScene {
			x := openLosing(t)
			files, err := filepath.Glob(filepath.Join(x.dir, "journal-*.jsonl"))
			do(t, err)
			text, err := os.ReadFile(files[0])
			do(t, err)
			kept, found := 0, false
			for line := range strings.Lines(string(text)) {
				kept += len(line)
				if found = strings.Contains(line, `"cpu.max"`) && strings.Contains(line, `"op":"`+entry+`"`); found {
					break
				}
			}
			if !found {
				t.Fatalf("no entry %s of the quota: %s", entry, text)
			}
			do(t, os.WriteFile(files[0], text[:kept], 0o600))
			return x
		}
		t.Run("after "+entry+", by a restore", func(t *testing.T) { cut(t).restoreAll(t) })
		t.Run("after "+entry+", by the next agent", func(t *testing.T) {
			cut(t).continueAndRestore(t, 2)
		})
	}
}

// orphan makes a process that has ended the author of each note.
func (x lossScene) orphan(t *testing.T) {
	t.Helper()
	for _, p := range []node.CgroupPath{"", x.job, x.made} {
		notes, err := cgroup.Notes(x.directory(t, p))
		do(t, err)
		for name, text := range notes {
			if strings.Contains(text, x.dir) {
				ended := regexp.MustCompile(`"start":\d+`).ReplaceAllString(text, `"start":1`)
				do(t, cgroup.SetNote(x.directory(t, p), name, ended))
			}
		}
	}
}

// TestARestoreNamesTheStateDirectoryOfAnotherTenon runs a restore with another
// state directory than the Tenon that changed the machine. It must not say that
// nothing is left, and must undo nothing.
func TestARestoreNamesTheStateDirectoryOfAnotherTenon(t *testing.T) {
	x := openLosing(t)
	living, err := host.Open(host.Options{JournalDir: filepath.Join(t.TempDir(), "other")})
	do(t, err)
	r, err := living.Restore(t.Context())
	do(t, err)
	if err := r.Incomplete(); err != nil || !strings.Contains(r.String(), fmt.Sprintf("the state directory %s, which runs (process %d)", x.dir, os.Getpid())) {
		t.Errorf("while its process runs: %v (report %v)", err, r)
	}
	do(t, living.Close())
	x.orphan(t)
	for _, remove := range []bool{false, true} {
		name := "with its journal"
		if remove {
			name = "without its journal"
			do(t, os.RemoveAll(x.dir))
		}
		other, err := host.Open(host.Options{JournalDir: filepath.Join(t.TempDir(), "other")})
		do(t, err)
		planned, err := other.RestorePlan(t.Context())
		do(t, err)
		done, err := other.Restore(t.Context())
		do(t, err)
		want := "2 knobs were changed and 1 cgroup was made by a Tenon with the state directory " + x.dir + ": run tenon restore --state-dir " + x.dir
		for _, r := range []restore.Report{planned, done} {
			if err := r.Incomplete(); !r.Empty() || r.Unseen || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v (report %v), want %s", name, err, r, want)
			}
		}
		do(t, other.Close())
	}
	x.restoreAll(t)
	last, err := host.Open(host.Options{JournalDir: filepath.Join(t.TempDir(), "other")})
	do(t, err)
	if r, err := last.Restore(t.Context()); err != nil || r.Incomplete() != nil && strings.Contains(r.Incomplete().Error(), x.dir) {
		t.Errorf("after a restore with the right directory: %v (%v)", r.Incomplete(), err)
	}
	do(t, last.Close())
}
