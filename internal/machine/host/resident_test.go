package host_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// residentHost returns a resident host like that of tenond. Its journal is in
// dir.
func residentHost(t testing.TB, dir string, behalf *journal.Session) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{JournalDir: dir, Resident: true, Behalf: behalf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func (m *machine) group(t testing.TB, name string) node.CgroupPath {
	t.Helper()
	p := node.CgroupPath(groupName(name))
	if err := m.tree.Make(string(p)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.tree.Remove(string(p)); err != nil {
			t.Error(err)
		}
	})
	return p
}

func job(p node.CgroupPath) node.Workload {
	return node.Workload{ID: node.WorkloadID(p), Class: node.BE, Cgroup: p, ContentionRoot: p}
}

func TestAWorkloadWhoseGroupIsGoneLeavesTheSnapshot(t *testing.T) {
	m := open(t, false)
	h := residentHost(t, t.TempDir(), nil)
	stays, goes := m.group(t, "stays"), node.CgroupPath(groupName("goes"))
	do(t, m.tree.Make(string(goes)))
	h.ManageOnly([]node.Workload{job(stays), job(goes)})
	if s, err := h.Snapshot(t.Context()); err != nil || len(s.Workloads) != 2 {
		t.Fatalf("%d workloads, %v", len(s.Workloads), err)
	}
	do(t, m.tree.Remove(string(goes)))
	s, err := h.Snapshot(t.Context())
	if err != nil || len(s.Workloads) != 1 || s.Workloads[0].Cgroup != stays {
		t.Errorf("%v, %v", s.Workloads, err)
	}
}

func TestWhatWasChangedStaysInSightUntilItIsReleased(t *testing.T) {
	m := open(t, false)
	h := residentHost(t, t.TempDir(), nil)
	p := m.group(t, "left")
	k := node.Knob{Cgroup: p, File: node.FilePIDs}
	h.ManageOnly([]node.Workload{job(p)})
	do(t, h.Apply(t.Context(), plan.Step{Knob: k, To: node.Maximum{Max: 99}}))
	h.ManageOnly(nil) // the rules no longer name it
	s, err := h.Snapshot(t.Context())
	if err != nil || s.Knobs.Before[k] != (node.Maximum{Max: node.NoMaximum}) || s.Knobs.Now[k] != (node.Maximum{Max: 99}) {
		t.Fatalf("now %v, before %v, %v", s.Knobs.Now[k], s.Knobs.Before[k], err)
	}
	do(t, h.Apply(t.Context(), plan.Step{Knob: k, To: s.Knobs.Before[k], Release: true}))
	s, err = h.Snapshot(t.Context())
	if _, still := s.Knobs.Now[k]; still || err != nil {
		t.Errorf("a knob that was given back is in sight, %v", err)
	}
	if v, err := m.tree.ReadLimit(string(p), "pids.max"); err != nil || v.Max != node.NoMaximum {
		t.Errorf("pids.max is %v, %v", v, err)
	}
}

func TestTheNextTenondTakesOverWhatADeadOneChanged(t *testing.T) {
	m := open(t, false)
	dir := t.TempDir()
	p := m.group(t, "heir")
	k := node.Knob{Cgroup: p, File: node.FilePIDs}
	dead := journal.Session{PID: 1 << 22, Start: 1} // no such process
	do(t, residentHost(t, dir, &dead).Apply(t.Context(), plan.Step{Knob: k, To: node.Maximum{Max: 99}}))

	next := residentHost(t, dir, nil)
	_, err := next.Adopt()
	do(t, err)
	// Another Tenon process must see that the process that owns the knob is
	// alive.
	self, err := proc.Default().PIDStat(os.Getppid())
	do(t, err)
	other := residentHost(t, dir, &journal.Session{PID: os.Getppid(), Start: int64(self.StartTime)})
	other.ManageOnly([]node.Workload{job(p)})
	if s, err := other.Snapshot(t.Context()); err != nil || len(s.Knobs.Before) != 0 {
		t.Errorf("the other would release %v, %v", s.Knobs.Before, err)
	}
	s, err := next.Snapshot(t.Context())
	if err != nil || s.Knobs.Before[k] != (node.Maximum{Max: node.NoMaximum}) {
		t.Errorf("before %v, %v", s.Knobs.Before, err)
	}
}

func TestChangesInGroupsThatAreGoneAreForgotten(t *testing.T) {
	m := open(t, false)
	dir := t.TempDir()
	h := residentHost(t, dir, nil)
	p := node.CgroupPath(groupName("short"))
	do(t, m.tree.Make(string(p)),
		h.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: p, File: node.FilePIDs}, To: node.Maximum{Max: 99}}),
		m.tree.Remove(string(p)))
	_, err := h.Sweep(nil)
	do(t, err)
	r, err := h.RestorePlan(t.Context())
	if err != nil || !r.Empty() {
		t.Errorf("left to restore: %v, %v", r, err)
	}
}

// TestASnapshotShowsWhatAnOwnerHasWrittenSince gives a cgroup a CPU burst. Then
// the owner of the cgroup changes its quota, as "systemctl set-property" does.
// The policies must see this quota as the one before Tenon. Otherwise they would
// write the former one again.
func TestASnapshotShowsWhatAnOwnerHasWrittenSince(t *testing.T) {
	m := open(t, false)
	p := m.group(t, "owner")
	k := node.Knob{Cgroup: p, File: node.FileCPUMax}
	quota := func(n time.Duration) cgroup.CPUMax {
		return cgroup.CPUMax{Quota: n * time.Millisecond, Period: 100 * time.Millisecond}
	}
	do(t, m.tree.WriteCPUMax(string(p), quota(50)))
	m.Manage(job(p))
	burst := node.CPUMax(quota(50))
	burst.Burst = 20 * time.Millisecond
	if err := m.Apply(t.Context(), plan.Step{Knob: k, To: burst}); errors.Is(err, cgroup.ErrUnsupported) {
		t.Skip(err)
	} else {
		do(t, err)
	}
	owned := quota(70)
	owned.Burst = burst.Burst
	do(t, m.tree.WriteCPUMax(string(p), owned))
	s, err := m.Snapshot(t.Context())
	do(t, err)
	if before := s.Knobs.Before[k]; before != node.Value(node.CPUMax(quota(70))) {
		t.Errorf("before Tenon it shows %v, want %v", before, node.CPUMax(quota(70)))
	}
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, Release: true, To: s.Knobs.Before[k]}))
	if v, err := m.tree.ReadCPUMax(string(p)); err != nil || v != quota(70) {
		t.Errorf("after the release it has %+v, %v", v, err)
	}
}

// BenchmarkSnapshot measures a snapshot in two variants: without a cache, and
// with the cache of tenond.
func BenchmarkSnapshot(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("making cgroups needs root")
	}
	for _, n := range []int{1, 100} {
		for _, isResident := range []bool{false, true} {
			name := fmt.Sprintf("workloads=%d/resident=%v", n, isResident)
			b.Run(name, func(b *testing.B) {
				h, err := host.Open(host.Options{JournalDir: b.TempDir(), Resident: isResident})
				if err != nil {
					b.Fatal(err)
				}
				root := node.CgroupPath(groupName("bench"))
				defer func() {
					if _, err := h.RestoreOwn(b.Context()); err != nil {
						b.Error(err)
					}
				}()
				var all []node.Workload
				for i := range n {
					w := job(root.Join(fmt.Sprintf("job-%d", i)))
					if i%4 == 0 {
						w.Class = node.LS
					}
					w.MemoryLimit = node.Some(unit.Bytes(1 << 30))
					if err := h.MakeGroup(w.Cgroup); err != nil {
						b.Skip(err)
					}
					all = append(all, w)
				}
				h.ManageOnly(all)
				if _, err := h.Snapshot(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := h.Snapshot(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
