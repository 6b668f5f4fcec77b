package host_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/model/node"
)

// tooDeep makes cgroups below p, each relative to the former, until their path is
// longer than the kernel takes (PATH_MAX). Any user with a cgroup of their own
// can do that.
func (m *machine) tooDeep(t *testing.T, p node.CgroupPath) {
	t.Helper()
	dir, err := m.tree.Dir("cpu", string(p))
	do(t, err)
	name := strings.Repeat("d", 240)
	var open []int
	t.Cleanup(func() {
		for i, fd := range slices.Backward(open) {
			if i > 0 {
				if err := unix.Unlinkat(open[i-1], name, unix.AT_REMOVEDIR); err != nil {
					t.Error(err)
				}
			}
			_ = unix.Close(fd)
		}
	})
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	do(t, err)
	for range 20 {
		open = append(open, fd)
		do(t, unix.Mkdirat(fd, name, 0o755))
		fd, err = unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		do(t, err)
	}
	open = append(open, fd)
}

// TestACgroupThatIsTooDeepDoesNotStopARestore makes a cgroup that cannot be read,
// beside one that Tenon limits. A new agent takes the limit over, and a restore
// puts it back. Both say what they could not read.
func TestACgroupThatIsTooDeepDoesNotStopARestore(t *testing.T) {
	m := open(t, false)
	dir, be, far := t.TempDir(), m.group(t, "be"), m.group(t, "far")
	m.tooDeep(t, far)
	quota := node.Knob{Cgroup: be, File: node.FileCPUMax}
	h := residentHost(t, dir, nil)
	do(t, h.Apply(t.Context(), plan.Step{Knob: quota, To: node.CPUMax{Quota: 1000_000, Period: 100_000_000}}))
	do(t, h.Close())

	next := residentHost(t, dir, nil)
	if _, err := next.Adopt(); !partial.Is(err) {
		t.Fatalf("a new agent takes over: %v", err)
	}
	paths, err := m.tree.Paths()
	if !partial.Is(err) {
		t.Fatal(err)
	}
	if again, err := next.Sweep(paths); again || err != nil {
		t.Errorf("%v, %v", again, err)
	}
	s, err := next.Snapshot(t.Context())
	do(t, err)
	if _, known := s.Knobs.Before[quota]; !known {
		t.Error("the new agent does not know the value from before")
	}
	named := func(what string, text string) {
		t.Helper()
		if strings.Count(text, "not read  cgroup "+string(far)+"/d") != 1 || !strings.Contains(text, "file name too long") {
			t.Errorf("%s does not name the cgroup once:\n%s", what, text)
		}
	}
	planned, err := next.RestorePlan(t.Context())
	if named("the plan", planned.String()); !partial.Is(err) || len(planned.Restored) != 1 {
		t.Errorf("planned %v, %v", planned, err)
	}
	got, err := next.Restore(t.Context())
	if named("the report", got.String()); !partial.Is(err) || len(got.Restored) != 1 || len(got.Left)+len(got.Gone) > 0 {
		t.Errorf("restored %v, %v", got, err)
	}
	v, err := m.tree.ReadCPUMax(string(be))
	if err != nil || node.CPUMax(v).Quota != node.NoQuota {
		t.Errorf("%v, %v: the quota stays", v, err)
	}
	if own, err := next.RestoreDeadLabs(t.Context()); err != nil {
		t.Errorf("a lab cannot start: %v, %v", own, err)
	}
}

// TestBEWithACgroupThatIsTooDeepIsEnded makes the cgroup inside best-effort work.
// The work must not escape its end by that.
func TestBEWithACgroupThatIsTooDeepIsEnded(t *testing.T) {
	m := open(t, false)
	be, pid := m.startInGroup(t, "be")
	m.tooDeep(t, be)
	h := residentHost(t, t.TempDir(), nil)
	h.ManageOnly([]node.Workload{job(be)})
	if err := h.Apply(t.Context(), plan.Step{Knob: runOf(be), To: node.Ended}); err != nil && !partial.Is(err) {
		t.Error(err)
	}
	for end := time.Now().Add(20 * time.Second); m.Alive(pid) && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if m.Alive(pid) {
		t.Errorf("process %d lives", pid)
	}
}
