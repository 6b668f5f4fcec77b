package host_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// sleeper is the main function of a process of a lab. A stubborn process
// ignores SIGTERM and must be killed.
func sleeper() {
	if os.Getenv("VICTIM_STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	time.Sleep(time.Minute)
}

// victim is a lab that works as fast as it can, until it is killed. It creates
// groups, starts processes and writes the knobs of a foreign tree.
// VICTIM_JOURNAL names the folder of its journal, VICTIM_TREE the foreign tree,
// and VICTIM_GROUP its own group.
func victim() {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(1)
		}
	}
	h, err := host.Open(host.Options{JournalDir: os.Getenv("VICTIM_JOURNAL"), Disposable: true})
	die(err)
	tree, group := node.CgroupPath(os.Getenv("VICTIM_TREE")), node.CgroupPath(os.Getenv("VICTIM_GROUP"))
	be := tree.Join("besteffort")
	pod := be.Join("pod")
	h.Manage(node.Workload{ID: "be", Class: node.BE, Cgroup: pod, ContentionRoot: be})
	h.Show(append([]node.File{node.FileIOMax}, node.Files...))

	die(h.MakeGroup(group.Join("ls")))
	die(h.MakeGroup(group.Join("be/work")))
	for _, p := range []node.CgroupPath{group.Join("ls"), group.Join("be/work")} {
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), "TENON_TEST_ROLE=sleeper")
		die(c.Start())
		die(h.Spawned(c.Process.Pid))
		die(h.Attach(p, c.Process.Pid))
	}
	ctx := context.Background()
	first, _ := unit.ParseCPUSet("0")
	for i := 0; ; i++ {
		s, err := h.Snapshot(ctx)
		die(err)
		quota := node.Limit(unit.MilliCPU(20 + i%180))
		if i%3 == 0 {
			quota = node.CPUMax{Quota: 30 * time.Millisecond, Period: 60 * time.Millisecond, Burst: 20 * time.Millisecond}
		}
		weight := node.CPUWeight{Idle: i%2 == 0}
		if !weight.Idle {
			weight.Weight = unit.WeightOf(int64(2 + i%7))
		}
		wants := []plan.Want{
			{Intent: plan.Set, Knob: node.Knob{Cgroup: be, File: node.FileCPUWeight}, Value: weight},
			{Intent: plan.Set, Knob: node.Knob{Cgroup: be, File: node.FileCPUMax}, Value: quota, BE: true},
			{Intent: plan.Set, Knob: node.Knob{Cgroup: pod, File: node.FileCPUs}, Value: node.CPUs{Set: first}},
			{Intent: plan.Set, Knob: node.Knob{Cgroup: pod, File: node.FilePIDs}, Value: node.Maximum{Max: int64(500 + i)}},
			{Intent: plan.Set, Knob: node.Knob{Cgroup: pod, File: node.FileMemory},
				Value: node.Memory{High: unit.MaxBytes, Max: unit.Bytes(200+i%50) << 20}},
		}
		if len(s.Devices) > 0 {
			limits := node.IOLimits{ReadBPS: int64(1000 + i%100), WriteBPS: node.NoIORate, ReadIOPS: node.NoIORate, WriteIOPS: int64(7 + i%5)}
			wants = append(wants, plan.Want{Intent: plan.Set, Knob: node.Knob{Cgroup: be, File: node.FileIOMax},
				Value: node.IOMaxOf(map[unit.Device]node.IOLimits{s.Devices[0].Disk: limits})})
		}
		if i%11 == 10 { // now and then the policies are switched off
			for j := range wants {
				wants[j].Intent = plan.Release
			}
		}
		for _, st := range plan.Diff(s.Knobs, wants) {
			die(h.Apply(ctx, st))
		}
		if i == 0 {
			fmt.Println("ready")
		}
	}
}

// startVictim starts a victim and waits until it is at full load.
func startVictim(journalDir string, tree, group node.CgroupPath, env ...string) (*exec.Cmd, error) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), append(env, "TENON_TEST_ROLE=victim", "VICTIM_JOURNAL="+journalDir,
		"VICTIM_TREE="+string(tree), "VICTIM_GROUP="+string(group))...)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		_ = c.Process.Kill()
		_ = c.Wait()
		return nil, fmt.Errorf("the victim said %q: %s", line, complaint.String())
	}
	return c, nil
}
