package host_test

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestLongSlicesAreGivenAndTakenBack checks that the threads below a group have
// the long slice until a restore. Threads of other classes, and threads that
// have set a slice themselves, must not get it.
func TestLongSlicesAreGivenAndTakenBack(t *testing.T) {
	m := open(t, false)
	if a := m.Capabilities()[node.FeatureEEVDFSlice]; a.Verdict != node.Yes {
		t.Logf("this kernel has none: %s", a.Why)
		return
	}
	be := node.CgroupPath(groupName("slices"))
	kinds := map[node.CgroupPath]int{be.Join("one"): 0, be.Join("two/inner"): 0, be.Join("own"): 0, be.Join("web"): 0}
	t.Cleanup(func() { do(t, m.tree.RemoveAll(string(be))) })
	for p := range kinds {
		do(t, m.MakeGroup(p))
		pid, err := m.Start(p, unit.Bytes(0))
		do(t, err)
		t.Cleanup(func() { do(t, m.Stop(pid)) })
		kinds[p] = pid
	}
	do(t, task.SetAttr(kinds[be.Join("own")], task.SchedAttr{Slice: 20 * time.Millisecond}))
	m.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: be, ContentionRoot: be})
	m.Manage(node.Workload{ID: "web", Class: node.LS, Cgroup: be.Join("web"), ContentionRoot: be.Join("web")})
	m.Show([]node.File{node.FileSlice})
	slices, err := task.NewSlices()
	do(t, err)
	check := func(when string, want task.SliceKind) {
		t.Helper()
		for p, pid := range kinds {
			want := map[node.CgroupPath]task.SliceKind{be.Join("own"): task.SliceKept, be.Join("web"): task.SliceDefault, be.Join("one"): want, be.Join("two/inner"): want}[p]
			if got, err := slices.Kind(pid); got != want || err != nil {
				t.Errorf("%s: the slice in %s is of kind %d, %v, want %d", when, p, got, err, want)
			}
		}
	}
	k := node.Knob{Cgroup: be, File: node.FileSlice}
	now := func(want node.Value) {
		t.Helper()
		s, err := m.Snapshot(t.Context())
		if do(t, err); s.Knobs.Now[k] != want {
			t.Errorf("a snapshot shows %v, want %v", s.Knobs.Now[k], want)
		}
	}
	_, err = m.Snapshot(t.Context()) // from this snapshot the host knows the workloads of the groups
	do(t, err, m.Apply(t.Context(), plan.Step{Knob: k, From: node.ThreadsNormal, To: node.ThreadsBE}))
	check("given", task.SliceLong)
	now(node.ThreadsBE)
	if n := m.Isolation().Status().OwnSlices; n != 1 {
		t.Errorf("%d threads with a slice of their own are reported, want 1", n)
	}

	r, err := m.Restore(t.Context())
	do(t, err)
	check("restored", task.SliceDefault)
	if again, err := m.Restore(t.Context()); err != nil || len(r.Left) > 0 || len(again.Restored)+len(again.Left) > 0 {
		t.Errorf("restored:\n%v\nand again: %v, %v", r, again, err)
	}
}
