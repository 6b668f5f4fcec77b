package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// carefulMachine is a machine on which TENON_TEST_NO_BPF=1 can forbid attaching
// programs, and so loading the scheduler. The kernel rewrites its own code when
// it attaches a program, which an emulator can do only if it has a single
// thread.
type carefulMachine struct{ *machine }

func (c carefulMachine) Snapshot(ctx context.Context) (node.Snapshot, error) {
	s, err := c.machine.Snapshot(ctx)
	s.Capabilities = carefully(s.Capabilities)
	return s, err
}

func carefully(can node.Capabilities) node.Capabilities {
	can = maps.Clone(can)
	if os.Getenv("TENON_TEST_NO_BPF") == "1" {
		can[node.FeatureSchedExt] = node.Answer{Verdict: node.No, Why: "TENON_TEST_NO_BPF is set"}
	}
	return can
}

// isolator is an agent that isolates one cgroup by all mechanisms that this
// kernel has. It uses mechanisms that exclude each other one after the other.
// Then it reports that it is ready, and waits until it is killed.
func isolator() {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "isolator:", err)
			os.Exit(1)
		}
	}
	h, err := host.Open(host.Options{JournalDir: os.Getenv("ISOLATOR_JOURNAL"), Resident: true})
	die(err)
	be := node.CgroupPath(os.Getenv("ISOLATOR_GROUP"))
	h.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: be, ContentionRoot: be})
	h.Show([]node.File{node.FileScheduler, node.FilePolicy, node.FileCookie})
	ctx := context.Background()
	turn := func() {
		_, err := h.Snapshot(ctx)
		die(err)
	}
	turn()
	for _, s := range stepsOf(h.Capabilities(), be) {
		err := h.Apply(ctx, s)
		for ; errors.Is(err, bescheduler.ErrLoading); err = h.Apply(ctx, s) {
			time.Sleep(100 * time.Millisecond)
			seen, err := h.Snapshot(ctx)
			if die(err); len(seen.Isolation.Failures) > 0 {
				die(errors.New(seen.Isolation.Failures[0].Why))
			}
		}
		die(err)
	}
	turn()
	fmt.Println("isolated")
	for {
		time.Sleep(100 * time.Millisecond)
		turn()
	}
}

// stepsOf returns the steps that a kernel with these capabilities accepts.
func stepsOf(can node.Capabilities, be node.CgroupPath) []plan.Step {
	var steps []plan.Step
	if can.Has(node.FeatureSchedExt) { // the kernel has at least the policy
		steps = append(steps, plan.Step{Knob: node.Knob{Cgroup: be, File: node.FilePolicy}, To: node.ThreadsBE})
	}
	if carefully(can).Has(node.FeatureSchedExt) {
		steps = append(steps, plan.Step{Knob: node.Knob{File: node.FileScheduler}, To: node.Scheduler{
			Loaded: true, Siblings: can.Has(node.FeatureHardwareSMT), Hold: 200 * time.Microsecond, Headroom: node.SchedulerHeadroom,
		}})
	}
	if can.Has(node.FeatureCoreSched) {
		steps = append(steps, plan.Step{Knob: node.Knob{Cgroup: be, File: node.FileCookie}, To: node.ThreadsBE})
	}
	return steps
}

// TestKilledAgentLeavesNothingThatARestoreDoesNotTakeBack kills an agent. The
// scheduler ends together with the agent. The threads keep their policy and
// their cookie until a restore removes these.
func TestKilledAgentLeavesNothingThatARestoreDoesNotTakeBack(t *testing.T) {
	m := open(t, false)
	can := m.Capabilities()
	if len(stepsOf(can, "be")) == 0 {
		t.Logf("this kernel has nothing of the kind: %s; %s", can[node.FeatureSchedExt].Why, can[node.FeatureCoreSched].Why)
		return
	}
	be := node.CgroupPath(groupName("isolated"))
	inner := []node.CgroupPath{be.Join("one"), be.Join("two/inner")}
	do(t, m.MakeGroup(inner[0]), m.MakeGroup(inner[1]))
	t.Cleanup(func() { do(t, m.tree.RemoveAll(string(be))) })
	var pids []int
	for _, p := range inner {
		pid, err := m.Start(p, unit.Bytes(0))
		do(t, err)
		t.Cleanup(func() { do(t, m.Stop(pid)) })
		pids = append(pids, pid)
	}
	journal := t.TempDir()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "TENON_TEST_ROLE=isolator", "ISOLATOR_JOURNAL="+journal, "ISOLATOR_GROUP="+string(be))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	do(t, err, c.Start())
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	defer kill()
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "isolated\n" {
		t.Fatalf("the agent said %q, %v", said, err)
	}
	state := func() string {
		text, _ := os.ReadFile("/sys/kernel/sched_ext/state")
		return strings.TrimSpace(string(text))
	}
	all := func(policy task.Policy, tagged bool) {
		t.Helper()
		for _, pid := range pids {
			tids, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			do(t, err)
			for _, dir := range tids {
				var tid int
				_, _ = fmt.Sscan(filepath.Base(dir), &tid)
				if p, err := task.PolicyOf(tid); err != nil || can.Has(node.FeatureSchedExt) && p != policy {
					t.Errorf("thread %d has %v, %v, want %v", tid, p, err, policy)
				}
				if id, err := task.CoreCookie(tid); can.Has(node.FeatureCoreSched) && (err != nil || (id != 0) != tagged) {
					t.Errorf("thread %d has cookie %d, %v, want one: %t", tid, id, err, tagged)
				}
			}
		}
	}
	all(task.Ext, true)
	loads := carefully(can).Has(node.FeatureSchedExt)
	if loads && state() != "enabled" {
		t.Errorf("sched_ext is %s beside the agent", state())
	}
	kill()
	begun := time.Now()
	for loads && state() != "disabled" {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("sched_ext is %s %v after its agent was killed", state(), time.Since(begun))
		}
		time.Sleep(time.Millisecond)
	}
	if loads {
		t.Logf("unloaded %v after the agent had been killed", time.Since(begun))
	}
	all(task.Ext, true)

	next, err := host.Open(host.Options{Tree: m.tree, JournalDir: journal})
	do(t, err)
	defer func() { do(t, next.Close()) }()
	r, err := next.Restore(t.Context())
	do(t, err)
	all(task.Normal, false)
	if again, err := next.Restore(t.Context()); err != nil || !again.Empty() || len(r.Left) > 0 {
		t.Errorf("restored:\n%v\nand again: %v, %v", r, again, err)
	}
}
