package host_test

import (
	"os"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
)

// A renaming has two cgroups: one with Tenon's values, and one with the values
// of its owner.
type renaming struct {
	m      *machine
	h      *host.Host
	dir    string
	be, ls node.CgroupPath
}

func openRenaming(t *testing.T) renaming {
	t.Helper()
	m := open(t, false)
	if m.tree.Version() != 1 {
		t.Skip("cgroup v2 refuses to rename a cgroup")
	}
	r := renaming{m: m, dir: t.TempDir(), be: m.group(t, "be"), ls: m.group(t, "ls")}
	r.h = residentHost(t, r.dir, nil)
	r.set(t, r.be)
	return r
}

func (r renaming) set(t *testing.T, p node.CgroupPath) {
	t.Helper()
	do(t, r.h.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: p, File: node.FileCPUMax}, To: node.CPUMax{Quota: 1000_000, Period: 100_000_000}}))
	do(t, r.h.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: p, File: node.FileCPUWeight}, To: node.CPUWeight{Idle: true}}))
}

// rename renames a cgroup in every hierarchy that contains it.
func (r renaming) rename(t *testing.T, from, to node.CgroupPath) {
	t.Helper()
	for _, c := range cgroup.Controllers() {
		if a, err := r.m.tree.Dir(c, string(from)); err == nil {
			b, err := r.m.tree.Dir(c, string(to))
			do(t, err)
			if err := os.Rename(a, b); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
}

// exchange exchanges the names of the two cgroups.
func (r renaming) exchange(t *testing.T) {
	t.Helper()
	r.rename(t, r.be, r.be+"-aside")
	r.rename(t, r.ls, r.be)
	r.rename(t, r.be+"-aside", r.ls)
}

func (r renaming) bounded(t *testing.T, p node.CgroupPath) bool {
	t.Helper()
	v, err := r.m.tree.ReadCPUMax(string(p))
	do(t, err)
	return v.Quota != cgroup.NoQuota
}

func (r renaming) restored(t *testing.T) {
	t.Helper()
	planned, err := r.h.RestorePlan(t.Context())
	do(t, err)
	got, err := r.h.Restore(t.Context())
	do(t, err)
	if len(got.Restored) == 0 || len(planned.Restored) != len(got.Restored) || len(got.Left)+len(got.Gone) > 0 {
		t.Errorf("planned:\n%v\nrestored:\n%v", planned, got)
	}
}

// TestRenamedCgroupsAreRestored renames cgroups on cgroup v1. A renamed cgroup
// keeps its values and its inode. Tenon must find the cgroup by its inode and
// restore it.
func TestRenamedCgroupsAreRestored(t *testing.T) {
	t.Run("when they exchanged their names", func(t *testing.T) {
		r := openRenaming(t)
		r.exchange(t)
		r.restored(t)
		if r.bounded(t, r.be) || r.bounded(t, r.ls) {
			t.Error("a cgroup keeps Tenon's quota")
		}
	})
	t.Run("when the agent wrote to both names before it noticed", func(t *testing.T) {
		r := openRenaming(t)
		r.exchange(t)
		r.set(t, r.be)
		if !r.bounded(t, r.be) || !r.bounded(t, r.ls) {
			t.Fatal("the cgroups are not bounded")
		}
		r.restored(t)
		if r.bounded(t, r.be) || r.bounded(t, r.ls) {
			t.Error("a cgroup keeps Tenon's quota")
		}
	})
	t.Run("when the agent has a file of the other cgroup open", func(t *testing.T) {
		r := openRenaming(t)
		quota := func(q time.Duration) {
			t.Helper()
			do(t, r.h.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: r.be, File: node.FileCPUMax}, To: node.CPUMax{Quota: q, Period: 100_000_000}}))
		}
		quota(2000_000) // reads the quota back, and keeps its file open
		r.exchange(t)
		quota(3000_000)
		if !r.bounded(t, r.be) || !r.bounded(t, r.ls) {
			t.Fatal("the cgroups are not bounded")
		}
		r.restored(t)
		if r.bounded(t, r.be) || r.bounded(t, r.ls) {
			t.Error("a cgroup keeps Tenon's quota")
		}
	})
	t.Run("when a release finds another cgroup", func(t *testing.T) {
		r := openRenaming(t)
		r.exchange(t)
		do(t, r.h.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: r.be, File: node.FileCPUMax}, To: node.CPUMax{Quota: node.NoQuota, Period: 100_000_000}, Release: true}))
		r.restored(t)
		if r.bounded(t, r.be) || r.bounded(t, r.ls) {
			t.Error("a cgroup keeps Tenon's quota")
		}
	})
}

// TestTheAgentFollowsRenamedCgroups renames cgroups. The snapshot must have the
// values to restore at the new names, so that the policies release the knobs of
// the renamed cgroups.
func TestTheAgentFollowsRenamedCgroups(t *testing.T) {
	for name, notice := range map[string]func(*testing.T, renaming) *host.Host{
		"while it runs": func(t *testing.T, r renaming) *host.Host {
			paths, err := r.m.tree.Paths()
			do(t, err)
			if again, err := r.h.Sweep(paths); again || err != nil {
				t.Fatal(again, err)
			}
			return r.h
		},
		"when it starts": func(t *testing.T, r renaming) *host.Host {
			next := residentHost(t, r.dir, nil)
			_, err := next.Adopt()
			do(t, err)
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := openRenaming(t)
			r.exchange(t)
			s, err := notice(t, r).Snapshot(t.Context())
			do(t, err)
			for _, f := range []node.File{node.FileCPUMax, node.FileCPUWeight} {
				if _, known := s.Knobs.Before[node.Knob{Cgroup: r.ls, File: f}]; !known {
					t.Errorf("the value of %v from before is lost", f)
				}
				if v, known := s.Knobs.Before[node.Knob{Cgroup: r.be, File: f}]; known {
					t.Errorf("%v, which Tenon did not write, was %v before", f, v)
				}
			}
			r.restored(t)
		})
	}
}
