// Package e2e holds tests of the whole product on the running kernel.
package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/kerneltest"
)

// TestRestoreAfterKillLeavesNothing kills all Tenon processes with SIGKILL at
// full load: the lab, tenon run, and an agent that manages a foreign tree with
// unusual values. Then it runs tenon restore. Every knob and every task
// attribute of the foreign tree must have its earlier value, no lab process may
// be left, and the user's command must still run unchanged.
func TestRestoreAfterKillLeavesNothing(t *testing.T) {
	inTurn(t)
	tree := needRoot(t)
	needPrograms(t, "nginx", "ffmpeg")
	tenon := filepath.Join(programs(t), "tenon")
	state := t.TempDir()
	f := plantForeignTree(t, tree)
	before := f.dump(t)
	topBefore := topLevel(t, tree)

	// This agent changes the foreign tree and is then killed.
	h, err := host.Open(host.Options{JournalDir: state, Try: true})
	if err != nil {
		t.Fatal(err)
	}
	h.Manage(node.Workload{ID: "web", Class: node.LS, Cgroup: f.path("kubepods/burstable/pod-web"), ContentionRoot: f.path("kubepods/burstable")})
	h.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: f.path("kubepods/besteffort/pod-job"), ContentionRoot: f.path("kubepods/besteffort"),
		CPULimit: node.Some(unit.MilliCPU(700)), MemoryLimit: node.Some(unit.Bytes(300 << 20))})
	a := loop.Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}, Suppress: suppress.Config{Enable: true, ThresholdPercent: 40}}}
	for range 3 {
		if turn, err := a.Step(t.Context()); err != nil {
			t.Fatalf("%v\n%v", err, turn)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if cmp.Diff(before, f.dump(t)) == "" {
		t.Fatal("the agent changed nothing, so the test would check nothing")
	}

	// Now a command of the user runs, and the lab makes a run.
	name := fmt.Sprintf("kill-%d", os.Getpid())
	run := startUntil(t, syscall.SIGTERM, tenon, "--state-dir", state, "run", "--qos", "BE", "--name", name, "--cpus", "0.5", "--", "sleep", "600")
	user := waitForProc(t, tree, "tenon-be/"+name)
	t.Cleanup(func() { _ = syscall.Kill(user, syscall.SIGKILL) })
	userBefore := attributes(t, user)
	out := filepath.Join(t.TempDir(), "lab")
	lab := startUntil(t, syscall.SIGTERM, tenon, "--state-dir", state, "lab", "colocation", "--modes", "tenon-65", "--blocks", "40", "--duration", "5s", "--out", out)
	waitForProc(t, tree, "tenon-lab/kubepods/besteffort/pod-ffmpeg/ffmpeg")
	waitForProc(t, tree, "tenon-lab/kubepods/burstable/pod-nginx/nginx")
	time.Sleep(2 * time.Second) // wait for the measured part, in which all processes run
	family := descendants(t, lab.Process.Pid)
	if len(family) < 3 {
		t.Fatalf("the lab has only %d processes", len(family))
	}

	for _, c := range []*exec.Cmd{run, lab} {
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
	}
	// The group of the user's command stays, so the restore is not complete.
	text, err := exec.Command(tenon, "--state-dir", state, "restore").CombinedOutput()
	t.Logf("tenon restore said:\n%s", text)
	if err == nil || !strings.Contains(string(text), "in use: run tenon restore again") {
		t.Fatalf("tenon restore beside a command of the user: %v, want a failure that names its cgroup", err)
	}

	if diff := cmp.Diff(before, f.dump(t)); diff != "" {
		t.Errorf("knobs and task attributes of the foreign tree (-before +after):\n%s", diff)
	}
	for pid, comm := range family {
		if now, err := proc.Default().PIDStat(pid); err == nil && now.Comm == comm && !zombie(pid) {
			t.Errorf("lab process %d %s is left", pid, comm)
		}
	}
	if diff := cmp.Diff(userBefore, attributes(t, user)); diff != "" {
		t.Errorf("the user's command changed:\n%s", diff)
	}
	if tree.Exists("tenon-lab") {
		t.Error("cgroup tenon-lab is left")
	}

	// The command ends, so that a second restore removes its cgroup.
	_ = syscall.Kill(user, syscall.SIGKILL)
	deadline := time.Now().Add(10 * time.Second)
	for {
		text, err := exec.Command(tenon, "--state-dir", state, "restore").CombinedOutput()
		if err != nil {
			t.Fatalf("second tenon restore: %v\n%s", err, text)
		}
		if !tree.Exists("tenon-be/" + name) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the group of the ended command is left:\n%s", text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if diff := cmp.Diff(topBefore, topLevel(t, tree)); diff != "" {
		t.Errorf("top-level cgroups (-before +after):\n%s", diff)
	}
}

// failIfStrict fails a test that would otherwise be skipped, if the test must
// run on this machine.
func failIfStrict(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatalf("strict: this test must run here: %s", why)
	}
	t.Skip(why)
}

func needRoot(t *testing.T) *cgroup.Tree {
	t.Helper()
	if testing.Short() {
		t.Skip("short: this test takes half a minute")
	}
	if os.Geteuid() != 0 {
		failIfStrict(t, "it makes cgroups: it needs root")
	}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		failIfStrict(t, err.Error())
	}
	return tree
}

func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			if _, err := os.Stat("/usr/sbin/" + n); err != nil {
				failIfStrict(t, n+" is not installed")
			}
		}
	}
}

// start runs a command in the background. It ends with the test, also if go test kills
// this process, as it does after its -timeout.
func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	return startUntil(t, syscall.SIGKILL, name, args...)
}

// startUntil is start for a program that gets this signal if go test kills this process,
// because it has started processes itself.
func startUntil(t *testing.T, death syscall.Signal, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	// The output goes to a file. A pipe would be kept open by a process that
	// survives the command.
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	t.Cleanup(func() { // after the end of the process
		if text, err := os.ReadFile(out.Name()); t.Failed() && err == nil && len(text) > 0 {
			t.Logf("%s %v said:\n%s", name, args, text)
		}
	})
	kerneltest.LaunchUntil(t, cmd, death)
	return cmd
}

// A foreignTree is a cgroup tree that another manager made.
type foreignTree struct {
	tree  *cgroup.Tree
	root  string
	tasks []int
}

func (f foreignTree) path(p string) node.CgroupPath { return node.CgroupPath(f.root + "/" + p) }

// plantForeignTree makes a tree like kubepods with unusual values: shares 333,
// a narrow cpuset, and a quota with an odd period and a burst. The tasks in it
// have different policies, nice values and affinities.
func plantForeignTree(t *testing.T, tree *cgroup.Tree) foreignTree {
	t.Helper()
	f := foreignTree{tree: tree, root: fmt.Sprintf("tenon-test-foreign-%d", os.Getpid())}
	pods := []string{"kubepods/burstable/pod-web", "kubepods/besteffort/pod-job"}
	t.Cleanup(func() {
		for _, pid := range f.tasks {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := tree.RemoveAll(f.root); err != nil {
			t.Errorf("remove the foreign tree: %v", err)
		}
	})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		check(tree.Make(string(f.path(p))))
	}
	be, web := string(f.path("kubepods/besteffort")), string(f.path("kubepods/burstable"))
	check(tree.WriteCPUWeight(be, cgroup.CPUWeight{Weight: unit.WeightOfShares(333)}))
	check(tree.WriteCPUWeight(web, cgroup.CPUWeight{Weight: unit.WeightOfShares(7777)}))
	check(tree.WriteCPUMax(be, cgroup.CPUMax{Quota: 123457 * time.Microsecond, Period: 77 * time.Millisecond, Burst: 11 * time.Millisecond}))
	check(tree.WriteCPUMax(be+"/pod-job", cgroup.CPUMax{Quota: 123456 * time.Microsecond, Period: 77 * time.Millisecond}))
	check(tree.WriteMemory(be+"/pod-job", cgroup.Memory{High: unit.MaxBytes, Max: 333 << 20}))
	check(tree.WriteCPUs(be+"/pod-job", unit.CPUSetOf(0)))
	for i, pod := range []string{web + "/pod-web", web + "/pod-web", be + "/pod-job", be + "/pod-job"} {
		cmd := start(t, "sleep", "600")
		pid := cmd.Process.Pid
		f.tasks = append(f.tasks, pid)
		check(tree.Attach(pod, pid))
		switch i {
		case 0:
			check(task.SetAffinity(pid, unit.CPUSetOf(0)))
		case 1:
			check(exec.Command("chrt", "--batch", "-p", "0", strconv.Itoa(pid)).Run())
			check(exec.Command("renice", "-n", "7", "-p", strconv.Itoa(pid)).Run())
		case 2:
			check(exec.Command("chrt", "--idle", "-p", "0", strconv.Itoa(pid)).Run())
		case 3:
			check(exec.Command("renice", "-n", "-5", "-p", strconv.Itoa(pid)).Run())
		}
	}
	return f
}

// dump reads every writable file of the tree in every hierarchy, and the
// attributes of the tasks in the tree.
func (f foreignTree) dump(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pid := range f.tasks {
		for k, v := range attributes(t, pid) {
			all[fmt.Sprintf("task %d %s", pid, k)] = v
		}
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "freezer"} {
		if (controller == "io" || controller == "freezer") && !f.tree.Has(controller) {
			continue
		}
		dir, err := f.tree.Dir(controller, f.root)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil || info.Mode()&0o222 == 0 || isVolatile(d.Name()) {
				return err
			}
			if text, err := os.ReadFile(path); err == nil {
				all[path] = string(text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// isVolatile reports whether a file shows use and no setting, although it is
// writable.
func isVolatile(name string) bool {
	for _, part := range []string{"usage", "failcnt", "pressure", "peak", "cgroup.procs", "cgroup.threads", "tasks", "event_control", "force_empty", "watermark", "reclaim"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// attributes returns the attributes of a task: policy, nice value, affinity,
// cgroups.
func attributes(t *testing.T, pid int) map[string]string {
	t.Helper()
	a := map[string]string{}
	attr, err := task.Attr(pid)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	cpus, err := task.Affinity(pid)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	a["sched"], a["affinity"], a["cgroup"] = fmt.Sprintf("%+v", attr), cpus.String(), string(groups)
	return a
}

func topLevel(t *testing.T, tree *cgroup.Tree) []string {
	t.Helper()
	names, err := tree.Children("")
	if err != nil {
		t.Fatal(err)
	}
	// Ignore the foreign tree of another test run.
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "tenon-test-") })
	slices.Sort(names)
	return names
}

func waitForProc(t *testing.T, tree *cgroup.Tree, path string) int {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 120*time.Second)
	defer stop()
	for {
		if pids, err := tree.Procs(path); err == nil && len(pids) > 0 {
			return pids[0]
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no process in cgroup %s after two minutes", path)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// descendants returns the names of pid and of all its descendants, by PID.
func descendants(t *testing.T, pid int) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]proc.PIDStat{}
	for _, e := range entries {
		if p, err := strconv.Atoi(e.Name()); err == nil {
			if st, err := proc.Default().PIDStat(p); err == nil {
				children[st.PPID] = append(children[st.PPID], st)
			}
		}
	}
	found := map[int]string{pid: "tenon"}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			found[c.PID] = c.Comm
			queue = append(queue, c.PID)
		}
	}
	return found
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z")
}
