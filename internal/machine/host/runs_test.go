package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/model/node"
)

// Signal sends a signal to a task of the machine.
func (m *machine) Signal(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }

// Alive reports whether a task still runs. A zombie does not run.
func (m *machine) Alive(pid int) bool {
	s, err := proc.Default().PIDStat(pid)
	return err == nil && s.State != 'Z' && s.State != 'X'
}

func runOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileRun} }

// startInGroup creates a group with a task in it. When the test ends, the task
// is killed.
func (m *machine) startInGroup(t *testing.T, name string) (node.CgroupPath, int) {
	t.Helper()
	p := m.group(t, name)
	pid, err := m.Start(p, 0)
	do(t, err)
	t.Cleanup(func() {
		_ = m.tree.Freeze(string(p), false)
		_ = m.Stop(pid)
	})
	return p, pid
}

// TestAFrozenWorkloadGoesOnAfterRestore kills an agent that has frozen work. A
// restore must thaw the work.
func TestAFrozenWorkloadGoesOnAfterRestore(t *testing.T) {
	m := open(t, false)
	if !m.Capabilities().Has(node.FeatureCgroupFreezer) {
		skip(t, "no freezer: %s", m.Capabilities()[node.FeatureCgroupFreezer].Why)
	}
	p, _ := m.startInGroup(t, "frozen")
	dir := t.TempDir()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "TENON_TEST_ROLE=freezer", "VICTIM_JOURNAL="+dir, "VICTIM_GROUP="+string(p))
	out, err := c.StdoutPipe()
	do(t, err)
	do(t, c.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = c.Process.Kill()
	_ = c.Wait()
	if line != "frozen\n" {
		t.Fatalf("the freezer said %q", line)
	}
	if frozen, err := m.tree.IsFrozen(string(p)); !frozen || err != nil {
		t.Fatalf("frozen: %v, %v", frozen, err)
	}
	h, err := host.Open(host.Options{JournalDir: dir})
	do(t, err)
	t.Cleanup(func() { _ = h.Close() })
	plan, err := h.RestorePlan(t.Context())
	if err != nil || !strings.Contains(plan.String(), "run  frozen -> running") {
		t.Errorf("%v, %v", plan, err)
	}
	if _, err := h.Restore(t.Context()); err != nil {
		t.Error(err)
	}
	if frozen, err := m.tree.IsFrozen(string(p)); frozen || err != nil {
		t.Errorf("frozen: %v, %v", frozen, err)
	}
	if again, err := h.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore did %v, %v", again, err)
	}
}

// freezer is an agent that freezes a group and is then killed.
func freezer() {
	h, err := host.Open(host.Options{JournalDir: os.Getenv("VICTIM_JOURNAL")})
	if err == nil {
		err = h.Apply(context.Background(), plan.Step{Knob: runOf(node.CgroupPath(os.Getenv("VICTIM_GROUP"))), To: node.Frozen})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("frozen")
	time.Sleep(time.Minute)
}

// TestTenonNeverStopsItself checks that Tenon refuses to freeze or end the
// root, and any cgroup that contains the watchdog or a Tenon process.
func TestTenonNeverStopsItself(t *testing.T) {
	m := open(t, false)
	p, pid := m.startInGroup(t, "own")
	h, err := host.Open(host.Options{JournalDir: t.TempDir(), Spare: func() []int { return []int{pid} }})
	do(t, err)
	t.Cleanup(func() { _ = h.Close() })
	for _, v := range []node.Run{node.Frozen, node.AskedToEnd, node.Ended} {
		for _, group := range []node.CgroupPath{p, ""} {
			if err := h.Apply(t.Context(), plan.Step{Knob: runOf(group), To: v}); !errors.Is(err, isolation.ErrOwn) {
				t.Errorf("%q of %q: %v", v, group, err)
			}
		}
	}
	if !m.Alive(pid) {
		t.Error("it is dead")
	}
}

// TestTheEndOfAWorkloadIsSeenAtOnce ends a workload. The next snapshot must
// show that, although other values from the cache may be some seconds old.
func TestTheEndOfAWorkloadIsSeenAtOnce(t *testing.T) {
	m := open(t, false)
	h := residentHost(t, t.TempDir(), nil)
	h.Capabilities() // the probes end threads, and a task ends with the thread that started it
	p, pid := m.startInGroup(t, "ends")
	h.ManageOnly([]node.Workload{job(p)})
	see := func() node.Value {
		s, err := h.Snapshot(t.Context())
		do(t, err)
		if before, kept := s.Knobs.Before[runOf(p)]; kept {
			t.Fatalf("remembered as %v", before)
		}
		return s.Knobs.Now[runOf(p)]
	}
	if v := see(); v != node.Running {
		t.Fatal(v)
	}
	h.Show([]node.File{node.FileCPUMax})
	if v := see(); v != nil {
		t.Errorf("no policy uses it, and it shows %v", v)
	}
	h.Show([]node.File{node.FileCPUMax, node.FileRun})
	do(t, h.Apply(t.Context(), plan.Step{Knob: runOf(p), From: see(), To: node.AskedToEnd}))
	for end := time.Now().Add(3 * time.Second); see() != node.Ended; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it shows %v; alive: %v", see(), m.Alive(pid))
		}
	}
}

// TestAFailedKillIsReported kills a cgroup below a frozen one. On cgroup v1,
// its processes then do not die, like processes in uninterruptible sleep. The
// second attempt must return an error.
func TestAFailedKillIsReported(t *testing.T) {
	m := open(t, false)
	if m.tree.VersionOf("freezer") != 1 {
		t.Skip("on cgroup v2 the frozen die")
	}
	h := residentHost(t, t.TempDir(), nil)
	top := m.group(t, "above")
	p := top.Join("job")
	do(t, m.tree.Make(string(p)))
	pid, err := m.Start(p, 0)
	do(t, err)
	t.Cleanup(func() {
		_ = m.tree.Freeze(string(top), false)
		_ = m.Stop(pid)
		_ = m.tree.Remove(string(p))
	})
	do(t, m.tree.Freeze(string(top), true))
	end := plan.Step{Knob: runOf(p), To: node.Ended}
	do(t, h.Apply(t.Context(), end))
	if err := h.Apply(t.Context(), end); err == nil || !strings.Contains(err.Error(), "SIGKILL") {
		t.Errorf("the second time: %v", err)
	}
	do(t, m.tree.Freeze(string(top), false))
	for end := time.Now().Add(3 * time.Second); m.Alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it goes on and did not die")
		}
	}
}

// TestAGroupThatTheKubeletEndsIsThawed checks that Tenon thaws a cgroup that
// the kubelet ends, because a process must run in order to end.
func TestAGroupThatTheKubeletEndsIsThawed(t *testing.T) {
	m := open(t, false)
	if !m.Capabilities().Has(node.FeatureCgroupFreezer) {
		skip(t, "no freezer: %s", m.Capabilities()[node.FeatureCgroupFreezer].Why)
	}
	p, pid := m.startInGroup(t, "evicted")
	do(t, m.Apply(context.Background(), plan.Step{Knob: runOf(p), From: node.Running, To: node.Frozen}))
	do(t, m.Prepare(runOf(p)))
	if v, err := m.Knob(runOf(p)); err != nil || v != node.Running || !m.Alive(pid) {
		t.Errorf("%v, %v, lives %v", v, err, m.Alive(pid))
	}
}

// TestWhatTenonFrozeGoesOnWhenItIsThawed checks that Thaw thaws everything that
// Tenon froze, and nothing else.
func TestWhatTenonFrozeGoesOnWhenItIsThawed(t *testing.T) {
	m := open(t, false)
	if !m.Capabilities().Has(node.FeatureCgroupFreezer) {
		skip(t, "no freezer: %s", m.Capabilities()[node.FeatureCgroupFreezer].Why)
	}
	p, pid := m.startInGroup(t, "frozen")
	do(t, m.Apply(context.Background(), plan.Step{Knob: runOf(p), From: node.Running, To: node.Frozen}))
	other, _ := m.startInGroup(t, "others")
	do(t, m.tree.Freeze(string(other), true))
	defer func() { do(t, m.tree.Freeze(string(other), false)) }()
	do(t, m.Thaw())
	for group, want := range map[node.CgroupPath]node.Run{p: node.Running, other: node.Frozen} {
		if v, err := m.Knob(runOf(group)); err != nil || v != want {
			t.Errorf("%s: %v, %v; want %v", group, v, err, want)
		}
	}
	if !m.Alive(pid) {
		t.Error("it is dead")
	}
}
