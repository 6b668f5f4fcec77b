package host_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/restore"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// otherFiles are writable files of cgroups that hold no setting. A write to such
// a file starts an action or resets a counter.
var otherFiles = []string{
	"cgroup.procs", "cgroup.threads", "tasks", "cgroup.kill", "cgroup.event_control",
	"cpuacct.usage", "memory.failcnt", "memory.max_usage_in_bytes", "memory.force_empty", "memory.reclaim", "memory.peak",
	"memory.swap.peak", "pids.peak", "memory.kmem.failcnt", "memory.kmem.max_usage_in_bytes", "memory.kmem.tcp.failcnt",
	"memory.kmem.tcp.max_usage_in_bytes", "memory.memsw.failcnt", "memory.memsw.max_usage_in_bytes",
	"cpu.pressure", "memory.pressure", "io.pressure", "irq.pressure", "memory.pressure_level",
}

// settings reads every setting of p and of all groups below it, in all
// hierarchies. It also reads the attributes of the given threads.
func (m *machine) settings(t *testing.T, p node.CgroupPath, tids ...int) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io"} {
		root, err := m.tree.Dir(controller, string(p))
		if err != nil {
			continue
		}
		err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || slices.Contains(otherFiles, d.Name()) {
				return err
			}
			if info, err := d.Info(); err != nil || info.Mode()&0o200 == 0 {
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil {
				found[path] = string(text)
			}
			return nil // some files can only be written
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tid := range tids {
		attr, err := task.Attr(tid)
		if err != nil {
			t.Fatal(err)
		}
		cpus, err := task.Affinity(tid)
		if err != nil {
			t.Fatal(err)
		}
		found[fmt.Sprint("thread ", tid)] = fmt.Sprintf("%+v on %v", attr, cpus)
	}
	return found
}

// makeForeign creates a tree like that of the kubelet, in which no value is a
// default. A process in it has its own attributes. The journal does not have
// the tree.
func (m *machine) makeForeign(t *testing.T) (root node.CgroupPath, pid int) {
	t.Helper()
	root = node.CgroupPath(groupName("kubepods"))
	pod := root.Join("besteffort/pod")
	t.Cleanup(func() { do(t, m.tree.RemoveAll(string(root))) })
	do(t, m.tree.Make(string(pod)), m.tree.Make(string(root.Join("burstable/pod"))))

	cpu0 := unit.CPUSetOf(0)
	steps := []struct {
		p node.CgroupPath
		v map[string]string
	}{
		{root, m.version(
			map[string]string{"cpu.shares": "2050"},
			map[string]string{"cpu.weight": "79"})},
		{root.Join("besteffort"), m.version(
			map[string]string{"cpu.shares": "333", "cpu.cfs_quota_us": "87654", "cpu.cfs_period_us": "70000", "cpu.cfs_burst_us": "12345", "pids.max": "777"},
			map[string]string{"cpu.weight": "33", "cpu.max": "87654 70000", "cpu.max.burst": "12345", "pids.max": "777"})},
		{pod, m.version(
			map[string]string{"cpu.shares": "2", "cpuset.cpus": cpu0.String(), "memory.limit_in_bytes": "123457536"},
			map[string]string{"cpu.weight": "1", "cpuset.cpus": cpu0.String(), "memory.max": "123457536", "memory.low": "4096"})},
	}
	for _, s := range steps {
		for _, file := range []string{
			"cpu.shares", "cpu.weight", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.max", "cpu.cfs_burst_us", "cpu.max.burst",
			"cpuset.cpus", "memory.limit_in_bytes", "memory.max", "memory.low", "pids.max",
		} {
			if text, given := s.v[file]; given {
				do(t, m.WriteFile(s.p, file, text))
			}
		}
	}
	if disk, err := aDisk(); err == nil && m.tree.Has("io") {
		limit := m.version(map[string]string{"blkio.throttle.read_bps_device": disk.String() + " 987654"}, map[string]string{"io.max": disk.String() + " rbps=987654"})
		for file, text := range limit {
			do(t, m.WriteFile(root.Join("besteffort"), file, text))
		}
	}
	pid, err := m.Start(pod, 0)
	do(t, err)
	t.Cleanup(func() { do(t, m.Stop(pid)) })
	do(t, task.SetAttr(pid, task.SchedAttr{Policy: task.Batch, Nice: 7}), task.SetAffinity(pid, cpu0))
	return root, pid
}

func (m *machine) version(v1, v2 map[string]string) map[string]string {
	if m.tree.Version() == 1 {
		return v1
	}
	return v2
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// alive reports whether a process runs. It returns false for a zombie.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestRestoreAfterKill9LeavesNoTrace(t *testing.T) {
	m := open(t, false)
	foreign, pid := m.makeForeign(t)
	before := m.settings(t, foreign, pid)
	const rounds = 12
	for round := range rounds {
		dir, group := t.TempDir(), node.CgroupPath(groupName("lab"))
		var env []string
		if round == 0 {
			env = []string{"VICTIM_STUBBORN=1"}
		}
		v, err := startVictim(dir, foreign, group, env...)
		do(t, err)
		// The process may be killed at any point of its work, even between the
		// files of one knob.
		time.Sleep(time.Duration(3*round)*time.Millisecond + time.Duration(round*37)*time.Microsecond)
		do(t, v.Process.Kill())
		_ = v.Wait() // the process was killed as intended

		var sleepers []int
		for _, g := range []node.CgroupPath{group.Join("ls"), group.Join("be/work")} {
			pids, err := m.tree.Procs(string(g))
			do(t, err)
			sleepers = append(sleepers, pids...)
		}
		if len(sleepers) != 2 {
			t.Fatalf("the lab left the processes %v, want 2", sleepers)
		}
		h, err := host.Open(host.Options{JournalDir: dir})
		do(t, err)
		planned, err := h.RestorePlan(t.Context())
		do(t, err)
		if round == 0 && cmp.Equal(before, m.settings(t, foreign, pid)) {
			t.Error("the victim changed nothing: the test shows nothing")
		}
		report, err := h.Restore(t.Context())
		do(t, err)
		if d := cmp.Diff(before, m.settings(t, foreign, pid)); d != "" {
			t.Errorf("after %v\n%s", report, d)
		}
		if len(report.Left) > 0 {
			t.Errorf("Tenon's own values were taken for another component's: %v", report)
		}
		if !slices.Equal(planned.Removed, report.Removed) || !slices.Equal(planned.Restored, report.Restored) {
			t.Errorf("planned\n%v\ndone\n%v", planned, report)
		}
		for _, s := range sleepers {
			if alive(s) || !slices.Contains(report.Killed, s) {
				t.Errorf("process %d of the lab outlives the restore: %v", s, report)
			}
		}
		if m.tree.Exists(string(group)) {
			t.Errorf("cgroup %s is still there: %v", group, report)
		}
		if !alive(pid) {
			t.Fatal("a foreign process was ended")
		}
		if again, err := h.Restore(t.Context()); err != nil || !again.Empty() {
			t.Errorf("a second restore does %v, %v", again, err)
		}
		do(t, h.Close())
	}
}

func TestRestoreLeavesWhatOthersChanged(t *testing.T) {
	m := open(t, false)
	foreign, _ := m.makeForeign(t)
	be := foreign.Join("besteffort")
	k := node.Knob{Cgroup: be, File: node.FilePIDs}
	weight := node.Knob{Cgroup: be, File: node.FileCPUWeight}
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, To: node.Maximum{Max: 600}}),
		m.Apply(t.Context(), plan.Step{Knob: weight, To: node.CPUWeight{Weight: unit.WeightOf(50)}}))
	do(t, m.WriteFile(be, "pids.max", "650")) // as if another component had written it
	r, err := m.Restore(t.Context())
	do(t, err)
	want := []restore.Change{{Knob: k, From: "650", To: "777"}}
	if d := cmp.Diff(want, r.Left); d != "" {
		t.Error(d)
	}
	if len(r.Restored) != 1 || r.Restored[0].Knob != weight {
		t.Errorf("restored %v, want the weight", r.Restored)
	}
	if text, err := m.ReadFile(be, "pids.max"); err != nil || strings.TrimSpace(text) != "650" {
		t.Errorf("pids.max is %q, want the other's 650", text)
	}
}

// TestRestoreLeavesAFileThatAnotherChanged has another component that writes one
// file of a knob after Tenon. The restore must leave this file, restore the
// others, and report both.
func TestRestoreLeavesAFileThatAnotherChanged(t *testing.T) {
	m := open(t, false)
	foreign, _ := m.makeForeign(t)
	be := foreign.Join("besteffort")
	k := node.Knob{Cgroup: be, File: node.FileCPUMax}
	before, err := m.tree.ReadCPUMax(string(be))
	do(t, err)
	if before.Burst == 0 {
		t.Skip("the kernel has no burst, which is the other file of the knob")
	}
	do(t, m.Apply(t.Context(), plan.Step{Knob: k, To: node.Limit(300)}))
	for file, text := range m.version(map[string]string{"cpu.cfs_burst_us": "5000"}, map[string]string{"cpu.max.burst": "5000"}) {
		do(t, m.WriteFile(be, file, text)) // as if another component had written it
	}
	planned, err := m.RestorePlan(t.Context())
	do(t, err)
	r, err := m.Restore(t.Context())
	do(t, err)
	want := restore.Report{
		Restored: []restore.Change{{Knob: k, From: "30000 100000 burst 5000", To: "87654 70000 burst 5000"}},
		Left:     []restore.Change{{Knob: k, From: "87654 70000 burst 5000", To: "87654 70000 burst 12345"}},
	}
	for _, got := range []restore.Report{planned, r} {
		got.Elsewhere = nil // another Tenon may run on this machine
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	before.Burst = 5 * time.Millisecond
	if now, err := m.tree.ReadCPUMax(string(be)); err != nil || now != before {
		t.Errorf("the cgroup has %+v, want %+v; %v", now, before, err)
	}
	if again, err := m.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore does %v, %v", again, err)
	}
}

func TestRestoreNeverEndsAUsersCommand(t *testing.T) {
	m := open(t, false)
	be := node.CgroupPath(groupName("be"))
	user := be.Join("user")
	do(t, m.MakeGroup(user))
	pid, err := m.Start(user, 0)
	do(t, err)
	t.Cleanup(func() { _ = m.Stop(pid); do(t, m.tree.RemoveAll(string(be))) })
	do(t, m.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: be, File: node.FilePIDs}, To: node.Maximum{Max: 60}}))

	r, err := m.Restore(t.Context())
	do(t, err)
	want := []restore.Busy{{Cgroup: user, PIDs: []int{pid}}, {Cgroup: be}}
	if d := cmp.Diff(want, r.Busy); d != "" {
		t.Error(d)
	}
	if !alive(pid) || len(r.Killed) > 0 {
		t.Errorf("the user's command was ended: %v", r)
	}
	if text, _ := m.ReadFile(be, "pids.max"); strings.TrimSpace(text) != "max" {
		t.Errorf("pids.max is %q, want it restored", text)
	}
	do(t, m.Stop(pid))
	r, err = m.Restore(t.Context())
	do(t, err)
	if d := cmp.Diff([]node.CgroupPath{user, be}, r.Removed); d != "" {
		t.Error(d)
	}
}

func TestRestoreOwnLeavesOtherTenonsAlone(t *testing.T) {
	m := open(t, false)
	foreign, _ := m.makeForeign(t)
	group := node.CgroupPath(groupName("lab"))
	dir := t.TempDir()
	v, err := startVictim(dir, foreign, group)
	do(t, err)
	t.Cleanup(func() { _ = v.Process.Kill(); _ = v.Wait() })
	do(t, v.Process.Signal(syscall.SIGSTOP)) // the process is stopped, but alive
	h, err := host.Open(host.Options{JournalDir: dir, Disposable: true})
	do(t, err)
	own := node.CgroupPath(groupName("own"))
	do(t, h.MakeGroup(own.Join("a")))
	for name, restore := range map[string]func() (restore.Report, error){
		"own":       func() (restore.Report, error) { return h.RestoreOwn(t.Context()) },
		"dead labs": func() (restore.Report, error) { return h.RestoreDeadLabs(t.Context()) },
	} {
		r, err := restore()
		do(t, err)
		for _, p := range r.Removed {
			if !own.Contains(p) {
				t.Errorf("%s: %s of another Tenon was removed", name, p)
			}
		}
		if len(r.Restored)+len(r.Killed)+len(r.Left) > 0 || !m.tree.Exists(string(group)) {
			t.Errorf("%s: another Tenon lost %v", name, r)
		}
	}
	if m.tree.Exists(string(own)) {
		t.Error("own groups are still there")
	}
	do(t, v.Process.Kill())
	_ = v.Wait()
	r, err := h.RestoreDeadLabs(t.Context())
	do(t, err)
	if len(r.Killed) != 2 || m.tree.Exists(string(group)) {
		t.Errorf("what the dead lab left is still there: %v", r)
	}
}

func TestRestoreDropsGroupsThatVanished(t *testing.T) {
	m := open(t, false)
	p := node.CgroupPath(groupName("gone"))
	do(t, m.MakeGroup(p), m.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: p, File: node.FilePIDs}, To: node.Maximum{Max: 5}}))
	do(t, m.tree.Remove(string(p)))
	r, err := m.Restore(t.Context())
	do(t, err)
	if d := cmp.Diff([]node.CgroupPath{p}, r.Gone); d != "" {
		t.Error(d)
	}
	if again, err := m.Restore(t.Context()); err != nil || !again.Empty() {
		t.Errorf("a second restore does %v, %v", again, err)
	}
}

func TestAGroupMadeAgainIsNotRestored(t *testing.T) {
	m := open(t, false)
	p := groupName("again")
	do(t, m.tree.Make(p))
	t.Cleanup(func() { do(t, m.tree.Remove(p)) })
	do(t, m.Apply(t.Context(), plan.Step{Knob: node.Knob{Cgroup: node.CgroupPath(p), File: node.FilePIDs}, To: node.Maximum{Max: 5}}))
	do(t, m.tree.Remove(p), m.tree.Make(p), m.WriteFile(node.CgroupPath(p), "pids.max", "5"))
	r, err := m.Restore(t.Context())
	do(t, err)
	if text, _ := m.ReadFile(node.CgroupPath(p), "pids.max"); strings.TrimSpace(text) != "5" {
		t.Errorf("pids.max is %q: the new group's own value was overwritten: %v", text, r)
	}
}

func TestRestoreFinishesAKnobThatWasHalfWritten(t *testing.T) {
	m := open(t, false)
	foreign, _ := m.makeForeign(t)
	be := foreign.Join("besteffort")
	before := m.settings(t, foreign)
	inode, err := m.tree.Inode(string(be))
	do(t, err)
	boot, err := proc.Default().BootID()
	do(t, err)
	dead := journal.Session{PID: 1, Start: -1} // was killed
	odd := node.CPUMax{Quota: 87654 * time.Microsecond, Period: 70 * time.Millisecond, Burst: 12345 * time.Microsecond}
	for name, c := range map[string]struct {
		file     node.File
		from, to node.Value
		written  map[string]string
	}{
		"the burst was lowered and the quota was not": {
			node.FileCPUMax, odd, node.Limit(200),
			m.version(map[string]string{"cpu.cfs_burst_us": "0"}, map[string]string{"cpu.max.burst": "0"}),
		},
		"nothing was written yet": {node.FilePIDs, node.Maximum{Max: 777}, node.Maximum{Max: 5}, nil},
		"all was written and not confirmed": {
			node.FilePIDs, node.Maximum{Max: 777}, node.Maximum{Max: 5}, map[string]string{"pids.max": "5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j, err := journal.Open(dir, boot, dead)
			do(t, err, j.Intend(node.Knob{Cgroup: be, File: c.file}, inode, c.from, c.to), j.Close())
			for file, text := range c.written {
				do(t, m.WriteFile(be, file, text))
			}
			h, err := host.Open(host.Options{JournalDir: dir})
			do(t, err)
			r, err := h.Restore(t.Context())
			do(t, err, h.Close())
			if d := cmp.Diff(before, m.settings(t, foreign)); d != "" {
				t.Errorf("after %v\n%s", r, d)
			}
		})
	}
}
