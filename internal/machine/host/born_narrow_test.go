package host_test

import (
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A narrowing is a cgroup on cgroup v1 that has two CPUs, and a host that
// narrows it.
type narrowing struct {
	m         *machine
	h         *host.Host
	top       node.CgroupPath
	both, one node.CPUs
}

func openNarrowing(t *testing.T) narrowing {
	t.Helper()
	m := open(t, false)
	if m.tree.VersionOf("cpuset") != 1 {
		t.Skip("on cgroup v2 a new cgroup has no CPUs of its own, and uses its parent's")
	}
	n := narrowing{m: m, h: residentHost(t, t.TempDir(), nil), top: m.group(t, "narrow")}
	v, err := n.h.Knob(n.cpus(n.top))
	do(t, err)
	all := v.(node.CPUs).Set
	if all.Len() < 2 {
		t.Skip("needs two CPUs")
	}
	for c := range all.All() {
		if n.both.Set.Len() < 2 {
			n.both.Set = n.both.Set.With(c)
		}
		if n.one.Set.Empty() {
			n.one.Set = unit.CPUSetOf(c)
		}
	}
	do(t, m.tree.WriteCPUs(string(n.top), n.both.Set))
	return n
}

func (n narrowing) cpus(p node.CgroupPath) node.Knob {
	return node.Knob{Cgroup: p, File: node.FileCPUs}
}

// set writes a knob through the host, as the agent does.
func (n narrowing) set(t *testing.T, p node.CgroupPath, to node.CPUs) {
	t.Helper()
	do(t, n.h.Apply(t.Context(), plan.Step{Knob: n.cpus(p), To: to}))
}

// makeChild creates a cgroup below top and copies the CPUs of its
// parent into it, as the kubelet and container runtimes do.
func (n narrowing) makeChild(t *testing.T, name string) node.CgroupPath {
	t.Helper()
	p := n.top.Join(name)
	do(t, n.m.tree.Make(string(p)))
	t.Cleanup(func() { do(t, n.m.tree.Remove(string(p))) })
	return p
}

func (n narrowing) has(t *testing.T, p node.CgroupPath, want node.CPUs) {
	t.Helper()
	if got, err := n.h.Knob(n.cpus(p)); err != nil || got != want {
		t.Errorf("%s has CPUs %v, want %v; %v", p, got, want, err)
	}
}

// TestACgroupBornNarrowGetsBackWhatItsParentHad creates a cgroup below one that
// Tenon has narrowed. A release must give the new cgroup the CPUs that its
// parent had before Tenon. If Tenon took the copied narrow set for the original
// one, the cgroup would keep it forever.
func TestACgroupBornNarrowGetsBackWhatItsParentHad(t *testing.T) {
	t.Run("by the agent", func(t *testing.T) {
		n := openNarrowing(t)
		n.set(t, n.top, n.one)
		pod := n.makeChild(t, "pod")
		box := n.makeChild(t, "pod/box")
		n.has(t, box, n.one)
		if again, err := n.h.Sweep([]string{string(n.top), string(pod), string(box)}); again || err != nil {
			t.Fatal(again, err)
		}
		s, err := n.h.Snapshot(t.Context())
		do(t, err)
		for _, p := range []node.CgroupPath{n.top, pod, box} {
			if s.Knobs.Before[n.cpus(p)] != node.Value(n.both) {
				t.Errorf("%s had %v before, want %v", p, s.Knobs.Before[n.cpus(p)], n.both)
			}
			do(t, n.h.Apply(t.Context(), plan.Step{Knob: n.cpus(p), To: n.both, Release: true}))
			n.has(t, p, n.both)
		}
	})
	t.Run("by a restore without an agent", func(t *testing.T) {
		n := openNarrowing(t)
		n.set(t, n.top, n.one)
		pod := n.makeChild(t, "pod")
		box := n.makeChild(t, "pod/box")
		planned, err := n.h.RestorePlan(t.Context())
		do(t, err)
		r, err := n.h.Restore(t.Context())
		do(t, err)
		if len(planned.Restored) != 3 || len(r.Restored) != 3 {
			t.Errorf("planned %v\nrestored %v", planned, r)
		}
		for _, p := range []node.CgroupPath{n.top, pod, box} {
			n.has(t, p, n.both)
		}
		if again, err := n.h.Restore(t.Context()); err != nil || !again.Empty() {
			t.Errorf("a second restore: %v %v", again, err)
		}
	})
	t.Run("after a write to the copy itself", func(t *testing.T) {
		n := openNarrowing(t)
		n.set(t, n.top, n.one)
		pod := n.makeChild(t, "pod")
		n.set(t, n.top, n.both)
		n.set(t, pod, node.CPUs{Set: n.both.Set.Minus(n.one.Set)})
		_, err := n.h.Restore(t.Context())
		do(t, err)
		n.has(t, pod, n.both)
	})
}

// TestACPUSetThatItsOwnerChoseStays gives a cgroup a value that Tenon later
// also writes to the parent. A release must not change the cgroup.
func TestACPUSetThatItsOwnerChoseStays(t *testing.T) {
	n := openNarrowing(t)
	pod := n.makeChild(t, "pod")
	do(t, n.m.tree.WriteCPUs(string(pod), n.one.Set))
	n.set(t, n.top, n.one)
	box := n.makeChild(t, "pod/box")
	if _, err := n.h.Sweep([]string{string(n.top), string(pod), string(box)}); err != nil {
		t.Fatal(err)
	}
	r, err := n.h.Restore(t.Context())
	do(t, err)
	n.has(t, n.top, n.both)
	n.has(t, pod, n.one)
	n.has(t, box, n.one)
	if len(r.Restored) != 1 || len(r.Left) != 0 {
		t.Errorf("restored and left: %v", r)
	}
}

// TestACPUSetGetsBackWhatItsParentStillHas takes a CPU from the parent of a
// cpuset that Tenon has narrowed. The kernel does this when a CPU goes offline,
// and gives it back to the root only. A release cannot restore this CPU, and
// must restore the others.
func TestACPUSetGetsBackWhatItsParentStillHas(t *testing.T) {
	n := openNarrowing(t)
	pod := n.makeChild(t, "pod")
	do(t, n.m.tree.WriteCPUs(string(pod), n.both.Set))
	n.set(t, pod, n.one)
	do(t, n.m.tree.WriteCPUs(string(n.top), n.one.Set))
	do(t, n.h.Apply(t.Context(), plan.Step{Knob: n.cpus(pod), To: n.both, Release: true}))
	n.has(t, pod, n.one)
	if r, err := n.h.RestorePlan(t.Context()); err != nil || !r.Empty() {
		t.Errorf("left to restore: %v, %v", r, err)
	}
}
